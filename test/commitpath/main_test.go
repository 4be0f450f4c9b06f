package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var root = filepath.Join("..", "..")

// TestCommitPath: what every node runs is on it, what only shows and the lab are not.
func TestCommitPath(t *testing.T) {
	pkgs, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	files, modules := onPath(pkgs)
	folders := map[string]bool{}
	for _, f := range files {
		folders[filepath.Dir(f)] = true
	}
	for _, want := range []string{
		begin, "internal/node/lifecycle", "internal/node/ackpath", "internal/core/consensus", "internal/core/raftlog",
		"internal/core/dump", "internal/core/ledger", "internal/mysql/mysqld", "internal/core/transport",
		"internal/core/ha", "internal/core/guard", "internal/access/router",
	} {
		if !folders[want] {
			t.Errorf("%s is not on the commit path", want)
		}
	}
	for f := range folders {
		if slices.Contains(shows, f) || strings.HasPrefix(f, "lab/") || strings.HasPrefix(f, "test/") {
			t.Errorf("%s is on the commit path", f)
		}
	}
	for _, want := range []string{"go 1.", "go.etcd.io/raft/v3 v"} {
		if !slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(m, want) }) {
			t.Errorf("nothing begins with %q in %q", want, modules)
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, daemon)); err != nil || !strings.Contains(string(b), "node.Run(") {
		t.Errorf("%s does not start the daemon any more (%v)", daemon, err)
	}
}

// TestDigest: code, directives and versions change it; comments, line breaks, tests and what only shows do not.
func TestDigest(t *testing.T) {
	tree := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const node = "internal/node/node.go"
	first := map[string]string{
		"go.mod":                             "module trireme\n\ngo 1.24\n",
		daemon:                               "package main\n",
		node:                                 "package node\n\nimport (\n\t_ \"trireme/internal/control/dashboard\"\n\t_ \"trireme/internal/log\"\n)\n\nfunc f() { g() }\nfunc g() {}\n",
		"internal/log/log.go":                "package log\n\nimport _ \"embed\"\n\n//go:embed text\nvar text string\n",
		"internal/log/text":                  "a\n",
		"internal/control/dashboard/page.go": "package dashboard\n\nimport _ \"trireme/internal/chart\"\n",
		"internal/chart/chart.go":            "package chart\n",
		"internal/elsewhere/verb.go":         "package elsewhere\n",
		"internal/log/log_other.go":          "//go:build other\n\npackage log\n",
		"internal/node/node_test.go":         "package node\n",
		"internal/log/log_windows.go":        "package log\n",
		"internal/elsewhere/x_test.go":       "package elsewhere\n",
	}
	of := func() string {
		t.Helper()
		d, err := digest(tree)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, text := range first {
		write(name, text)
	}
	before := of()
	if len(before) != 16 {
		t.Errorf("%q", before)
	}
	for _, c := range []struct {
		what, file, text string
		changes          bool
	}{
		{"a comment", node, "// Package node.\n" + first[node], false},
		{"a line break", node, strings.Replace(first[node], "{ g() }", "{\n\tg() // called\n}", 1), false},
		{"a statement", node, strings.Replace(first[node], "{ g() }", "{ g(); g() }", 1), true},
		{"a directive", node, strings.Replace(first[node], "func g", "//go:noinline\nfunc g", 1), true},
		{"a test", "internal/node/node_test.go", "package node\n\nfunc h() {}\n", false},
		{"a package on the path", "internal/log/log.go", "package log\n\nvar x int\n", true},
		{"a new file", "internal/log/new.go", "package log\n\nvar x int\n", true},
		{"an embedded file", "internal/log/text", "b\n", true},
		{"assembly", "internal/log/log_amd64.s", "// nothing\n", true},
		{"what only shows", "internal/control/dashboard/page.go", "package dashboard\n", false},
		{"what that alone needs", "internal/chart/chart.go", "package chart\n\nvar x int\n", false},
		{"a package of no daemon", "internal/elsewhere/verb.go", "package elsewhere\n\nvar x int\n", false},
		{"the version of Go", "go.mod", "module trireme\n\ngo 1.23\n", true},
		{"the start of the daemon", daemon, "package main\n\nvar x int\n", true},
	} {
		write(c.file, c.text)
		if changed := of() != before; changed != c.changes {
			t.Errorf("%s: changed: %v", c.what, changed)
		}
		if text, was := first[c.file]; was {
			write(c.file, text)
		} else if err := os.Remove(filepath.Join(tree, c.file)); err != nil {
			t.Fatal(err)
		}
	}
	if of() != before {
		t.Error("the tree is not what it was")
	}
	t.Setenv("GOFLAGS", "-tags=other")
	if of() == before {
		t.Error("a build with other tags has the same digest")
	}
	t.Setenv("GOFLAGS", "-trimpath")
	if of() != before {
		t.Error("flags that choose no code change the digest")
	}
	write(node, "package node\n\nvar \"\n")
	if d, err := digest(tree); err == nil {
		t.Errorf("a file that is no Go: %s", d)
	}
}
