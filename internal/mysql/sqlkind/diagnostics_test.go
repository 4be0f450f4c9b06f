package sqlkind

import (
	"slices"
	"testing"
)

func TestGetDiagnostics(t *testing.T) {
	for q, want := range map[string][]string{
		"GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT":                             {"@`n`", "@`r`"},
		"get current diagnostics CONDITION 1 @P=MESSAGE_TEXT;":                    {"@`p`"},
		"GET STACKED DIAGNOSTICS @`a b` = NUMBER, @'c' = NUMBER, @\"d\" = NUMBER": {"@`a b`", "@`c`", "@`d`"},
		"/* x */ GET DIAGNOSTICS CONDITION @n @1 = MESSAGE_TEXT -- y":             {"@`1`"},
		"GET DIAGNOSTICS CONDITION '1' @a = MYSQL_ERRNO":                          {"@`a`"},
		"GET DIAGNOSTICS CONDITION NULL @a = MYSQL_ERRNO, @A = MYSQL_ERRNO # z":   {"@`a`", "@`a`"},
		"GET DIAGNOSTICS /*!99999 @a = NUMBER, */ @b = NUMBER":                    {"@`a`", "@`b`"},
		"GET DIAGNOSTICS @number = NUMBER, @condition = ROW_COUNT":                {"@`number`", "@`condition`"},
		"":                           nil,
		"GET":                        nil,
		"GET DIAGNOSTICS":            nil,
		"GET DIAGNOSTICS n = NUMBER": nil,
		"GET DIAGNOSTICS @n = NUMBER, r = ROW_COUNT":              nil,
		"GET DIAGNOSTICS @n = NUMBER; DELETE FROM t":              nil,
		"GET DIAGNOSTICS @n = NUMBER /*!80000 ; DELETE FROM t */": nil,
		"GET DIAGNOSTICS CONDITION @@x @n = MESSAGE_TEXT":         nil,
		"GET DIAGNOSTICS CONDITION f(1) @n = MESSAGE_TEXT":        nil,
		"GET DIAGNOSTICS @a.b = NUMBER":                           nil,
		"GET DIAGNOSTICS @ a = NUMBER":                            nil,
		"GET DIAGNOSTICS @`a``b` = NUMBER":                        nil,
		"GET DIAGNOSTICS @'a\\' = NUMBER":                         nil,
		"GET DIAGNOSTICS @\xc3\xa9 = NUMBER":                      nil,
		"GET DIAGNOSTICS @a := NUMBER":                            nil,
		"GET DIAGNOSTICS @a = NUMBER,":                            nil,
		"GET DIAGNOSTICS @a = 1":                                  nil,
		"SELECT @a = NUMBER":                                      nil,
	} {
		got, ok := GetDiagnostics([]byte(q))
		if ok != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%s: %q %t, want %q", q, got, ok, want)
		}
	}
}
