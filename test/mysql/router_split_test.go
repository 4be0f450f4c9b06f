package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/access/router"
	"trireme/internal/api"
)

// oneServer stands for a leader and a follower that never lags: the protocol is what is tested.
type oneServer struct{}

func (oneServer) Log() string                                      { return "main/0" }
func (oneServer) Answered(context.Context, string) (uint64, error) { return 1, nil }
func (oneServer) Everywhere(context.Context, uint64) error         { return nil }
func (oneServer) Live(context.Context) (api.ReadIndexView, error) {
	return api.ReadIndexView{Index: 1, Live: []string{"n2"}}, nil
}
func (oneServer) Barrier(context.Context) (uint64, error)       { return 1, nil }
func (oneServer) Applied(context.Context, string, uint64) error { return nil }

// routerSplit is a real server behind the splitting port, as leader and as follower: everything goes through, and what
// a session has is had on both sides.
func routerSplit(t *testing.T, addr, root string) {
	r := start(t, router.Config{HoldTimeout: limit, DialTimeout: limit, SplitListen: "127.0.0.1:0", TLS: testTLS(t),
		Reads: oneServer{}})
	leader, follower := router.Target{Name: "n1", Addr: addr, Epoch: "1"},
		router.Target{Name: "n2", Addr: addr, Epoch: "1"}
	r.SetView(router.View{RW: &leader, RO: []router.Target{follower}})
	for name, params := range map[string]string{"plain": "", "TLS": "&tls=skip-verify", "compressed": "&compress=true"} {
		t.Run(name, func(t *testing.T) { throughAndBack(t, open(t, r.SplitAddr(), root, params)) })
	}
	loadData(t, open(t, r.SplitAddr(), root, ""))

	c, err := open(t, r.SplitAddr(), root, "").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run(t, c, "CREATE TABLE d.s (id INT PRIMARY KEY, v INT)", "USE d", "SET SESSION sql_mode = 'ANSI_QUOTES'",
		"INSERT INTO s VALUES (1, 10), (2, 20)")
	read, err := c.PrepareContext(t.Context(), "SELECT v + ? FROM s WHERE id = ?")
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	write, err := c.PrepareContext(t.Context(), "UPDATE s SET v = v + ? WHERE id = ?")
	if err != nil {
		t.Fatal(err)
	}
	check := func(want int) {
		t.Helper()
		var v int
		if err := read.QueryRowContext(t.Context(), 1, 2).Scan(&v); err != nil || v != want {
			t.Fatalf("read %d, want %d: %v", v, want, err)
		}
	}
	reads := func() uint64 { return r.Stats().Split.FollowerReads }
	for i := range 3 {
		before := reads()
		check(21 + 2*i)
		run(t, c, "BEGIN") // the same statement, at the leader
		if _, err := write.ExecContext(t.Context(), 1, 2); err != nil {
			t.Fatal(err)
		}
		check(22 + 2*i)
		run(t, c, "COMMIT")
		if _, err := write.ExecContext(t.Context(), 1, 2); err != nil {
			t.Fatal(err)
		}
		check(23 + 2*i)
		if got := one(t, c, `SELECT CONCAT(DATABASE(), ' ', COUNT(*)) FROM "s"`); got != "d 2" {
			t.Errorf("on the follower: %q", got)
		}
		if n := reads() - before; n < 2 { // the last one may not be counted yet
			t.Errorf("round %d: %d reads of the follower", i, n)
		}
		// Both servers are lost, and all of it goes on.
		leader.Epoch, follower.Epoch = leader.Epoch+"1", follower.Epoch+"1"
		r.SetView(router.View{RW: &leader, RO: []router.Target{follower}})
	}
	if err := write.Close(); err != nil {
		t.Error(err)
	}
	if got := one(t, c, "SELECT @@trireme_token"); got != "main/0:1" {
		t.Errorf("token %q", got)
	}
	run(t, c, "START TRANSACTION READ ONLY")
	var e *mysql.MySQLError
	if _, err := c.ExecContext(t.Context(), "INSERT INTO s VALUES (3, 30)"); !errors.As(err, &e) || e.Number != 1792 {
		t.Errorf("a write in a read-only transaction: %v", err)
	}
	run(t, c, "COMMIT")
	if _, err := c.ExecContext(t.Context(), "SET @@trireme_consistency = 'BEFORE', sql_mode = ''"); err == nil ||
		!strings.Contains(err.Error(), "1193") {
		t.Errorf("a level that is not the router's to set: %v", err)
	}
}
