package needs

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"trireme/internal/mysql/mysqld"
)

// SuitesDir is a folder with MySQL's own test scripts and the programs that run them.
type SuitesDir string

// Scripts is where the scripts are, and all that they include.
func (d SuitesDir) Scripts() string { return filepath.Join(string(d), "mysql-test") }

// Program is one of mysqltest and mysql_client_test.
func (d SuitesDir) Program(name string) string { return filepath.Join(string(d), "bin", name) }

// Suites is what scripts/mysql-suites.sh has fetched, or $MYSQL_SUITES.
func Suites(t testing.TB) SuitesDir {
	t.Helper()
	fetched := filepath.Join(mysqld.CacheDir(), "mysql-suites-"+mysqld.TestedSeries)
	d := SuitesDir(cmp.Or(os.Getenv("MYSQL_SUITES"), fetched))
	for _, f := range []string{d.Scripts(), d.Program("mysqltest"), d.Program("mysql_client_test")} {
		if _, err := os.Stat(f); err != nil {
			Cannot(t, "MySQL's test suites are not here (scripts/mysql-suites.sh fetches them): "+err.Error())
		}
	}
	return d
}
