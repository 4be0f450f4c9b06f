package rivals

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"trireme/internal/mysqld"
)

// mariaDB is MariaDB's server with its Galera provider.
type mariaDB struct {
	server   string // mariadbd
	install  string // mariadb-install-db
	provider string // libgalera_smm.so
}

const mariaAdvice = "run scripts/mariadb.sh, which fetches it without root, or set MARIADBD to a mariadbd with libgalera_smm.so"

// findMariaDB looks where $MARIADBD says, else in the folder of scripts/mariadb.sh, else on PATH.
func findMariaDB() (mariaDB, error) {
	if named := os.Getenv("MARIADBD"); named != "" {
		return mariaDBOf(named)
	}
	m, err := mariaDBOf(filepath.Join(mysqld.CacheDir(), "mariadb", "bin", "mariadbd"))
	if errors.Is(err, fs.ErrNotExist) {
		m, err = mariaDBOf("mariadbd")
	}
	return m, err
}

// mariaDBOf completes a mariadbd with the files that belong to it: from its folder, or from where distributions put
// them.
func mariaDBOf(program string) (m mariaDB, err error) {
	if m.server, err = exec.LookPath(program); err != nil {
		return m, fmt.Errorf("%w: no MariaDB: %w; %s", ErrNotHere, err, mariaAdvice)
	}
	dir := filepath.Dir(m.server)
	if m.install, err = exec.LookPath(filepath.Join(dir, "mariadb-install-db")); err != nil {
		if m.install, err = exec.LookPath("mariadb-install-db"); err != nil {
			return m, fmt.Errorf("%w: MariaDB without its installer: %w; %s", ErrNotHere, err, mariaAdvice)
		}
	}
	for _, lib := range []string{filepath.Join(dir, "..", "root", "usr", "lib"), filepath.Join(dir, "..", "lib"), "/usr/lib", "/usr/lib64"} {
		for _, name := range []string{"galera", "galera-4", ""} {
			m.provider = filepath.Join(lib, name, "libgalera_smm.so")
			if _, err := os.Stat(m.provider); err == nil {
				return m, nil
			}
		}
	}
	return m, fmt.Errorf("%w: %s has no Galera provider (libgalera_smm.so); %s", ErrNotHere, m.server, mariaAdvice)
}

// mariaTemplate is the template of a data directory of MariaDB.
func mariaTemplate(ctx context.Context, m mariaDB) (string, error) {
	options := append([]string{"--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		"--innodb-log-file-size=10M"}, asRoot()...) // a log that is quickly copied; the first start makes the large one
	return templateDir(ctx, m.server, "", options, []string{"FLUSH PRIVILEGES;"}, func(ctx context.Context, options []string, data, sqlFile string) error {
		cmd := exec.CommandContext(ctx, m.install, append(options, "--datadir="+data, "--extra-file="+sqlFile)...)
		cmd.WaitDelay = time.Second // a shell script, whose server would keep the output open
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", m.install, err, complaints(string(out)))
		}
		return nil
	})
}
