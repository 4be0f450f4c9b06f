package router

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/needs"
)

// TestMySQL is a real server behind the router: whatever the protocol has to offer goes through, because nothing is looked at.
func TestMySQL(t *testing.T) {
	addr, root := startMySQL(t)
	socket := filepath.Join(t.TempDir(), "rw")
	r := start(t, Config{HoldTimeout: 200 * time.Millisecond, RWSocket: socket})
	target := Target{Name: "n1", Addr: addr, Epoch: "1"}

	t.Run("no leader", func(t *testing.T) {
		db := open(t, r.RWAddr(), root, "")
		var e *mysql.MySQLError
		if err := db.PingContext(t.Context()); !errors.As(err, &e) || e.Number != 1290 || !strings.Contains(e.Message, "no leader accepts writes") {
			t.Fatalf("error %v", err)
		}
	})
	r.SetView(View{RW: &target})

	for name, params := range map[string]string{"plain": "", "TLS": "&tls=skip-verify", "compressed": "&compress=true"} {
		t.Run(name, func(t *testing.T) {
			db := open(t, r.RWAddr(), root, params)
			db.SetMaxOpenConns(1)
			var cipher, ignored string
			if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&ignored, &cipher); err != nil {
				t.Fatal(err)
			}
			if (cipher != "") != (name == "TLS") {
				t.Errorf("cipher %q", cipher)
			}
			throughAndBack(t, db)
		})
	}
	t.Run("unix socket", func(t *testing.T) {
		for range 2 { // with the account in the server's cache, and without
			db := socketDB(t, "root", root, socket)
			var cipher, ignored string
			if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&ignored, &cipher); err != nil || cipher == "" {
				t.Fatalf("cipher %q, %v", cipher, err)
			}
			if _, err := db.ExecContext(t.Context(), "FLUSH PRIVILEGES"); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("LOAD DATA LOCAL", func(t *testing.T) { loadData(t, open(t, r.RWAddr(), root, "")) })
	t.Run("cut", func(t *testing.T) { cutStatement(t, r, open(t, r.RWAddr(), root, "")) })
}

// throughAndBack sends a prepared statement with a parameter beyond one packet of 16 MiB, and several results in one answer.
func throughAndBack(t *testing.T, db *sql.DB) {
	stmt, err := db.PrepareContext(t.Context(), "SELECT SHA2(?, 256), ? + 1, ?")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	big := bytes.Repeat([]byte("0123456789abcdef"), 17<<20/16)
	var sum string
	var n int
	var back []byte
	if err := stmt.QueryRowContext(t.Context(), big, 41, big).Scan(&sum, &n, &back); err != nil {
		t.Fatal(err)
	}
	var want string
	if err := db.QueryRowContext(t.Context(), "SELECT SHA2(REPEAT('0123456789abcdef', ?), 256)", len(big)/16).Scan(&want); err != nil {
		t.Fatal(err)
	}
	if sum != want || n != 42 || !bytes.Equal(back, big) {
		t.Errorf("sum %s, want %s; n %d; %d bytes back of %d", sum, want, n, len(back), len(big))
	}
	rows, err := db.QueryContext(t.Context(), "SELECT 1; SELECT 2")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	sets := 1
	for rows.NextResultSet() {
		sets++
	}
	if sets != 2 || rows.Err() != nil {
		t.Errorf("%d result sets, %v", sets, rows.Err())
	}
}

func loadData(t *testing.T, db *sql.DB) {
	const lines = 50_000
	mysql.RegisterReaderHandler("numbers", func() io.Reader {
		var b bytes.Buffer
		for i := range lines {
			fmt.Fprintf(&b, "%d\n", i)
		}
		return &b
	})
	defer mysql.DeregisterReaderHandler("numbers")
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.numbers (i INT PRIMARY KEY)", "LOAD DATA LOCAL INFILE 'Reader::numbers' INTO TABLE d.numbers"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	var sum int
	if err := db.QueryRowContext(t.Context(), "SELECT SUM(i) FROM d.numbers").Scan(&sum); err != nil || sum != lines*(lines-1)/2 {
		t.Errorf("sum %d, %v", sum, err)
	}
}

// cutStatement takes the role from the server while a statement runs: the client must hear of it at once.
func cutStatement(t *testing.T, r *Router, db *sql.DB) {
	ended := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(t.Context(), "DO SLEEP(30)")
		ended <- err
	}()
	eventually(t, "the statement is on its way", func() bool { return r.Stats().RW.Open == 1 })
	r.SetView(View{})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the statement succeeded")
		}
	case <-time.After(limit):
		t.Error("the client was not told")
	}
}

func open(t *testing.T, addr, password, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root:%s@tcp(%s)/?multiStatements=true&maxAllowedPacket=67108864&allowFallbackToPlaintext=false%s", password, addr, params))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// startMySQL runs a fresh server, with more options, and gives its address and the password of root@localhost.
func startMySQL(t *testing.T, options ...string) (addr, password string) {
	t.Helper()
	bin := needs.MySQL(t)
	dir, password := t.TempDir(), "router-Pass-1"
	initFile := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(initFile, []byte("ALTER USER root@localhost IDENTIFIED BY '"+password+"';\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--log-error=" + filepath.Join(dir, "error.log"), "--innodb-redo-log-capacity=64M"}
	if os.Getuid() == 0 {
		base = append(base, "--user=root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, bin.Path, append(base, "--initialize-insecure", "--init-file="+initFile)...).CombinedOutput(); err != nil {
		t.Fatalf("mysqld --initialize: %v: %s", err, out)
	}
	port := freePort(t)
	args := append(base, "--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"),
		"--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-log-bin", "--local-infile=ON", "--max-allowed-packet=64M", "--performance-schema=OFF")
	runMySQL(t, exec.Command(bin.Path, append(args, options...)...))
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	db := open(t, addr, password, "")
	eventuallyWithin(t, time.Minute, "mysqld answers", func() bool { return db.PingContext(ctx) == nil })
	return addr, password
}

// runMySQL starts cmd, and kills it when the test ends or this process dies. The parent-death signal belongs to the thread that
// forks, which is kept until then.
func runMySQL(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
