package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
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
	cache := os.Getenv("TRIREME_CACHE")
	if cache == "" {
		if home, err := os.UserHomeDir(); err == nil {
			cache = filepath.Join(home, ".cache", "trireme")
		}
	}
	m, err := mariaDBOf(filepath.Join(cache, "mariadb", "bin", "mariadbd"))
	if errors.Is(err, fs.ErrNotExist) {
		m, err = mariaDBOf("mariadbd")
	}
	return m, err
}

// mariaDBOf completes a mariadbd with what belongs to it: beside it, or where distributions put it.
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

// mariaTemplate is an initialised data directory of MariaDB with the account User, made at the first call.
func (l *Lab) mariaTemplate(ctx context.Context, m mariaDB) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mariadb != "" {
		return l.mariadb, nil
	}
	dir := filepath.Join(l.Dir, "template-mariadb")
	if err := os.RemoveAll(dir); err != nil { // of a run that was interrupted
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	data, extra := filepath.Join(dir, "data"), filepath.Join(dir, "extra.sql")
	err := os.WriteFile(extra, []byte(strings.Join([]string{"FLUSH PRIVILEGES;",
		"CREATE USER " + User + "@'%' IDENTIFIED BY '" + Password + "';",
		"GRANT ALL ON *.* TO " + User + "@'%' WITH GRANT OPTION;",
		"CREATE DATABASE " + Database + ";", ""}, "\n")), 0o600)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	args := append([]string{"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		"--extra-file=" + extra, "--innodb-log-file-size=10M"}, asRoot()...) // a log that is quickly copied; the first start makes the large one
	cmd := exec.CommandContext(ctx, m.install, args...)
	cmd.WaitDelay = time.Second // a shell script, whose server would keep the output open
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", m.install, err, lastLines(string(out), 5))
	}
	l.mariadb = data
	return data, nil
}
