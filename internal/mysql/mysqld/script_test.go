package mysqld

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/mysql.sh and Find must agree on what is usable and where it is kept.
func TestScript(t *testing.T) {
	script, err := filepath.Abs("../../../scripts/mysql.sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	cache := t.TempDir()
	fetched := filepath.Join(cache, "mysql-"+TestedSeries)
	if err := os.MkdirAll(fetched, 0o755); err != nil {
		t.Fatal(err)
	}
	// With VERSION there the script takes the cache for filled, and fetches nothing.
	if err := os.WriteFile(filepath.Join(fetched, "VERSION"), []byte("9.7.4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mariadb := fakeMysqld(t, "mysqld  Ver 10.11.6-MariaDB for debian-linux-gnu")
	old := fakeMysqld(t, "mysqld  Ver 8.0.25 for Linux on x86_64 (MySQL Community Server - GPL)")
	good := fakeMysqld(t, "mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)")
	run := func(mysqld, path string) (out, said string, err error) {
		cmd := exec.Command("bash", script)
		cmd.Env = append(os.Environ(), "TRIREME_CACHE="+cache, "MYSQLD="+mysqld, "PATH="+path+":"+os.Getenv("PATH"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		b, err := cmd.Output()
		return strings.TrimSpace(string(b)), stderr.String(), err
	}
	for _, bad := range []string{mariadb, old, filepath.Join(cache, "none")} {
		if out, said, err := run(bad, "/"); err == nil || out != "" || !strings.Contains(said, "MYSQLD=/path/to/mysqld") {
			t.Errorf("MYSQLD=%s: %q %q %v", bad, out, said, err)
		}
	}
	out, said, err := run(good, "/")
	if err != nil || !strings.Contains(said, "tested with "+TestedSeries) {
		t.Errorf("MYSQLD=%s: %q %q %v", good, out, said, err)
	}
	if b, err := Inspect(t.Context(), filepath.Join(out, "mysqld")); err != nil || b.Version.String() != "8.4.3" {
		t.Errorf("the wrapper of %s: %v %v", good, b, err)
	}
	if out, said, err := run("", filepath.Dir(mariadb)); err != nil || out != filepath.Join(fetched, "bin") ||
		!strings.Contains(said, "is MariaDB") {
		t.Errorf("MariaDB on PATH: %q %q %v", out, said, err)
	}
	if out, _, err := run("", filepath.Dir(good)); err != nil ||
		!strings.HasPrefix(out, filepath.Join(cache, "mysql-host-")) {
		t.Errorf("MySQL on PATH: %q %v", out, err)
	}
}
