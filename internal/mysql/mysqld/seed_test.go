package mysqld

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSeed copies a running server's data. Whatever ends it early, afterwards there is no data directory, and no other
// remains.
func TestSeed(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	cfg.Clone = Account{"trireme_clone", "cl'0ne"}
	ca, foreign := newTestCA(t), newTestCA(t)
	cfg.TLS = ca.server(t)
	donor := started(t, cfg)
	admin := session(t, donor, cfg.Admin)
	mustExec(t, admin, "SET sql_log_bin = 0", "SET GLOBAL super_read_only = OFF",
		"CREATE USER trireme_clone@'%' IDENTIFIED BY 'cl\\'0ne' REQUIRE SSL",
		"GRANT BACKUP_ADMIN ON *.* TO trireme_clone@'%'", "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)",
		"INSERT INTO shop.t VALUES (7)", "SET GLOBAL gtid_purged = '+aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-9'",
		"SET GLOBAL super_read_only = ON")

	to := initialized(t)
	to.Clone = cfg.Clone
	old := filepath.Join(to.DataDir(), "old")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	from := Seeding{Host: "127.0.0.1", Port: cfg.Port}

	// A donor whose certificate another CA has signed gets no password, and the old data stays for it.
	impostor := from
	impostor.CA, impostor.KeepOld = foreign.pem, true
	if err := Seed(testContext(t), to, impostor); err == nil ||
		!strings.Contains(err.Error(), "certificate verify failed") {
		t.Errorf("a donor with a foreign certificate: %v", err)
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("the old data went for a donor with a foreign certificate: %v", err)
	}
	from.CA = ca.pem

	wrong := to
	wrong.Extra = map[string]string{"innodb-undo-directory": "/elsewhere"}
	if err := Seed(testContext(t), wrong, from); !errors.Is(err, ErrConfig) ||
		!strings.Contains(err.Error(), "innodb-undo-directory") {
		t.Errorf("a copy that its server would not find whole: %v", err)
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("the old data went although nothing began: %v", err)
	}
	kept, cancelled := context.WithCancel(testContext(t))
	defer cancelled()
	copying := false
	slow := Seeding{Host: "127.0.0.1", Port: cfg.Port, KeepOld: true, BytesPerSecond: 8 << 20, // the copy takes some looks
		Progress: func(SeedProgress) { copying = true; cancelled() },
		Check:    func(context.Context) error { return errors.New("the copy was faster than the first look at it") }}
	if err := Seed(kept, to, slow); err == nil || !copying {
		t.Errorf("cancelled in the middle of the copy (%t): %v", copying, err)
	}
	if _, err := os.Stat(old); err != nil || !to.Initialized() {
		t.Errorf("the old data went before the copy was complete: %v", err)
	}
	refused := Seeding{Host: "127.0.0.1", Port: cfg.Port, KeepOld: true,
		Check: func(context.Context) error { return errors.New("not this copy") }}
	if err := Seed(testContext(t), to, refused); err == nil {
		t.Error("a copy that was refused counts")
	}
	if _, err := os.Stat(old); err != nil || !to.Initialized() {
		t.Errorf("the old data went for a copy that was refused: %v", err)
	}
	// As a caller does whose donor is gone: CLONE itself would wait for minutes.
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		defer cancel() // just as the copy begins
		for ctx.Err() == nil {
			if _, err := os.Stat(old); err != nil {
				return
			}
			<-time.After(time.Millisecond)
		}
	}()
	if err := Seed(ctx, to, from); err == nil {
		t.Error("no error although it was cancelled")
	}
	if to.Initialized() {
		t.Error("cancelled, and there is a data directory")
	}
	left, err := filepath.Glob(filepath.Join(to.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range left {
		if base := filepath.Base(n); !slices.Contains([]string{"run", "log", "binlog", "relay", startedName}, base) {
			t.Errorf("cancelled, and %s is left", base)
		}
	}
	asked, checked := false, false
	from = Seeding{Host: "127.0.0.1", Port: cfg.Port, CA: ca.pem, Confirm: func(context.Context) error {
		asked = checked
		if to.Initialized() {
			return errors.New("the copy counts before it was confirmed")
		}
		return nil
	}, Check: func(context.Context) error { checked = true; return nil }}
	var at SeedProgress
	from.Progress = func(p SeedProgress) { at = p }
	if err := Seed(testContext(t), to, from); err != nil || !asked {
		t.Fatalf("confirmation asked for: %t, %v", asked, err)
	}
	if at.Done < 1<<20 || at.Done != at.Total {
		t.Errorf("the whole copy is %+v", at)
	}
	to.Port = freePort(t)
	s, err := New(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t), uuidN(2)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Kill() }()
	set, err := s.Admin().GTIDExecuted(testContext(t))
	if err != nil || set != "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-9" {
		t.Errorf("gtid_executed %q, %v", set, err)
	}
	rows, err := session(t, s, to.Admin).query(testContext(t), "SELECT id FROM shop.t")
	if err != nil || len(rows) != 1 || rows[0]["id"] != "7" {
		t.Errorf("%v, %v", rows, err)
	}
	if _, err := os.Stat(filepath.Join(to.Dir, "seed")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("seed/ is left: %v", err)
	}
}

// A donor that refuses the account may have an anonymous one before it, which the error of CLONE does not say.
func TestExplainClone(t *testing.T) {
	refused :=
		errors.New("Error 3862 (HY000): Clone Donor Error: Connect failed: 1045 : Access denied for user 'trireme_clone'@'10.0.0.7' (using password: YES).")
	if err := explainClone(refused); !errors.Is(err, refused) || !strings.Contains(err.Error(), "anonymous account") {
		t.Error(err)
	}
	other :=
		errors.New("Error 3862 (HY000): Clone Donor Error: Connect failed: 2003 : Can't connect to MySQL server on '10.0.0.7:3306' (111).")
	if err := explainClone(other); err != other {
		t.Error(err)
	}
}
