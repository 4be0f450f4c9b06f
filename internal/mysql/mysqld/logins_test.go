package mysqld

import (
	"bytes"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestEachStartSetsPasswords: the accounts of this host have the passwords that the server is started with, whatever
// its data says, and the binary log has none of it. A server that demands other passwords each time takes the same ones
// again.
func TestEachStartSetsPasswords(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	cfg := initialized(t)
	cfg.Extra["password_history"], cfg.Extra["password_reuse_interval"] = "5", "30"
	login := func(a Account, network, addr string) error {
		c := mysql.NewConfig()
		c.User, c.Passwd, c.Net, c.Addr, c.Timeout = a.User, a.Password, network, addr, loginLimit
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return err
		}
		db := sql.OpenDB(connector)
		defer func() { _ = db.Close() }()
		return db.PingContext(ctx)
	}
	refused := func(a Account, network, addr string) {
		t.Helper()
		err := login(a, network, addr)
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != erAccessDenied {
			t.Errorf("%s by %s: %v", a.User, network, err)
		}
	}
	old := cfg
	for n := range 3 {
		if n == 2 {
			cfg.Admin.Password, cfg.Repl.Password = `an'other\"`, "yet another"
		}
		s := must[*Server](t)(New(cfg))
		if err := s.Start(ctx, uuidN(n+1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Admin().AdmitClients(ctx); err != nil {
			t.Fatal(err)
		}
		if err := login(cfg.Repl, "tcp", cfg.ListenAddr()); err != nil {
			t.Error(err)
		}
		refused(cfg.Admin, "tcp", cfg.ListenAddr()) // it is for the socket
		if log := must[[]byte](t)(os.ReadFile(cfg.ErrorLog())); bytes.Contains(log, []byte("password history policy")) {
			t.Errorf("start %d: mysqld did not take a password: %s", n, log)
		}
		if n == 2 {
			refused(old.Admin, "unix", cfg.Socket())
			refused(old.Repl, "unix", cfg.Socket())
			refused(old.Repl, "tcp", cfg.ListenAddr())
		}
		if got := must[[]string](t)(s.Admin().globals(ctx, "gtid_executed")); got[0] != "" {
			t.Errorf("it has executed %s", got[0])
		}
		if _, err := os.Stat(cfg.startFile()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file with the passwords is left: %v", err)
		}
		if err := s.StopPolitely(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
