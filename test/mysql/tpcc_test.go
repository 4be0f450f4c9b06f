package mysql_test

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/lab/child"
	"trireme/lab/testkit"
	"trireme/lab/tpcc"
)

func TestMain(m *testing.M) {
	child.Main(tpcc.Generator)
	os.Exit(m.Run())
}

// openTPCC gives connections as root to the benchmark's database.
func openTPCC(t *testing.T, s *testkit.Server) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@unix("+s.Socket()+")/"+tpcc.DefaultDatabase)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func number(t *testing.T, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// TestTPCC loads two small warehouses, works on them, and sees that every condition can fail.
func TestTPCC(t *testing.T) {
	s := testkit.StartServer(t, "--skip-name-resolve")
	target := tpcc.Target{Addr: s.Addr(), User: "bench", Password: "bench-Pass-1"}
	s.Exec("CREATE USER bench@'%' IDENTIFIED BY 'bench-Pass-1'")
	s.Exec("GRANT ALL ON *.* TO bench@'%'")
	s.Exec("CREATE DATABASE " + tpcc.DefaultDatabase)
	db := openTPCC(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cfg := tpcc.Config{Targets: []tpcc.Target{target}, Warehouses: 2, Terminals: 4, Items: 500, CustomersPerDistrict: 60,
		Seed: 7}

	last, total := 0, -1
	if err := tpcc.Load(ctx, cfg, func(d, n int) { last, total = d, n }); err != nil {
		t.Fatal(err)
	}
	if last != total {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	t.Run("population", func(t *testing.T) { population(t, db) })
	t.Run("loaded twice", func(t *testing.T) {
		if err := tpcc.Load(ctx, cfg, nil); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("error %v", err)
		}
	})
	checkClean(ctx, t, cfg, db)
	t.Run("run", func(t *testing.T) { runTerminals(ctx, t, cfg, db) })
	checkClean(ctx, t, cfg, db)
	// Nothing that breaks a condition is committed: the checks are to see it all the same.
	s.Exec("SET GLOBAL transaction_isolation = 'READ-UNCOMMITTED'")
	t.Run("conditions", func(t *testing.T) { breakConditions(ctx, t, cfg, db) })
	s.Exec("SET GLOBAL transaction_isolation = 'REPEATABLE-READ'")
	t.Run("server takes no writes", func(t *testing.T) { readOnly(ctx, t, cfg, db) })
	checkClean(ctx, t, cfg, db)

	if _, err := db.ExecContext(ctx, "DELETE FROM warehouse"); err != nil {
		t.Fatal(err)
	}
	violations, err := tpcc.Check(ctx, cfg, db)
	if err != nil || len(violations) != 1 || violations[0].String() !=
		"clause 1.2.1, warehouses 1 to 2: 0 rows in WAREHOUSE, expected 2" {
		t.Errorf("without warehouses: %v %v", violations, err)
	}
}

func checkClean(ctx context.Context, t *testing.T, cfg tpcc.Config, db *sql.DB) {
	t.Helper()
	violations, err := tpcc.Check(ctx, cfg, db)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

func population(t *testing.T, db *sql.DB) {
	for query, want := range map[string]int64{
		"SELECT COUNT(*) FROM item":                                 500,
		"SELECT COUNT(*) FROM stock":                                1000,
		"SELECT COUNT(*) FROM customer":                             1200,
		"SELECT COUNT(*) FROM history":                              1200,
		"SELECT COUNT(*) FROM orders":                               1200,
		"SELECT COUNT(*) FROM new_order":                            360,
		"SELECT COUNT(DISTINCT o_w_id, o_d_id, o_c_id) FROM orders": 1200, // a permutation
		"SELECT COUNT(*) FROM orders WHERE o_id <> o_c_id AND o_w_id = 1 AND o_d_id = 1 > 30": 0,
		"SELECT COUNT(*) FROM customer WHERE c_last = 'BARBARBAR'":                            20,
		"SELECT COUNT(*) FROM warehouse WHERE w_ytd = 6000":                                   2,
		"SELECT COUNT(*) FROM district WHERE d_tax NOT BETWEEN 0 AND 0.2":                     0,
		"SELECT COUNT(*) FROM order_line WHERE (ol_amount = 0) <> (ol_o_id <= 42)":            0,
	} {
		if got := number(t, db, query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	for _, query := range []string{"SELECT COUNT(*) FROM customer WHERE c_credit = 'BC'",
		"SELECT COUNT(*) FROM stock WHERE s_data LIKE '%ORIGINAL%'"} {
		if got := number(t, db, query); got < 60 || got > 180 {
			t.Errorf("%s: %d, want about a tenth", query, got)
		}
	}
}

func runTerminals(ctx context.Context, t *testing.T, cfg tpcc.Config, db *sql.DB) {
	orders, payments := number(t, db, "SELECT COUNT(*) FROM orders"), number(t, db, "SELECT COUNT(*) FROM history")
	r, used, err := tpcc.RunProcess(ctx, cfg, 0, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if used < 10*time.Millisecond || used > 10*time.Second {
		t.Errorf("the load generator used %v of CPU", used)
	}
	var sum, perSecond int64
	for _, k := range r.Types {
		t.Logf("%+v", k)
		sum += k.Committed
		if k.Committed == 0 || k.Latency.P50 == 0 || k.Latency.P99 < k.Latency.P50 || k.Latency.Max < k.Latency.P99 {
			t.Errorf("%+v", k)
		}
	}
	for _, n := range r.PerSecond {
		perSecond += n
	}
	if len(r.PerSecond) != 4 || perSecond != sum || int64(r.TPS*4+0.5) != sum ||
		int64(r.TpmC/15+0.5) != r.Types[tpcc.NewOrder].Committed {
		t.Errorf("%d transactions, %+v", sum, r)
	}
	// The last transaction of each terminal may have been completed after the end.
	for name, c := range map[string][2]int64{
		"orders":   {r.Types[tpcc.NewOrder].Committed, number(t, db, "SELECT COUNT(*) FROM orders") - orders},
		"payments": {r.Types[tpcc.Payment].Committed, number(t, db, "SELECT COUNT(*) FROM history") - payments},
	} {
		if more := c[1] - c[0]; more < 0 || more > int64(cfg.Terminals) {
			t.Errorf("%s: %d counted, %d made", name, c[0], c[1])
		}
	}
}

// breaks are changes that violate exactly the clauses given.
var breaks = []struct {
	statement string
	clauses   []string
}{
	{"UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2", []string{"3.3.2.1", "3.3.2.8"}},
	{"UPDATE district SET d_ytd = IF(d_id = 1, d_ytd + 1, d_ytd - 1) WHERE d_w_id = 2 AND d_id <= 2", []string{"3.3.2.9"}},
	{"UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 3", []string{"3.3.2.2"}},
	{"DELETE FROM new_order ORDER BY no_w_id DESC, no_d_id DESC, no_o_id DESC LIMIT 1",
		[]string{"3.3.2.2", "3.3.2.5", "3.3.2.11"}},
	{"UPDATE new_order SET no_o_id = 5 WHERE no_w_id = 1 AND no_d_id = 1 ORDER BY no_o_id LIMIT 1",
		[]string{"3.3.2.3", "3.3.2.5"}},
	{"DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 7 LIMIT 1", []string{"3.3.2.4", "3.3.2.6"}},
	{"UPDATE orders SET o_ol_cnt = IF(o_id = 1, o_ol_cnt + 1, o_ol_cnt - 1) WHERE o_w_id = 2 AND o_d_id = 5 AND o_id <= 2",
		[]string{"3.3.2.6"}},
	{"UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 4 AND o_id = 7",
		[]string{"3.3.2.4", "3.3.2.6"}},
	{"UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 10 AND o_id = 3",
		[]string{"3.3.2.5", "3.3.2.7"}},
	{"UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 1 AND ol_o_id = 3 AND ol_number = 2",
		[]string{"3.3.2.7"}},
	{"UPDATE history SET h_w_id = 3 - h_w_id WHERE h_c_id = 9 AND h_c_d_id = 9 AND h_c_w_id = 1 LIMIT 1",
		[]string{"3.3.2.8", "3.3.2.9"}},
	{
		"UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 WHERE c_w_id = 2 AND c_d_id = 2 AND c_id = 2", []string{"3.3.2.10"}},
	{"UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
		[]string{"3.3.2.11"}},
	{"UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 60",
		[]string{"3.3.2.12"}},
	{"DELETE FROM district WHERE d_w_id = 1 AND d_id = 1", []string{"1.2.1", "3.3.2.1"}},
	{"DELETE FROM stock WHERE s_w_id = 2 AND s_i_id = 500", []string{"1.2.1"}},
	{"DELETE FROM history WHERE h_c_id = 1 AND h_c_d_id = 1 AND h_c_w_id = 1 LIMIT 1",
		[]string{"3.3.2.8", "3.3.2.9", "3.3.2.10"}},
}

// breakConditions makes each change in a transaction, checks all conditions, and undoes it.
func breakConditions(ctx context.Context, t *testing.T, cfg tpcc.Config, db *sql.DB) {
	broken := map[string]bool{}
	for _, b := range breaks {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tx.ExecContext(ctx, b.statement)
		if err != nil {
			t.Fatalf("%s: %v", b.statement, err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			t.Errorf("%s: nothing was changed", b.statement)
		}
		violations, err := tpcc.Check(ctx, cfg, db)
		if err != nil {
			t.Fatal(err)
		}
		var clauses []string
		for _, v := range violations {
			if !slices.Contains(b.clauses, v.Clause) {
				t.Logf("%s: %v", b.statement, v)
			}
			if !slices.Contains(clauses, v.Clause) {
				clauses = append(clauses, v.Clause)
			}
		}
		if !slices.Equal(clauses, b.clauses) {
			t.Errorf("%s: violates %v, want %v", b.statement, clauses, b.clauses)
		}
		for _, c := range clauses {
			broken[c] = true
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	if want := 13; len(broken) != want { // clause 1.2.1 and twelve of 3.3.2
		t.Errorf("%d of %d conditions were broken: %v", len(broken), want, broken)
	}
}

// readOnly: a server that takes no writes ends the run.
func readOnly(ctx context.Context, t *testing.T, cfg tpcc.Config, db *sql.DB) {
	if _, err := db.ExecContext(ctx, "SET GLOBAL read_only = ON, super_read_only = ON"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, _, err := tpcc.RunProcess(ctx, cfg, 0, 20*time.Second)
	if err == nil || !strings.Contains(err.Error(), "read-only") || time.Since(start) > 10*time.Second {
		t.Errorf("after %v: error %v", time.Since(start), err)
	}
	if _, err := db.ExecContext(ctx, "SET GLOBAL super_read_only = OFF, read_only = OFF"); err != nil {
		t.Fatal(err)
	}
}
