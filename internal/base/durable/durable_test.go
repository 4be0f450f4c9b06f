package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWriteFile: the file has its mode whether it was there or not, and nothing else is left in the folder.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "another"} {
		if err := WriteFile(path, []byte(want), 0o640); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if have, _ := os.ReadFile(path); string(have) != want || st.Mode() != 0o640 {
			t.Fatalf("%q, mode %v", have, st.Mode())
		}
	}
	if err := WriteFile(filepath.Join(dir, "folder"), nil, 0o600); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	if names, _ := os.ReadDir(dir); len(names) != 2 {
		t.Fatalf("left in the folder: %v", names)
	}
}
