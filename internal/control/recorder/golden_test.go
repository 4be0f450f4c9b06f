package recorder

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trireme/internal/api"
)

// newest is the directory of testdata/golden that this version writes. Each holds a file of samples as some version
// wrote it, and what it says: every later version reads it (docs/format/README.md).
const newest = "testdata/golden/v2"

var update = flag.Bool("update", false, "write samples of a form that is not there yet; those that are there are kept")

// goldenSamples writes 20 s of a busy node.
func goldenSamples(t *testing.T, dir string) {
	t.Helper()
	s := openStore(t, dir, 64<<20)
	first, second := frameAt(began), frameAt(began.Add(10*time.Second))
	first.Texts = map[string]string{"d1": "UPDATE t SET a = ?"}
	mustAppend(t, s, first)
	mustAppend(t, s, second)
	s.Close()
}

// said is what samples told of a minute, as it was written down.
func said(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v api.PeriodView
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(path, err)
	}
	return text(t, v)
}

func text(t *testing.T, v api.PeriodView) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// TestGolden: what earlier versions wrote says what it said, and this one writes the newest of it. What is compared is
// what a file says, since DEFLATE's bytes may differ from one version of Go to the next.
func TestGolden(t *testing.T) {
	says := func(dir string) string {
		t.Helper()
		return text(t, period(t, &Store{dir: dir}, began, began.Add(time.Minute)))
	}
	if _, err := os.Stat(newest); *update && errors.Is(err, fs.ErrNotExist) {
		goldenSamples(t, newest)
		if err := os.WriteFile(filepath.Join(newest, "says.json"), []byte(says(newest)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirs, err := filepath.Glob("testdata/golden/v*")
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		if got, want := says(dir), said(t, filepath.Join(dir, "says.json")); got != want {
			t.Errorf("%s says\n%s and said\n%s", dir, got, want)
		}
	}
	dir := t.TempDir()
	goldenSamples(t, dir)
	if got, want := says(dir), said(t, filepath.Join(newest, "says.json")); got != want {
		t.Errorf("what is written now says\n%s and not\n%s: add a directory (docs/format/README.md)", got, want)
	}
}

// TestLaterKeys: a frame of a later version, with keys that this one does not know, is read for what it does know.
func TestLaterKeys(t *testing.T) {
	known, err := json.Marshal(frameAt(began))
	if err != nil {
		t.Fatal(err)
	}
	later := append([]byte(`{"threads":{"s":10,"list":[1,2]},"zone":"a","weight":null,`), known[1:]...)
	b, err := pack(later, began, false)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name(1)), append([]byte(magic), b...), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir, 64<<20)
	mustAppend(t, s, frameAt(began.Add(10*time.Second)))
	if sum := total(period(t, s, began, began.Add(time.Minute))); sum.Transactions != 200 || sum.Seconds != 20 {
		t.Errorf("%+v", sum)
	}
}
