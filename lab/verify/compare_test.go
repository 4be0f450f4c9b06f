package verify_test

import (
	"context"
	"database/sql"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"trireme/lab/testkit"
	"trireme/lab/verify"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// TestCompareSees changes one thing after the other on a server, and each time what Compare reads is different from
// what it was: a node on which that is otherwise does not pass for equal. Rows of the workload that hold something else
// are found too.
func TestCompareSees(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	s := testkit.StartServer(t, "--event-scheduler=OFF", "--log-bin-trust-function-creators=ON")
	look := func(f func(context.Context, *sql.DB) (map[string]string, error)) map[string]string {
		t.Helper()
		got, err := f(t.Context(), s.DB)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	s.Exec("CREATE DATABASE d")
	s.Exec("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT, w VARCHAR(20))")
	s.Exec("INSERT INTO d.t (v) VALUES (1)")
	s.Exec("CREATE USER u IDENTIFIED BY 'u'")
	s.Exec("CREATE ROLE r")
	for _, c := range []struct {
		change string
		seen   func(context.Context, *sql.DB) (map[string]string, error)
		where  string // an item that is another one now
	}{
		{"UPDATE d.t SET w = 'x'", verify.Checksums, "`d`.`t`"},
		{"ALTER TABLE d.t ADD COLUMN x INT", verify.Definitions, "table `d`.`t`"},
		{"ALTER TABLE d.t ADD INDEX (v)", verify.Definitions, "table `d`.`t`"},
		{"ALTER TABLE d.t ALTER INDEX v INVISIBLE", verify.Definitions, "table `d`.`t`"},
		{"ALTER TABLE d.t ADD CHECK (v > 0)", verify.Definitions, "table `d`.`t`"},
		{"ALTER TABLE d.t COMMENT 'c'", verify.Definitions, "table `d`.`t`"},
		{"ALTER DATABASE d DEFAULT CHARACTER SET latin1", verify.Definitions, "schema d"},
		{"CREATE VIEW d.w AS SELECT v FROM d.t", verify.Definitions, "view d.w"},
		{"ALTER VIEW d.w AS SELECT id FROM d.t", verify.Definitions, "view d.w"},
		{"CREATE PROCEDURE d.p(IN a INT) SELECT a", verify.Definitions, "procedure d.p"},
		{"DROP PROCEDURE d.p", verify.Definitions, "procedure d.p"},
		{"CREATE PROCEDURE d.p(OUT b INT) SELECT 2", verify.Definitions, "procedure d.p"},
		{"CREATE FUNCTION d.f() RETURNS INT DETERMINISTIC RETURN 1", verify.Definitions, "function d.f"},
		{"CREATE TRIGGER d.g BEFORE INSERT ON d.t FOR EACH ROW SET NEW.v = 2", verify.Definitions, "trigger d.g"},
		{"CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM d.t", verify.Definitions, "event d.e"},
		{"ALTER EVENT d.e DO SELECT 1", verify.Definitions, "event d.e"},
		{"ALTER USER u IDENTIFIED BY 'v'", verify.Accounts, "account u@%"},
		{"ALTER USER u REQUIRE SSL", verify.Accounts, "account u@%"},
		{"ALTER USER u WITH MAX_USER_CONNECTIONS 3", verify.Accounts, "account u@%"},
		{"ALTER USER u ATTRIBUTE '{\"a\": 1}'", verify.Accounts, "account u@%"},
		{"ALTER USER u ACCOUNT LOCK", verify.Accounts, "account u@%"},
		{"GRANT PROCESS ON *.* TO u", verify.Accounts, "grants 'u'@'%'"},                  // for the whole server
		{"GRANT BACKUP_ADMIN ON *.* TO u", verify.Accounts, "grants 'u'@'%'"},             // dynamic
		{"GRANT SELECT ON d.* TO u WITH GRANT OPTION", verify.Accounts, "grants 'u'@'%'"}, // of a schema
		{"GRANT INSERT ON d.t TO u", verify.Accounts, "grants 'u'@'%'"},                   // of a table
		{"GRANT UPDATE (v) ON d.t TO u", verify.Accounts, "grants 'u'@'%'"},               // of a column
		{"GRANT EXECUTE ON PROCEDURE d.p TO u", verify.Accounts, "grants 'u'@'%'"},        // of a routine
		{"GRANT r TO u", verify.Accounts, "grants 'u'@'%'"},
		{"SET DEFAULT ROLE r TO u", verify.Accounts, "account u@%"},
		{"DROP USER u", verify.Accounts, "grants 'u'@'%'"},
	} {
		before := look(c.seen)
		s.Exec(c.change)
		after := look(c.seen)
		if before[c.where] == after[c.where] ||
			len(verify.JudgeEqual("x", map[string]map[string]string{"n1": before, "n2": after})) == 0 {
			t.Errorf("%s is not seen in %s; there are %q", c.change, c.where, slices.Sorted(maps.Keys(after)))
		}
	}
	before := look(verify.Definitions)
	s.Exec("ALTER TABLE d.t AUTO_INCREMENT = 1000") // what a refused INSERT does, on the leader only
	if !maps.Equal(before, look(verify.Definitions)) {
		t.Error("the next number of a table is taken for its definition")
	}

	w, err := verify.New(verify.Config{Login: verify.Login{Addr: verify.Fixed(s.Addr()), User: "w", Password: "w"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Exec("CREATE USER w IDENTIFIED BY 'w'")
	s.Exec("GRANT ALL ON *.* TO w")
	if err := w.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.Start(t.Context())
	for !w.Meter().AckedSince(began) {
		if time.Since(began) > time.Minute {
			t.Fatal("nothing was written")
		}
		runtime.Gosched()
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	nodes := []verify.Endpoint{{Name: "n1", DB: s.DB}}
	if p, err := w.CheckRows(t.Context(), nodes); err != nil || len(p) > 0 {
		t.Fatal(p, err)
	}
	for table := range 4 { // the same everywhere: no node differs from another
		s.Exec("UPDATE trireme_verify.w" + string(rune('0'+table)) + " SET payload = REVERSE(payload) LIMIT 1")
	}
	p, err := w.CheckRows(t.Context(), nodes)
	if err != nil || len(p) == 0 || p[0].Kind != verify.Garbled {
		t.Errorf("rows that hold something else: %v %v", p, err)
	}
}

// TestPrivilegesAreLookedFor: the account workload knows of each role and privilege that it was acknowledged, and one
// that all servers lack is found: they are equal.
func TestPrivilegesAreLookedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	s := testkit.StartServer(t)
	s.Exec("CREATE USER w IDENTIFIED BY 'w'")
	s.Exec("GRANT ALL ON *.* TO w WITH GRANT OPTION")
	set, err := verify.NewSet(verify.SetConfig{Login: verify.Login{Addr: verify.Fixed(s.Addr()), User: "w", Password: "w"},
		Workloads: []string{"acl"}})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if err := set.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	set.Start(t.Context())
	for end := time.Now().Add(time.Minute); set.Counts()["acl"].Acked < 100; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%+v", set.Counts())
		}
	}
	if err := set.Stop(); err != nil {
		t.Fatal(err)
	}
	check := func() []verify.Problem {
		t.Helper()
		r, err := set.Check(t.Context(), []verify.Endpoint{{Name: "n1", DB: s.DB}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Problems
	}
	if p := check(); len(p) > 0 || set.Counts()["acl"].Failed > 0 {
		t.Fatalf("%v, %+v", p, set.Counts())
	}
	one := func(query string) string {
		t.Helper()
		var text string
		if err := s.DB.QueryRow(query).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	kept := one("SELECT user FROM mysql.user WHERE process_priv = 'Y' AND user REGEXP '^s[0-9a-f]+_v' LIMIT 1")
	role := one("SELECT from_user FROM mysql.role_edges WHERE to_user = '" + kept + "'")
	for _, stmt := range []string{
		"REVOKE PROCESS ON *.* FROM " + kept, "REVOKE BACKUP_ADMIN ON *.* FROM " + kept,
		"REVOKE UPDATE (v) ON trireme_verify.acl_columns FROM " + kept, "ALTER USER " + kept + " DEFAULT ROLE NONE",
		"REVOKE " + role + " FROM " + kept,
	} {
		before := len(check())
		s.Exec(stmt)
		if stmt[:13] == "REVOKE UPDATE" { // one column is left
			s.Exec("REVOKE SELECT (id) ON trireme_verify.acl_columns FROM " + kept)
		}
		if p := check(); len(p) != before+1 || p[len(p)-1].Kind != verify.Lost {
			t.Errorf("%s: %v", stmt, p)
		}
	}
}
