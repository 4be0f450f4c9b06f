package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/demo"
	"trireme/internal/mysqld"
)

const (
	startLimit = time.Minute // of one server
	portFloor  = 28000       // free ports are looked for from here, above those that package demo gives out
	portCeil   = 32000
	portStep   = 100 // between where two processes begin, which otherwise take ports from each other between check and use

	// User and password of every rival's servers, with every privilege; its database is Database.
	User     = "bench"
	Password = "bench-Pass-1"
	Database = "sbtest"
)

// Options of a lab.
type Options struct {
	MySQL  string // mysqld to use; empty: found as `trireme node` finds it
	Binary string // trireme's own program; empty: this one
	Dir    string // scratch, absolute; must exist
}

// Lab is what all systems share: programs, templates of data directories, ports. Its methods may be called at the same time.
type Lab struct {
	MySQL   string // path of mysqld
	Version string // of it
	Binary  string
	Dir     string

	mu       sync.Mutex
	made     map[string]bool // kinds of servers whose template there is
	trireme  *demo.Template  // nil: not made yet
	nextPort int
}

// New finds the programs.
func New(ctx context.Context, o Options) (*Lab, error) {
	bin, err := mysqld.Find(ctx, o.MySQL)
	if err != nil {
		return nil, err
	}
	l := &Lab{MySQL: bin.Path, Version: bin.Version.String(), Binary: o.Binary, Dir: o.Dir, made: map[string]bool{}, nextPort: portFloor + os.Getpid()*portStep%(portCeil-portFloor)}
	if l.Binary == "" {
		if l.Binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// takePorts finds n consecutive free ports of the loopback address that were not given out before.
func (l *Lab) takePorts(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for base := l.nextPort; base+n < portCeil; base++ {
		busy := -1
		for p := base; p < base+n; p++ {
			c, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
			if err != nil {
				busy = p
				break
			}
			c.Close()
		}
		if busy < 0 {
			l.nextPort = base + n
			return base
		}
		base = busy
	}
	l.nextPort = portFloor // all were given out: begin again, the first ones are free by now
	return portFloor
}

// templateDir is a data directory with the account User and the database, made at the first call for each kind of server: initialise makes it, and
// has the statements in the file run, which are the given ones and those of the account and the database.
func (l *Lab) templateDir(ctx context.Context, kind string, statements []string, initialise func(ctx context.Context, data, sqlFile string) error) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir := filepath.Join(l.templates(), kind)
	data, sqlFile := filepath.Join(dir, "data"), filepath.Join(dir, "init.sql")
	if l.made[kind] {
		return data, nil
	}
	if err := os.RemoveAll(dir); err != nil { // of a run that was interrupted
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	statements = append(statements,
		"CREATE USER "+User+"@'%' IDENTIFIED BY '"+Password+"';",
		"GRANT ALL ON *.* TO "+User+"@'%' WITH GRANT OPTION;",
		"CREATE DATABASE "+Database+";", "")
	if err := os.WriteFile(sqlFile, []byte(strings.Join(statements, "\n")), 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	if err := initialise(ctx, data, sqlFile); err != nil {
		return "", err
	}
	l.made[kind] = true
	return data, nil
}

// mysqlTemplate is that of MySQL.
func (l *Lab) mysqlTemplate(ctx context.Context) (string, error) {
	return l.templateDir(ctx, "mysql", []string{"ALTER USER root@localhost IDENTIFIED BY '" + Password + "';"}, func(ctx context.Context, data, sqlFile string) error {
		args := append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + data, "--init-file=" + sqlFile,
			"--innodb-redo-log-capacity=512M"}, asRoot()...)
		if out, err := exec.CommandContext(ctx, l.MySQL, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("mysqld --initialize: %w: %s", err, lastLines(string(out), 5))
		}
		return os.Remove(filepath.Join(data, "auto.cnf"))
	})
}

// triremeTemplate is what Trireme's nodes begin with, as the servers of its rivals begin with theirs.
func (l *Lab) triremeTemplate(ctx context.Context) (*demo.Template, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trireme != nil {
		return l.trireme, nil
	}
	dir := filepath.Join(l.templates(), "trireme")
	if err := os.RemoveAll(dir); err != nil { // of a run that was interrupted
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	made, err := demo.NewTemplate(ctx, l.MySQL, dir)
	if err == nil {
		l.trireme = made
	}
	return made, err
}

func (l *Lab) templates() string { return filepath.Join(l.Dir, "templates") }

// Clean removes what the lab has made for all systems.
func (l *Lab) Clean() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.made)
	l.trireme = nil
	return os.RemoveAll(l.templates())
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

// complaints are the lines of a program's output that tell of errors, and its last ones if none does: what to do about it may fill a page.
func complaints(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		if strings.Contains(strings.ToLower(line), "error") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	if len(out) == 0 {
		return lastLines(s, 5)
	}
	return strings.Join(out[:min(len(out), 8)], " | ")
}

// poll until f is satisfied, or the limit, with f's last error.
func poll(ctx context.Context, limit time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
