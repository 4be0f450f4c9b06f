package dump

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/gtid"
	"trireme/internal/needs"
)

// testServer is a real mysqld of a test.
type testServer struct {
	t      *testing.T
	dir    string
	id     uint32
	uuid   gtid.UUID
	port   int
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
	DB     *sql.DB
}

const (
	testUser     = "repl"
	testPassword = "r-Secret1"
	testLogName  = "binlog"
)

var template struct {
	once sync.Once
	dir  string
	err  error
}

// templateDir initialises one data directory per test binary; servers are copies of it.
func templateDir(t *testing.T, mysqld string) string {
	t.Helper()
	template.once.Do(func() {
		template.dir, template.err = os.MkdirTemp("", "dump-template")
		if template.err != nil {
			return
		}
		cmd := exec.Command(mysqld, "--no-defaults", "--user=root", "--initialize-insecure",
			"--datadir="+filepath.Join(template.dir, "data"), "--innodb-redo-log-capacity=64M")
		if out, err := cmd.CombinedOutput(); err != nil {
			template.err = fmt.Errorf("%w: %s", err, out)
			return
		}
		template.err = os.Remove(filepath.Join(template.dir, "data", "auto.cnf"))
	})
	if template.err != nil {
		t.Fatal(template.err)
	}
	return filepath.Join(template.dir, "data")
}

func TestMain(m *testing.M) {
	code := m.Run()
	if template.dir != "" {
		os.RemoveAll(template.dir)
	}
	os.Exit(code)
}

// newServer makes the directories of a server and does not start it.
func newServer(t *testing.T, id uint32, args ...string) *testServer {
	t.Helper()
	mysqld := needs.MySQL(t).Path
	s := &testServer{t: t, dir: t.TempDir(), id: id, args: args}
	if out, err := exec.Command("cp", "-a", templateDir(t, mysqld), filepath.Join(s.dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("copy template: %v: %s", err, out)
	}
	t.Cleanup(s.kill)
	return s
}

func (s *testServer) socket() string { return filepath.Join(s.dir, "s") }

// start begins a new incarnation with this server_uuid: binary log deleted, auto.cnf written (S5).
func (s *testServer) start(uuid gtid.UUID) {
	s.t.Helper()
	s.uuid = uuid
	data := filepath.Join(s.dir, "data")
	logs, err := filepath.Glob(filepath.Join(data, testLogName+".*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range logs {
		if err := os.Remove(f); err != nil {
			s.t.Fatal(err)
		}
	}
	auto := "[auto]\nserver-uuid=" + uuid.String() + "\n"
	if err := os.WriteFile(filepath.Join(data, "auto.cnf"), []byte(auto), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.port = freePort(s.t)
	args := append([]string{"--no-defaults", "--user=root", "--datadir=" + data, "--socket=" + s.socket(),
		"--port=" + strconv.Itoa(s.port), "--bind-address=127.0.0.1", "--mysqlx=OFF", "--server-id=" + strconv.Itoa(int(s.id)),
		"--log-bin=" + testLogName, "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-replica-updates=OFF",
		"--replicate-same-server-id=ON", "--relay-log-recovery=ON", "--skip-replica-start=ON", "--sync-binlog=0",
		"--innodb-flush-log-at-trx-commit=2", "--innodb-redo-log-capacity=64M", "--innodb-buffer-pool-size=128M",
		"--log-error=" + filepath.Join(s.dir, "error.log"), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--secure-file-priv=NULL", "--persisted-globals-load=OFF", "--max-allowed-packet=1G", "--max-connections=300",
		"--event-scheduler=OFF", "--performance-schema=ON"}, s.args...)
	s.cmd = exec.Command(needs.MySQL(s.t).Path, args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.exited)
	s.connect()
}

func (s *testServer) connect() {
	s.t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = "root", "unix", s.socket()
	cfg.InterpolateParams, cfg.MaxAllowedPacket = true, 1<<28
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.DB = sql.OpenDB(connector)
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := s.DB.PingContext(limit(s.t, 5*time.Second))
		if err == nil {
			return
		}
		select {
		case <-s.exited:
			log, _ := os.ReadFile(filepath.Join(s.dir, "error.log"))
			s.t.Fatalf("mysqld exited: %s", log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("mysqld does not answer: %v", err)
		}
	}
}

// kill is SIGKILL to the server's process and a wait for its end.
func (s *testServer) kill() {
	if s.cmd == nil {
		return
	}
	if s.DB != nil {
		s.DB.Close()
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

func (s *testServer) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.DB.ExecContext(limit(s.t, 30*time.Second), query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

func (s *testServer) row(query string, into ...any) {
	s.t.Helper()
	if err := s.DB.QueryRowContext(limit(s.t, 30*time.Second), query).Scan(into...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

func (s *testServer) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// limit is a context that ends with the test, or after d.
func limit(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls cond until it holds.
func eventually(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// sourceArgs are the settings of a leader: semi-sync that waits for ever for one replica.
var sourceArgs = []string{"--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-enabled=1",
	"--rpl-semi-sync-source-timeout=4294967295", "--rpl-semi-sync-source-wait-for-replica-count=1",
	"--rpl-semi-sync-source-wait-no-replica=1", "--rpl-semi-sync-source-wait-point=AFTER_SYNC"}

func mysqlCode(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}
