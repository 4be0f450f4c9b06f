package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/needs"
)

// recorded is what go test -json says of five packages: one passes, in one a test fails, in one a test panics, one does
// not build, one has no tests.
const recorded = "testdata/mixed.json"

func TestFollow(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "mixed.json")
	var out bytes.Buffer
	if err := run([]string{kept, "sh", "-c", "cat " + recorded + "; exit 1"}, &out); !errors.Is(err, errFailed) {
		t.Errorf("%v, although tests failed", err)
	}
	holds(t, "while it runs", out.String(), "ok  \ttrireme/good\t", "FAIL\ttrireme/bad\t", "one is not two",
		"--- FAIL: TestWrong/left", "panic: runtime error", "declared and not used: x",
		"FAIL\ttrireme/nobuild [build failed]")
	lacks(t, "while it runs", out.String(), "said by a test that passes", "=== RUN", "--- PASS")

	out.Reset()
	if err := run([]string{"-of", kept}, &out); !errors.Is(err, errFailed) {
		t.Errorf("%v, although tests failed", err)
	}
	holds(t, "the tables", out.String(), "there is no such tool: install it\n      good.TestNotHere\n",
		"needs: root\n      good.TestPartly/there\n", "FAILED: mixed: bad.TestWrong\n", "FAILED: mixed: dead.TestPanics\n",
		"FAILED: mixed: nobuild\n", "declared and not used: x", "mixed: exit status 1\n", "\n3 passed, 3 failed, 1 skipped\n")
	lacks(t, "the tables", out.String(), "good.TestFine", "trireme/none")
}

