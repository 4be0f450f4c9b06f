package sqlkind

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
)

// tokens lists what a text consists of: words as they are, other bytes too, the rest with a letter in front.
func tokens(text string, noBackslash bool) string {
	s := scanner{src: []byte(text), plainBackslash: noBackslash}
	var list []string
	for t := s.next(); t.kind != tokenEnd; t = s.next() {
		switch t.kind {
		case tokenWord, tokenOther:
			list = append(list, string(t.text))
		default:
			list = append(list, fmt.Sprintf("%c%c<%s>", " wnsxbq"[t.kind], cmp.Or(t.quote, '_'), t.text))
		}
	}
	return strings.Join(list, " ")
}

func TestTokens(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " \t\r\n\v\f": "", "\x00a": "\x00 a",

		// Comments.
		"a/**/b":                      "a b",
		"a /*/ b */ c":                "a c",
		"a/***/b/* c **/d":            "a b d",
		"a /* b":                      "a",
		"a /*+ INDEX(t) */ b":         "a b",
		"a # b\nc#":                   "a c",
		"a -- b\nc --":                "a c",
		"a --\nb --\x01c\nd":          "a b d",
		"a--b":                        "a - - b",
		"a---- b":                     "a - -",
		"a - -b":                      "a - - b",
		"a # /*\nb */":                "a b * /",
		"/* ' */ a -- '\nb # \"\n":    "a b",
		"a */ b":                      "a * / b",
		"a //* b */ c":                "a / c",
		"/*!80011 a */ b":             "a b",
		"/*!a*/b":                     "a b",
		"/*!*/ a":                     "a",
		"/*!50003SET*/ a":             "SET a",
		"/*! a /* b */ c */ d":        "a c d",
		"/*!80000 a */* b /* c */ */": "a * b * /",
		"/*! 'a */ b":                 "s'<a */ b>",
		"/*!80000 a":                  "a",

		// Quotes.
		"'it''s' \"a\"\"b\" `c``d`": "s'<it''s> s\"<a\"\"b> q`<c``d>",
		`'a\'b' "a\"b" c`:           `s'<a\'b> s"<a\"b> c`,
		"`a\\` b":                   "q`<a\\> b",
		`'a\\' b`:                   `s'<a\\> b`,
		"'a' 'b' ''":                "s'<a> s'<b> s'<>",
		"'a /* b -- c":              "s'<a /* b -- c>",
		"'a\\":                      "s'<a\\>",
		"\"a'b\" 'a\"b'":            "s\"<a'b> s'<a\"b>",

		// Literals and names.
		"x'41' X'4' b'01' B'":     "x'<41> x'<4> b'<01> b'<>",
		"0x41 0b01 0X41 0xZ":      "x_<41> b_<01> n_<0X41> x_<Z>",
		"1 1.5 .5 1e-3 3rd":       "n_<1> n_<1> . n_<5> . n_<5> n_<1e> - n_<3> n_<3rd>",
		"_utf8mb4'a' n'b' xx'41'": "_utf8mb4 s'<a> n s'<b> xx s'<41>",
		"@a @@b @`c` @'d'":        "@ a @ @ b @ q`<c> @ s'<d>",
		"t.`c`.d":                 "t . q`<c> . d",
		"$a _b a$1 é Ä1":          "$a _b a$1 é Ä1",
		"a:=b<=>c;":               "a : = b < = > c ;",
		"\x81'a":                  "\x81 s'<a>",
	} {
		if got := tokens(text, false); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got, want := tokens(`'a\' b '\\'`, true), `s'<a\> b s'<\\>`; got != want {
		t.Errorf("without escapes: %s, want %s", got, want)
	}
}
