package adopt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/ops/setup"
)

// FuzzJournal reads any journal of an adoption, without doing what it says: it is refused by its name, or has a data
// directory to give back and says how the server is started.
func FuzzJournal(f *testing.F) {
	f.Add(
		[]byte(`{"datadir":"/d","command":["mysqld"],"gtid_executed":"","locked":["a@b"],"moves":[{"from":"/d","to":"/n/mysql/data"}]}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"moves":[{"from":"","to":"../x"}]}`))
	dir := f.TempDir()
	path := filepath.Join(dir, setup.BeforeAdopt, journalName)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := readJournal(dir)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("it does not say which file: %v", err)
			}
			return
		}
		if last := j.Moves[len(j.Moves)-1]; !filepath.IsAbs(last.To) || j.again() == "" {
			t.Fatalf("%+v", j)
		}
	})
}