// TestStatus: it fails whenever something is not as it should be, and only then.
func TestStatus(t *testing.T) {
	passes := `{"Action":"run","Package":"trireme/p","Test":"TestA"}
{"Action":"pass","Package":"trireme/p","Test":"TestA","Elapsed":61.5}
{"Action":"output","Package":"trireme/p","Output":"ok\n"}
{"Action":"pass","Package":"trireme/p","Elapsed":62}
`
	for what, c := range map[string]struct {
		said, exit string
		failed     bool
	}{
		"all pass":                  {passes, "0", false},
		"the command fails":         {passes, "2", true},
		"a package does not end":    {passes + `{"Action":"run","Package":"trireme/q","Test":"TestB"}` + "\n", "0", true},
		"a package fails":           {passes + `{"Action":"fail","Package":"trireme/q"}` + "\n", "0", true},
		"a command of another kind": {"all is well\n", "0", false},
		"nothing at all":            {"", "1", true},
	} {
		dir := t.TempDir()
		said, kept := filepath.Join(dir, "said"), filepath.Join(dir, "kept.json")
		if err := os.WriteFile(said, []byte(c.said), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, args := range [][]string{{kept, "sh", "-c", "cat " + said + "; exit " + c.exit}, {"-of", kept}} {
			if err := run(args, &out); errors.Is(err, errFailed) != c.failed || err != nil && !c.failed {
				t.Errorf("%s: %v", what, err)
			}
		}
		if c.said == passes {
			holds(t, what, out.String(), "   61.5 p                                TestA", "   62.0 kept ")
		}
	}
}

// TestInShort: after everything else stands what the failed tests said themselves.
func TestInShort(t *testing.T) {
	var said strings.Builder
	line := func(e event) {
		e.Package, e.Test = "trireme/p", "TestA"
		if err := writeLine(&said, e); err != nil {
			t.Fatal(err)
		}
	}
	line(event{Action: "run"})
	line(event{Action: "output", Output: "    a_test.go:7: n1 leads, n2 was chosen\n"})
	line(event{Action: "output", Output: "    cluster.go:119: /tmp/n1.log:\n"})
	for range 2 * shownOfFailed {
		line(event{Action: "output", Output: "        time=2026-01-02T03:04:05Z level=INFO msg=noise\n"})
	}
	line(event{Action: "output", Output: "--- FAIL: TestA (0.01s)\n"})
	line(event{Action: "fail"})
	kept := filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(kept, []byte(said.String()+`{"Action":"fail","Package":"trireme/p"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-of", kept}, &out); !errors.Is(err, errFailed) {
		t.Errorf("%v, although a test failed", err)
	}
	const want = "\nIn short: p.TestA\n    a_test.go:7: n1 leads, n2 was chosen\n--- FAIL: TestA (0.01s)\n\n0 passed, 1 failed, 0 skipped\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("it ends with %q, want %q", out.String()[max(0, out.Len()-400):], want)
	}
}

// TestInterrupted: of a run that was killed the tables say so.
func TestInterrupted(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "cut.json")
	if err := os.WriteFile(kept, []byte(`{"Action":"run","Package":"trireme/p","Test":"TestA"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-of", kept}, &out); !errors.Is(err, errFailed) {
		t.Error(err)
	}
	holds(t, "the tables", out.String(), "FAILED: cut: p.TestA", "FAILED: cut did not come to its end",
		"0 passed, 1 failed")
}

// TestDeferred: what a phase leaves to a later one is listed for it, and counts as failed until that one has run it.
func TestDeferred(t *testing.T) {
	dir := t.TempDir()
	unit, servers := filepath.Join(dir, "unit.json"), filepath.Join(dir, "servers.json")
	skips := func(test string) string {
		return `{"Action":"output","Package":"trireme/p","Test":"` + test + `","Output":"    x_test.go:9: ` + needs.Deferred + `servers\n"}
{"Action":"skip","Package":"trireme/p","Test":"` + test + `"}
`
	}
	passes := func(tests ...string) (all string) {
		for _, test := range tests {
			all += `{"Action":"pass","Package":"trireme/p","Test":"` + test + `"}` + "\n"
		}
		return all + `{"Action":"pass","Package":"trireme/p"}` + "\n" + `{"Action":"trireme-ended"}` + "\n"
	}
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(unit, skips("TestA")+skips("TestB/c")+passes("TestB", "TestD"))
	said := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(args, &out)
		return out.String(), err
	}
	if list, err := said("-deferred", "servers", unit); err != nil || list != "trireme/p TestA\ntrireme/p TestB\n" {
		t.Errorf("%q, %v", list, err)
	}
	if list, err := said("-deferred", "quiet", unit); err != nil || list != "" {
		t.Errorf("%q, %v", list, err)
	}
	text, err := said("-part", unit)
	if err != nil {
		t.Error(err)
	}
	holds(t, "a part", text, "2 tests with real servers", "\n1 passed, 0 failed, 0 skipped\n")
	write(servers, passes("TestA"))
	if text, err = said("-of", unit, servers); !errors.Is(err, errFailed) {
		t.Error(err)
	}
	holds(t, "one was forgotten", text, "FAILED: p.TestB was left to the phase servers",
		"\n2 passed, 1 failed, 0 skipped\n")
	write(servers, passes("TestA", "TestB"))
	if text, err = said("-of", unit, servers); err != nil {
		t.Error(err)
	}
	holds(t, "all ran", text, "\n3 passed, 0 failed, 0 skipped\n")
}

// TestLong: tests are found that are marked themselves, in a subtest, or by what they call, and no others.
func TestLong(t *testing.T) {
	dir := t.TempDir()
	source := `package p
func TestSelf(t *testing.T)     { needs.Long(t) }
func TestBelow(t *testing.T)    { t.Run("a", func(t *testing.T) { needs.Long(t) }) }
func TestByCall(t *testing.T)   { begin(t) }
func TestByMethod(t *testing.T) { var c cluster; c.grow(t) }
func TestShort(t *testing.T)    { needs.MySQL(t); other(t) }
func begin(t *testing.T)        { deeper(t) }
func deeper(t *testing.T)       { begin(t); needs.Long(t) }
func other(t *testing.T)        { other(t); thing.Long(t) }
func (cluster) grow(t *testing.T) { needs.Long(t) }
func TestForms(t *testing.T)    { if needs.IsLong() { other(t) } }
`
	if err := os.MkdirAll(filepath.Join(dir, "x", "y"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x", "y", "p_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-long", dir}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "./x/y TestBelow\n./x/y TestByCall\n./x/y TestByMethod\n./x/y TestForms\n./x/y TestSelf\n"; out.String() != want {
		t.Errorf("%s, not %s", out.String(), want)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"-of"}, {"-deferred", "servers"}, {"x.json"}, {"-of", "/does/not/exist.json"}} {
		if err := run(args, &bytes.Buffer{}); err == nil || errors.Is(err, errFailed) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func holds(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s: %q is missing in\n%s", what, w, text)
		}
	}
}

func lacks(t *testing.T, what, text string, unwanted ...string) {
	t.Helper()
	for _, w := range unwanted {
		if strings.Contains(text, w) {
			t.Errorf("%s: %q is in\n%s", what, w, text)
		}
	}
}
