package api

import (
	"net/http"
	"strings"
	"testing"
)

// TestKinds: the list is closed, each kind says what it means, and what a newer version sends counts as a failure.
func TestKinds(t *testing.T) {
	seen := map[Kind]bool{}
	for _, k := range Kinds {
		if seen[k.Kind] || !strings.HasSuffix(k.Doc, ".") || http.StatusText(k.Status) == "" || k.Exit < 1 || k.Exit > 4 {
			t.Errorf("%+v", k)
		}
		seen[k.Kind] = true
		if k.Kind.Refused() != (k.Status == http.StatusConflict) {
			t.Errorf("%s: refused: %v", k.Kind, k.Kind.Refused())
		}
	}
	if code := ExitCode(Errorf("of-a-newer-version", "it failed")); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
