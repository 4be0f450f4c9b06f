package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"

	"trireme/internal/ops/cli"
	"trireme/lab/child"
	"trireme/lab/testkit/script"
)

func TestMain(m *testing.M) {
	child.Main(roles...)
	testscript.Main(m, map[string]func(){program: main})
}

// TestScripts runs testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": script.Exits, "fails": script.Fails, "field": script.Field}})
}

func declarations(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(new(commands), kong.Name(program))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

// TestHelp: every verb has help, all of it in sentences.
func TestHelp(t *testing.T) {
	for _, v := range cli.Verbs(declarations(t).Node)[1:] {
		var out strings.Builder
		if code := run(append(strings.Fields(v.Path()), "--help"), &out, &out); code != 0 ||
			!strings.HasPrefix(out.String(), "Usage: trireme-lab "+v.Path()) {
			t.Errorf("%s --help: %d %s", v.Path(), code, out.String())
		}
		if !strings.HasSuffix(v.Help, ".") {
			t.Errorf("%s: %q is no sentence", v.Path(), v.Help)
		}
		for _, f := range cli.Flags(v) {
			if !strings.HasSuffix(f.Help, ".") {
				t.Errorf("%s --%s: %q is no sentence", v.Path(), f.Name, f.Help)
			}
		}
	}
}

// TestPageOfVerbs: docs/lab.md is what the declarations say (make manual).
func TestPageOfVerbs(t *testing.T) {
	var b bytes.Buffer
	if err := manual.Markdown(&b, declarations(t)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "docs", "lab.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Error("docs/lab.md is not what --help says: make manual")
	}
}

// TestManPages: a page for each verb.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if code := run([]string{"manual", dir}, os.Stdout, os.Stderr); code != 0 {
		t.Fatal(code)
	}
	for _, v := range cli.Verbs(declarations(t).Node) {
		if _, err := os.Stat(filepath.Join(dir, strings.ReplaceAll(v.FullPath(), " ", "-")+".1")); err != nil {
			t.Error(err)
		}
	}
}
