package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestViewsAreTold: docs/api.md has every path that the API's server routes, and every parameter that it reads.
func TestViewsAreTold(t *testing.T) {
	files, err := filepath.Glob("../../api/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f, "_test.go") {
			source.Write(b)
		}
	}
	var page bytes.Buffer
	WriteAPI(&page)
	for _, c := range []struct {
		what, in string
		want     string // in the page
		least    int
	}{
		{"a path", `mux\.Handle\("(/[^"]+)"`, "](#get-%s)", 11},
		{"a health check", `(?m)^\t"/([a-z-]+)": +[a-zA-Z]+,$`, "](#get-%s)", 6},
		{"a parameter", `(?:Query\(\)|\bq|p\.v)\.Get\("(\w+)"\)|p\.number\("(\w+)"|{"from", "(to)"}`, "\n| `%s` | ", 12},
	} {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(c.in).FindAllStringSubmatch(source.String(), -1) {
			found[strings.TrimPrefix(strings.Join(m[1:], ""), "/")] = true
		}
		for name := range found {
			if !strings.Contains(page.String(), fmt.Sprintf(c.want, name)) {
				t.Errorf("docs/api.md does not tell of %s: %s", c.what, name)
			}
		}
		if len(found) < c.least {
			t.Errorf("only %d times %s was found in the source: %v", len(found), c.what, found)
		}
	}
}
