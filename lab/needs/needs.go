// Package needs gives tests what this machine may not have: a MySQL server, network namespaces. Without it a test is
// skipped, unless the environment requires it, as make test and make soak do: what is skipped would be taken for
// tested. It is for tests. Those in packages mysqld and wan, which this one imports, repeat the rule.
package needs

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"trireme/internal/mysql/mysqld"
	"trireme/lab/wan"
)

// MySQL finds mysqld as mysqld.Find does. Without one the test is skipped; where TRIREME_REQUIRE_MYSQL is set, and with
// one that cannot be used though it was asked for by name, it fails. In make test's phase of unit tests it leaves the
// test to the phase of servers.
func MySQL(t testing.TB) mysqld.Binary {
	t.Helper()
	later(t, servers)
	bin, err := mysqld.Find(t.Context(), "")
	have(t, err, mysqld.ErrNotFound, "TRIREME_REQUIRE_MYSQL")
	return bin
}

// Tool returns the path of another of MySQL's programs: in the folder of the mysqld that MySQL finds, else on PATH. A
// missing tool is treated as MySQL treats a missing mysqld.
func Tool(t testing.TB, name string) string {
	t.Helper()
	sibling := filepath.Join(filepath.Dir(MySQL(t).Path), name)
	if _, err := os.Stat(sibling); err == nil {
		return sibling
	}
	path, err := exec.LookPath(name)
	have(t, err, exec.ErrNotFound, "TRIREME_REQUIRE_MYSQL")
	return path
}

// Program finds a program that scripts/deps.sh installs.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Cannot(t, err)
	}
	return path
}

// Cannot ends a test that this machine cannot run: it fails in a soak, and where servers are required and root has what
// it takes to run all; else it is skipped.
func Cannot(t testing.TB, why any) {
	t.Helper()
	if os.Getenv("TRIREME_SOAK") != "" || os.Getenv("TRIREME_REQUIRE_MYSQL") != "" && os.Geteuid() == 0 {
		t.Fatal("this machine cannot run the test: ", why)
	}
	t.Skip(why)
}

// Netns ends a test that could not have emulated hosts: with wan.ErrUnavailable it is skipped, unless
// TRIREME_REQUIRE_NETNS is set; with any other error it fails.
func Netns(t testing.TB, err error) {
	t.Helper()
	have(t, err, wan.ErrUnavailable, "TRIREME_REQUIRE_NETNS")
}

// LAN makes a switch for the test, as Netns allows.
func LAN(t testing.TB) *wan.LAN {
	t.Helper()
	l, err := wan.NewLAN()
	Netns(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Host makes a host of the test that has nothing but this LAN.
func Host(t testing.TB, l *wan.LAN, name string, addrs ...netip.Prefix) *wan.Host {
	t.Helper()
	h, err := l.NewHost(name, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.CloseHost(h) })
	return h
}

// Long marks a test that takes minutes and finds little that others do not: make test leaves it out, make test-long and
// the soak run it.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skip("a long test: make test-long runs it")
	}
}

// IsLong reports whether tests run in their long form: more cases of the same.
func IsLong() bool { return os.Getenv("TRIREME_LONG") != "" || os.Getenv("TRIREME_SOAK") != "" }

// have ends a test with an error, which is fatal unless it is of this lack and the variable is not set.
func have(t testing.TB, err, lack error, required string) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, lack) && os.Getenv(required) == "":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}
