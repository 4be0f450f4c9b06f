package campaign

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shows are packages of a daemon that only show: a new chart takes no count of faults away.
var shows = []string{"internal/dashboard", "internal/recorder"}

// TestCommitPath: the script covers the daemon and every package that it needs but shows, nothing else, and its digest
// changes with a source, not with a test.
func TestCommitPath(t *testing.T) {
	const daemon = "cmd/trireme/daemon.go"
	root := filepath.Join("..", "..")
	script, err := os.ReadFile(filepath.Join(root, "scripts", "commit-path.sh"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(script), `parts="`)
	list, _, _ = strings.Cut(list, `"`)
	onPath := strings.Fields(list)
	out, err := exec.Command("go", "list", "-deps", "trireme/internal/node").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{daemon}
	for _, p := range strings.Fields(string(out)) {
		if name, ours := strings.CutPrefix(p, "trireme/"); ours && !slices.Contains(shows, name) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	slices.Sort(onPath)
	if !slices.Equal(onPath, want) {
		t.Errorf("scripts/commit-path.sh lists %q, and a daemon is made of %q", onPath, want)
	}
	if b, err := os.ReadFile(filepath.Join(root, daemon)); err != nil || !strings.Contains(string(b), "node.Run(") {
		t.Errorf("%s does not start the daemon any more (%v)", daemon, err)
	}

	tree := t.TempDir()
	for _, p := range onPath {
		if p != daemon {
			p = filepath.Join(p, "x.go")
		}
		write(t, filepath.Join(tree, p), "package x\n")
	}
	write(t, filepath.Join(tree, "go.mod"), "go 1.26\n")
	write(t, filepath.Join(tree, "scripts", "commit-path.sh"), string(script))
	digest := func() string {
		out, err := exec.Command("sh", filepath.Join(tree, "scripts", "commit-path.sh")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	before := digest()
	write(t, filepath.Join(tree, "internal", "node", "x_test.go"), "package x\n")
	if digest() != before {
		t.Error("a test changes the commit path")
	}
	write(t, filepath.Join(tree, "internal", "node", "x.go"), "package x // changed\n")
	if digest() == before {
		t.Error("a changed source does not change the commit path")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBuild: what the Makefile links in is told apart into a commit and changes.
func TestBuild(t *testing.T) {
	defer func(before string) { revision = before }(revision)
	for text, want := range map[string]Build{"": {}, "abc": {Revision: "abc"}, "abc-dirty": {Revision: "abc", Modified: true}} {
		revision = text
		if b := ThisBuild("v1"); b.Version != "v1" || b.Go == "" || b.Revision != want.Revision || b.Modified != want.Modified {
			t.Errorf("%q: %+v", text, b)
		}
	}
}

// TestTags: a program built with tags is another one, and what a mutant does is never counted.
func TestTags(t *testing.T) {
	if b := (Build{CommitPath: "a", Tags: "failpoints"}).tagged(); b.CommitPath != "a+failpoints" {
		t.Errorf("%+v", b)
	}
	if b := (Build{Tags: "failpoints"}).tagged(); b.CommitPath != "" {
		t.Errorf("%+v", b)
	}
	o := Options{Build: Build{Tags: "mutant_s2"}}
	if _, err := o.withDefaults(); err != nil {
		t.Error(err)
	}
	o.State = "x.jsonl"
	if _, err := o.withDefaults(); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "mutant_s2") {
		t.Errorf("a mutant is counted: %v", err)
	}
}
