package rivals

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"trireme/internal/base/datacache"
	"trireme/internal/mysql/mysqld"
)

const (
	startLimit = time.Minute // of one server
	// User and password of every rival's servers, with every privilege; its database is Database.
	User     = "bench"
	Password = "bench-Pass-1"
	Database = "sbtest"
)

// Options of a lab.
type Options struct {
	MySQL  string // mysqld to use; empty: found as `trireme node` finds it
	Binary string // trireme's own program; empty: found (FindTrireme), once a node is started
	Dir    string // scratch, absolute; must exist
}

// Lab is what all systems share: programs and a directory. Its methods may be called at the same time.
type Lab struct {
	MySQL   string // path of mysqld
	Version string // of it
	Binary  string
	Dir     string

	server mysqld.Binary // MySQL
}

// New finds the programs.
func New(ctx context.Context, o Options) (*Lab, error) {
	bin, err := mysqld.Find(ctx, o.MySQL)
	if err != nil {
		return nil, err
	}
	return &Lab{server: bin, MySQL: bin.Path, Version: bin.Version.String(), Binary: o.Binary, Dir: o.Dir}, nil
}

// mysqlTemplate is a data directory with the account User and the database, of the cache.
func (l *Lab) mysqlTemplate(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	options := append([]string{"--no-defaults", "--initialize-insecure", "--innodb-redo-log-capacity=512M"}, asRoot()...)
	text := strings.Join([]string{
		"ALTER USER root@localhost IDENTIFIED BY '" + Password + "';",
		"CREATE USER " + User + "@'%' IDENTIFIED BY '" + Password + "';",
		"GRANT ALL ON *.* TO " + User + "@'%' WITH GRANT OPTION;",
		"CREATE DATABASE " + Database + ";", ""}, "\n")
	recipe := fmt.Sprintf("lab, %s: %q then %q", l.server.Version.Raw, options, text)
	dir, err := datacache.Dir(ctx, mysqld.CacheDir(), l.server.Path, recipe, func(ctx context.Context, dir string) error {
		sqlFile, data := filepath.Join(dir, "init.sql"), filepath.Join(dir, "data")
		if err := os.WriteFile(sqlFile, []byte(text), 0o600); err != nil {
			return err
		}
		args := append(options, "--datadir="+data, "--init-file="+sqlFile)
		if out, err := exec.CommandContext(ctx, l.MySQL, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("mysqld --initialize: %w: %s", err, lastLines(string(out), 5))
		}
		return os.Remove(filepath.Join(data, "auto.cnf"))
	})
	return filepath.Join(dir, "data"), err
}

func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func lastLines(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}
