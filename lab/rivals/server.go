package rivals

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// SharedOptions are given to every server of every system, Trireme's included: sizes for a small machine with room for
// the whole data set, and a redo log that does not force checkpoints within a run.
func SharedOptions() map[string]string {
	return map[string]string{
		"innodb_buffer_pool_size":   "512M",
		"innodb_redo_log_capacity":  "512M",
		"innodb_flush_method":       "O_DIRECT",
		"innodb_io_capacity":        "2000",
		"max_connections":           "600",
		"performance_schema":        "OFF",
		"table_open_cache":          "600",
		"skip_name_resolve":         "ON",  // as Trireme sets it: logins do not wait for a name server
		"innodb_log_writer_threads": "OFF", // the vendor's advice for few cores
	}
}

// RivalOptions are the settings of full durability, and those without which a rival could not be a rival.
func RivalOptions() map[string]string {
	o := SharedOptions()
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

// server is one plain mysqld of a rival.
type server struct {
	host    *host
	port    int
	command demo.Command
	proc    *demo.Process
	db      *sql.DB // as User, over TCP
}

const (
	mysqlPort      = 3306
	statementLimit = 10 * time.Minute // of the connections of Running.DB: checks of all data are long
)

// startServer copies the template and starts a mysqld on it.
func (h *host) startServer(ctx context.Context, serverID int, options map[string]string) (*server, error) {
	template, err := h.site.lab.mysqlTemplate(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.copyData(template); err != nil {
		return nil, err
	}
	return h.startOn(ctx, serverID, options)
}

// startOn starts a mysqld on the data directory that is there.
func (h *host) startOn(ctx context.Context, serverID int, options map[string]string) (*server, error) {
	s := &server{host: h, port: h.port(mysqlPort)}
	args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(h.dir, "data"), "--port=" + strconv.Itoa(s.port),
		"--bind-address=" + h.addr, "--socket=" + filepath.Join(h.dir, "s"), "--pid-file=" + filepath.Join(h.dir, "pid"),
		"--log-error=" + filepath.Join(h.dir, "error.log"), "--mysqlx=OFF", "--secure-file-priv=NULL", "--report-host=" +
			h.addr, "--server-id=" + strconv.Itoa(serverID)},
		asRoot()...)
	for _, k := range slices.Sorted(maps.Keys(options)) {
		args = append(args, "--"+k+"="+options[k])
	}
	s.command = demo.Command{Path: h.site.lab.MySQL, Args: args, LogFile: filepath.Join(h.dir, "output.log")}
	if err := s.launch(); err != nil {
		return nil, err
	}
	if err := s.waitUp(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// copyData makes the server's data directory of a template.
func (h *host) copyData(template string) error {
	if err := os.CopyFS(filepath.Join(h.dir, "data"), os.DirFS(template)); err != nil {
		return fmt.Errorf("copying the template: %w", err)
	}
	return nil
}

// launch starts the process for the first time and opens the pool; the server is not up yet.
func (s *server) launch() (err error) {
	if d := s.host.disk; d != nil { // a copy is in memory only, which the server's own recovery knows nothing of
		if err := d.Sync(); err != nil {
			return err
		}
	}
	if s.proc, err = s.host.start(s.command); err != nil {
		return err
	}
	login := verify.Login{Addr: verify.Fixed(s.addr()), User: User, Password: Password, StatementTimeout: statementLimit}
	if s.db, err = login.Open(""); err != nil {
		s.stop()
	}
	return err
}

func (s *server) addr() string { return net.JoinHostPort(s.host.addr, strconv.Itoa(s.port)) }

func (s *server) target() Target {
	return Target{nil, s.host.name, s.host.addr, s.port, User, Password}
}

func (s *server) parts() HostParts {
	return HostParts{Name: s.host.name, MySQL: s.proc.PID, Budget: s.host.budget}
}

// hostsOf lists the hosts of servers, of which the first so many take writes.
func hostsOf(servers []*server, leaders int) []HostParts {
	var out []HostParts
	for i, s := range servers {
		p := s.parts()
		p.Leader = i < leaders
		out = append(out, p)
	}
	return out
}

func (s *server) waitUp(ctx context.Context) error {
	return poll.Within(ctx, startLimit, "mysqld on "+s.addr(), func(ctx context.Context) error {
		select {
		case <-s.proc.Done():
			return fmt.Errorf("it ended at its start: %s", s.lastLog())
		default:
			return s.db.PingContext(ctx)
		}
	})
}

// lastLog is the end of the error log.
func (s *server) lastLog() string {
	log, _ := os.ReadFile(filepath.Join(s.host.dir, "error.log"))
	return lastLines(string(log), 4)
}

// setOption changes a setting of the command line, for the next start. It must have been given at the first one.
func (s *server) setOption(name, value string) {
	for i, a := range s.command.Args {
		if strings.HasPrefix(a, "--"+name+"=") {
			s.command.Args[i] = "--" + name + "=" + value
		}
	}
}

// addOption adds a setting to the command line, for the next start.
func (s *server) addOption(name, value string) {
	s.command.Args = append(s.command.Args, "--"+name+"="+value)
}

// restart kills the server's process, unless it has ended by itself, and starts it again on its data with the same
// command line.
func (s *server) restart(ctx context.Context) error {
	s.proc.Kill()
	p, err := s.host.start(s.command)
	if err != nil {
		return err
	}
	s.proc = p
	return s.waitUp(ctx)
}

func (s *server) exec(ctx context.Context, statements ...string) error {
	for _, st := range statements {
		if _, err := s.db.ExecContext(ctx, st); err != nil {
			return fmt.Errorf("%s: %.60s: %w", s.addr(), st, err)
		}
	}
	return nil
}

// status is the value of a status variable.
func (s *server) status(ctx context.Context, name string) (value string, err error) {
	err = s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &value)
	return value, err
}

// stop kills the server: its data is thrown away afterwards.
func (s *server) stop() {
	if s.db != nil {
		s.db.Close()
	}
	s.proc.Kill()
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
