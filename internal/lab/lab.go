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

	"trireme/internal/mysqld"
)

const (
	startLimit = time.Minute // of one server
	portFloor  = 22000       // free ports are looked for from here
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

// Lab is what all systems share: programs, the template of a data directory, ports. Its methods may be called at the same time.
type Lab struct {
	MySQL   string // path of mysqld
	Version string // of it
	Binary  string
	Dir     string

	mu       sync.Mutex
	template string // empty until it is made
	mariadb  string // likewise, MariaDB's
	nextPort int
}

// New finds the programs.
func New(ctx context.Context, o Options) (*Lab, error) {
	bin, err := mysqld.Find(ctx, o.MySQL)
	if err != nil {
		return nil, err
	}
	l := &Lab{MySQL: bin.Path, Version: bin.Version.String(), Binary: o.Binary, Dir: o.Dir, nextPort: portFloor + os.Getpid()*portStep%(portCeil-portFloor)}
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

// templateDir is an initialised data directory with the account User, made at the first call.
func (l *Lab) templateDir(ctx context.Context) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.template != "" {
		return l.template, nil
	}
	dir := filepath.Join(l.Dir, "template")
	if err := os.RemoveAll(dir); err != nil { // of a run that was interrupted
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	data, initFile := filepath.Join(dir, "data"), filepath.Join(dir, "init.sql")
	err := os.WriteFile(initFile, []byte(strings.Join([]string{
		"ALTER USER root@localhost IDENTIFIED BY '" + Password + "';",
		"CREATE USER " + User + "@'%' IDENTIFIED BY '" + Password + "';",
		"GRANT ALL ON *.* TO " + User + "@'%' WITH GRANT OPTION;",
		"CREATE DATABASE " + Database + ";", ""}, "\n")), 0o600)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	args := append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + data, "--init-file=" + initFile,
		"--innodb-redo-log-capacity=512M"}, asRoot()...)
	if out, err := exec.CommandContext(ctx, l.MySQL, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mysqld --initialize: %w: %s", err, lastLines(string(out), 5))
	}
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil {
		return "", err
	}
	l.template = data
	return data, nil
}

// Clean removes what the lab has made for all systems.
func (l *Lab) Clean() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.template = ""
	return os.RemoveAll(filepath.Join(l.Dir, "template"))
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
