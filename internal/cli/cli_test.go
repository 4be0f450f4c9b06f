package cli

import "testing"

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"--to": `\-\-to`, ".first": `\&.first`, "'tis": `\&'tis`, `a\b`: `a\eb`, "host…": `host\&...`, "`x`": `\(gax\(ga`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}
