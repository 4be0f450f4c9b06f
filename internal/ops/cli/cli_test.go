package cli

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestNotAllowed: an account that may not read a file is told who may.
func TestNotAllowed(t *testing.T) {
	f := Failure(fmt.Errorf("open x: %w", fs.ErrPermission), nil)
	if f.Message != "open x: permission denied" || !strings.Contains(f.Advice, "as root") {
		t.Errorf("%+v", f)
	}
	if f = Failure(fs.ErrExist, nil); f.Advice != "" {
		t.Errorf("%+v", f)
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"--to": `\-\-to`, ".first": `\&.first`, "'tis": `\&'tis`, `a\b`: `a\eb`, "host…": `host\&...`, "`x`": `\(gax\(ga`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}
