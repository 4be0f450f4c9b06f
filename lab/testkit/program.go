// Package testkit is what tests run: the programs, MySQL servers and clusters. The product links nothing of it.
package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// The programs that tests run, and how `go build` makes them.
const (
	Trireme    = "trireme"
	Failpoints = "trireme-failpoints" // with the points of package failpoint
	Next       = "trireme-next"       // says that it is version NextVersion

	NextVersion = "9.9.9" // later than any that is released
)

var buildFlags = map[string][]string{
	Trireme:    nil,
	Failpoints: {"-tags", "failpoints"},
	Next:       {"-ldflags", "-X main.version=" + NextVersion},
}

var programs struct {
	sync.Mutex
	dir   string // of those that this process has built
	paths map[string]string
}

// Run is m.Run for packages that ask for programs: it removes what this process has built.
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trireme-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.dir, programs.paths = dir, map[string]string{}
	return m.Run()
}

// Program is the path of one of the programs. `make test` builds them once and names their folder in TRIREME_PROGRAMS;
// without it each test process builds what it asks for. TRIREME_BINARY takes the place of Trireme.
func Program(t testing.TB, name string) string {
	t.Helper()
	if path := os.Getenv("TRIREME_BINARY"); path != "" && name == Trireme {
		return path
	}
	if dir := os.Getenv("TRIREME_PROGRAMS"); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("TRIREME_PROGRAMS: %v", err)
		}
		return path
	}
	programs.Lock()
	defer programs.Unlock()
	if programs.dir == "" {
		t.Fatal("TestMain does not call testkit.Run")
	}
	if path := programs.paths[name]; path != "" {
		return path
	}
	flags, known := buildFlags[name]
	if !known {
		t.Fatalf("there is no program %q", name)
	}
	path := filepath.Join(programs.dir, name)
	build := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", path}, flags...),
		"trireme/cmd/trireme")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", name, err, out)
	}
	programs.paths[name] = path
	return path
}
