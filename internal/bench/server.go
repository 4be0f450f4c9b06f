package bench

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/demo"
	"trireme/internal/lab"
	"trireme/internal/verify"
)

// sharedOptions are given to every server of every system, Trireme's included: sizes for a small machine with room for the
// whole data set, and a redo log that does not force checkpoints within a run.
func sharedOptions() map[string]string {
	return map[string]string{
		"innodb_buffer_pool_size":   "512M",
		"innodb_redo_log_capacity":  "512M",
		"innodb_flush_method":       "O_DIRECT",
		"innodb_io_capacity":        "2000",
		"max_connections":           "400",
		"performance_schema":        "OFF",
		"table_open_cache":          "400",
		"innodb_log_writer_threads": "OFF", // the vendor's advice for few cores
	}
}

// rivalOptions are the settings of full durability, and those without which a rival could not be a rival.
func rivalOptions() map[string]string {
	o := sharedOptions()
	maps.Copy(o, map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"sync_binlog":                    "1",
		"gtid_mode":                      "ON",
		"enforce_gtid_consistency":       "ON",
		"log_bin":                        "binlog",
		"relay_log":                      "relay",
		"relay_log_recovery":             "ON",
		"replica_preserve_commit_order":  "ON",
		"skip_replica_start":             "ON",
	})
	return o
}

const (
	startLimit = time.Minute
	rivalPass  = "bench-Pass-1"
)

// server is one plain mysqld of a rival system.
type server struct {
	dir     string
	port    int
	command demo.Command
	proc    *demo.Process
	db      *sql.DB // as bench, which may do everything, over TCP
}

// template makes an initialised data directory once, with a root account that logs in over TCP; servers copy it.
func makeTemplate(ctx context.Context, mysqld, dir string) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	initFile := filepath.Join(dir, "init.sql")
	err := os.WriteFile(initFile, []byte(strings.Join([]string{
		"ALTER USER root@localhost IDENTIFIED BY '" + rivalPass + "';",
		"CREATE USER bench@'%' IDENTIFIED BY '" + rivalPass + "';",
		"GRANT ALL ON *.* TO bench@'%' WITH GRANT OPTION;",
		"CREATE DATABASE " + lab.Database + ";", ""}, "\n")), 0o600)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	args := append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + data, "--init-file=" + initFile,
		"--innodb-redo-log-capacity=512M"}, asRoot()...)
	if out, err := exec.CommandContext(ctx, mysqld, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mysqld --initialize: %w: %s", err, tail(string(out), 5))
	}
	return os.Remove(filepath.Join(data, "auto.cnf"))
}

func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// startServer copies the template and starts a mysqld on it.
func startServer(ctx context.Context, mysqld, template, dir string, port, serverID int, options map[string]string) (*server, error) {
	if err := copyTree(filepath.Join(template, "data"), filepath.Join(dir, "data")); err != nil {
		return nil, fmt.Errorf("copying the template: %w", err)
	}
	args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(dir, "s"), "--pid-file=" + filepath.Join(dir, "pid"), "--log-error=" + filepath.Join(dir, "error.log"),
		"--mysqlx=OFF", "--secure-file-priv=NULL", "--server-id=" + strconv.Itoa(serverID)}, asRoot()...)
	for _, k := range slices.Sorted(maps.Keys(options)) {
		args = append(args, "--"+k+"="+options[k])
	}
	s := &server{dir: dir, port: port, command: demo.Command{Path: mysqld, Args: args, LogFile: filepath.Join(dir, "output.log")}}
	var err error
	if s.proc, err = demo.StartProcess(s.command); err != nil {
		return nil, err
	}
	login := verify.Login{Addr: verify.Fixed("127.0.0.1:" + strconv.Itoa(port)), User: "bench", Password: rivalPass, StatementTimeout: 10 * time.Minute}
	if s.db, err = login.Open(""); err != nil {
		s.stop()
		return nil, err
	}
	if err := s.waitUp(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *server) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := s.db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.proc.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "error.log"))
			return fmt.Errorf("mysqld on port %d ended at its start: %s", s.port, tail(string(log), 4))
		case <-ctx.Done():
			return fmt.Errorf("mysqld on port %d does not answer: %w", s.port, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) exec(ctx context.Context, statements ...string) error {
	for _, st := range statements {
		if _, err := s.db.ExecContext(ctx, st); err != nil {
			return fmt.Errorf("port %d: %.60s: %w", s.port, st, err)
		}
	}
	return nil
}

// stop kills the server: its data is thrown away afterwards.
func (s *server) stop() {
	if s.db != nil {
		s.db.Close()
	}
	s.proc.Kill()
}

// copyTree copies plain files and directories.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dest := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(dest, 0o750)
		case !d.Type().IsRegular():
			return nil // sockets
		}
		return copyFile(path, dest)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	if _, err := out.ReadFrom(in); err != nil { // copy_file_range where the file system can
		out.Close()
		return err
	}
	return out.Close()
}
