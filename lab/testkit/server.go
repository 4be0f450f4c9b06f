package testkit

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/datacache"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
)

const (
	startLimit     = 90 * time.Second // of a server, on a machine with much else to do
	statementLimit = 60 * time.Second
	scriptLimit    = 2 * time.Minute

	binlogName = "binlog"
)

// Server is a plain mysqld of a test, which knows nothing of Trireme: root has no password on its socket. It does not
// sync what it writes.
type Server struct {
	Dir  string // with the data directory in mysql/data, as a node has it
	Port int    // on 127.0.0.1
	DB   *sql.DB

	t       testing.TB
	program mysqld.Binary
	args    []string
	process *demo.Process
}

// StartServer starts a server with more options. The end of the test kills it.
func StartServer(t testing.TB, options ...string) *Server {
	t.Helper()
	s := NewServer(t, options...)
	s.Start()
	return s
}

// NewServer makes a server's directory, a copy of one of the cache, and does not start it.
func NewServer(t testing.TB, options ...string) *Server {
	t.Helper()
	s := &Server{t: t, program: needs.MySQL(t)}
	dir, err := os.MkdirTemp("", "trireme-mysql-") // a test's own would be too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	s.Dir = dir
	if s.Port, err = demo.FreePortBase(1); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(s.DataDir(), os.DirFS(plainData(t, s.program))); err != nil {
		t.Fatal(err)
	}
	s.args = append(asRoot("--no-defaults", "--datadir="+s.DataDir(), "--socket="+s.Socket(),
		"--port="+strconv.Itoa(s.Port), "--bind-address=127.0.0.1", "--mysqlx=OFF", "--server-id=1", "--log-bin="+binlogName,
		"--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-error="+s.errorLog(),
		"--pid-file="+filepath.Join(dir, "pid"), "--secure-file-priv=NULL", "--persisted-globals-load=OFF",
		"--max-allowed-packet=1G", "--innodb-redo-log-capacity=64M", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"),
		options...)
	return s
}

// plainData is a data directory that mysqld has just made.
func plainData(t testing.TB, program mysqld.Binary) string {
	t.Helper()
	args := asRoot("--no-defaults", "--initialize-insecure", "--innodb-redo-log-capacity=64M")
	dir, err := datacache.Dir(t.Context(), mysqld.CacheDir(), program.Path,
		fmt.Sprintf("testkit, %s: %q", program.Version.Raw, args), func(ctx context.Context, dir string) error {
			data := filepath.Join(dir, "data")
			if out, err := exec.CommandContext(ctx, program.Path, append(args, "--datadir="+data)...).CombinedOutput(); err != nil {
				return fmt.Errorf("mysqld --initialize: %w: %s", err, out)
			}
			return os.Remove(filepath.Join(data, "auto.cnf")) // each copy has a server_uuid of its own
		})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

// asRoot allows root to run mysqld.
func asRoot(args ...string) []string {
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// Paths of a server.
func (s *Server) DataDir() string  { return filepath.Join(s.Dir, "mysql", "data") }
func (s *Server) Socket() string   { return filepath.Join(s.Dir, "s") }
func (s *Server) errorLog() string { return filepath.Join(s.Dir, "error.log") }

// Addr is where it listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Start starts it, again after Kill, and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	var err error
	s.process, err = demo.StartProcess(demo.Command{Path: s.program.Path, Args: s.args,
		LogFile: filepath.Join(s.Dir, "output.log")})
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = "root", "unix", s.Socket()
	cfg.InterpolateParams, cfg.MaxAllowedPacket = true, 1<<28
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.DB = sql.OpenDB(connector)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		err := s.DB.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-s.process.Done():
			log, _ := os.ReadFile(s.errorLog())
			s.t.Fatalf("mysqld ended: %v\n%s", s.process.Err(), log)
		case <-ctx.Done():
			s.t.Fatalf("mysqld does not answer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// StartAs begins another life with a server_uuid: without the binary log of the one before it.
func (s *Server) StartAs(uuid string) {
	s.t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.DataDir(), binlogName+".*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range logs {
		if err := os.Remove(f); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.DataDir(), "auto.cnf"), []byte("[auto]\nserver-uuid="+uuid+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.Start()
}

// Kill sends SIGKILL and waits for the end. A server that does not run stays as it is.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	if s.DB != nil {
		s.DB.Close()
	}
	s.process.Kill()
	s.process = nil
}

// Exec runs a statement as root.
func (s *Server) Exec(query string, args ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	if _, err := s.DB.ExecContext(ctx, query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// Row reads the one row of a query.
func (s *Server) Row(query string, into ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	if err := s.DB.QueryRowContext(ctx, query).Scan(into...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// Script has the client mysql run a text and returns what it prints: rows, tab-separated.
func (s *Server) Script(text string) string {
	s.t.Helper()
	return Tool(s.t, text, "mysql", "--no-defaults", "--user=root", "--socket="+s.Socket(), "--batch",
		"--skip-column-names", "--binary-mode", "--comments", "--local-infile=1")
}

// Tool runs one of MySQL's programs and returns its output.
func Tool(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), scriptLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, needs.Tool(t, name), args...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%.2000s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}
