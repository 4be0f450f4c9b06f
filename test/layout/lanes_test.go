package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	clusterTest = regexp.MustCompile(`(?ms)^func (Test\w+)\(t \*testing\.T\) \{\n(.*?)^\}`)
	needsNodes  = regexp.MustCompile(`\b(lease\w*|create\w*|kept|FreePortBase)\(`)
	laneOf      = regexp.MustCompile(`\bt\.Parallel\(\)|\btestkit\.Quiet\(t, |\bneeds\.Long\(t\)|if !soak\(\)`)
)

// A test of clusters says whether it runs side by side with others or alone: one that says nothing would make all wait
// without a reason.
func TestLanes(t *testing.T) {
	seen := 0
	for _, dir := range []string{"robustness", "drivers"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range clusterTest.FindAllStringSubmatch(string(text), -1) {
				if !needsNodes.MatchString(m[2]) {
					continue
				}
				if seen++; !laneOf.MatchString(m[2]) {
					t.Errorf("%s: %s neither calls t.Parallel nor says what it measures (testkit.Quiet)",
						strings.TrimPrefix(f, "../"), m[1])
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d tests of clusters were found", seen)
	}
}
