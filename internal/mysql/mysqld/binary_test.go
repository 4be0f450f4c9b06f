package mysqld

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeMysqld is a program that says what --version of some server says.
func fakeMysqld(t *testing.T, says string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mysqld")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInspect(t *testing.T) {
	for _, c := range []struct {
		says string
		want error
		v    string
	}{
		{"/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", nil, "9.7.4"},
		{"/opt/mysql-8.4.1/bin/mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))", nil, "8.0.36"},
		{"/usr/sbin/mysqld  Ver 8.0.26 for Linux on x86_64 (MySQL Community Server - GPL)", nil, "8.0.26"},
		{"/usr/sbin/mysqld  Ver 8.0.25 for Linux on x86_64 (MySQL Community Server - GPL)", ErrTooOld, ""},
		{"mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))", ErrTooOld, ""},
		{"mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)", ErrMariaDB, ""},
		{"mariadbd from 11.4.2-MariaDB, client 15.2", ErrMariaDB, ""},
		{"hello", ErrNotMySQL, ""},
		{"", ErrNotMySQL, ""},
	} {
		b, err := Inspect(context.Background(), fakeMysqld(t, c.says))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.says, err)
		}
		if err == nil && b.Version.String() != c.v {
			t.Errorf("%s: version %s", c.says, b.Version)
		}
	}
}

// A program that is killed before it has said what it is may well be a mysqld.
func TestInspectKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mysqld")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Inspect(context.Background(), path)
	if err == nil || errors.Is(err, ErrNotMySQL) || !strings.Contains(err.Error(), "killed") {
		t.Fatal(err)
	}
}

func TestFindOrder(t *testing.T) {
	empty := t.TempDir()
	good := "mysqld  Ver 9.7.1 for Linux on x86_64 (MySQL Community Server - GPL)"
	mariadb := fakeMysqld(t, "mysqld  Ver 10.11.6-MariaDB for Linux")
	onPath := fakeMysqld(t, good)
	named := fakeMysqld(t, good)
	ctx := context.Background()
	t.Setenv("TRIREME_CACHE", empty)
	t.Setenv("MYSQLD", "")

	t.Setenv("PATH", filepath.Dir(mariadb)+":"+filepath.Dir(onPath))
	if b, err := Find(ctx, ""); err != nil || b.Path != onPath {
		t.Errorf("MariaDB first on PATH: %v %v", b, err)
	}
	if b, err := Find(ctx, named); err != nil || b.Path != named {
		t.Errorf("hint: %v %v", b, err)
	}
	if _, err := Find(ctx, mariadb); !errors.Is(err, ErrMariaDB) {
		t.Errorf("MariaDB by name is refused, not replaced: %v", err)
	}
	t.Setenv("MYSQLD", named)
	if b, err := Find(ctx, ""); err != nil || b.Path != named {
		t.Errorf("MYSQLD: %v %v", b, err)
	}
	t.Setenv("MYSQLD", filepath.Join(empty, "mysqld"))
	if _, err := Find(ctx, ""); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "scripts/mysql.sh") {
		t.Errorf("MYSQLD names nothing: %v", err)
	}
	if _, err := os.Stat("/usr/sbin/mysqld"); err == nil {
		return // what follows needs a machine without one
	}
	t.Setenv("MYSQLD", "")
	t.Setenv("PATH", filepath.Dir(mariadb))
	if _, err := Find(ctx, ""); !errors.Is(err, ErrNotFound) || !errors.Is(err, ErrMariaDB) {
		t.Errorf("only MariaDB: %v", err)
	}
	cached := filepath.Join(empty, "mysql-"+TestedSeries, "bin", "mysqld")
	if err := os.MkdirAll(filepath.Dir(cached), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(named, cached); err != nil {
		if err := copyFile(named, filepath.Dir(cached), filepath.Base(cached), 0o755, -1, -1); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := Find(ctx, ""); err != nil || b.Path != cached {
		t.Errorf("cache: %v %v", b, err)
	}
}

func TestVersion(t *testing.T) {
	v := Version{Major: 8, Minor: 4, Patch: 2}
	for _, c := range []struct {
		major, minor, patch int
		want                bool
	}{{8, 4, 2, true}, {8, 4, 3, false}, {8, 0, 99, true}, {9, 0, 0, false}, {5, 7, 44, true}} {
		if v.AtLeast(c.major, c.minor, c.patch) != c.want {
			t.Errorf("%v at least %d.%d.%d: not %v", v, c.major, c.minor, c.patch, c.want)
		}
	}
	if v.Tested() || !(Version{Major: 9, Minor: 7}).Tested() {
		t.Error("tested series")
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	l, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Fatal(err)
	}
	l.Unlock()
	l, err = Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}
