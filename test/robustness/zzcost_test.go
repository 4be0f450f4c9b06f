package robustness

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestZZCost(t *testing.T) {
	c := share(t)
	c.healthy()
	c.write("DROP DATABASE IF EXISTS zz", "CREATE DATABASE zz", "CREATE TABLE zz.t (id INT PRIMARY KEY, v VARCHAR(200), KEY (v))",
		"SET SESSION cte_max_recursion_depth = 1000000", "INSERT INTO zz.t WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 299) SELECT a.k * 300 + b.k, REPEAT('x', 150) FROM n a, n b")
	var done atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 16 {
		db, err := c.Routed().Open("")
		must(t, err)
		wg.Go(func() {
			defer db.Close()
			for ctx.Err() == nil {
				if _, err := db.ExecContext(ctx, "UPDATE zz.t SET v = ? WHERE id = ?", fmt.Sprint(rand.Int64()), rand.IntN(90000)); err == nil {
					done.Add(1)
				}
			}
		})
	}
	defer func() { cancel(); wg.Wait() }()
	worked := func() string { // seconds of each node
		var all []string
		for _, n := range c.DataNodes() {
			s := c.admin(n)
			all = append(all, s.value("SELECT COALESCE(SUM(SUM_TIMER_WAIT), 0) / 1e12 FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST_TEXT LIKE '%SHA2%'"))
			s.close()
		}
		return strings.Join(all, " ")
	}
	minus := func(a, b string, sec float64) (out string) {
		x, y := strings.Fields(a), strings.Fields(b)
		for i := range x {
			p, _ := strconv.ParseFloat(x[i], 64)
			q, _ := strconv.ParseFloat(y[i], 64)
			out += fmt.Sprintf(" %.3f", (p-q)/sec)
		}
		return out
	}
	tps := func(d time.Duration) float64 {
		at := done.Load()
		time.Sleep(d)
		return float64(done.Load()-at) / d.Seconds()
	}
	for round := range 2 {
		for _, b := range []string{os.Getenv("ZZ_OLD"), binary} {
			before := tps(6 * time.Second)
			w, at, began := worked(), done.Load(), time.Now()
			s := c.State()
			cmd := exec.Command(b, "check", "--table", "zz.t", "--max-running", "1000", "--max-lag", "1h", "--json", "--user", s.User,
				"--api", fmt.Sprintf("127.0.0.1:%d", c.Nodes()[0].Ports.API), "--token-file", filepath.Join(scratch, "credentials", s.Cluster))
			cmd.Env = append(os.Environ(), "TRIREME_MYSQL_PASSWORD="+s.Password)
			out, err := cmd.Output()
			took := time.Since(began).Seconds()
			during := float64(done.Load()-at) / took
			var r checkOutput
			_ = json.Unmarshal(out, &r)
			t.Logf("round %d %s: %v ok %v rows %d ranges %d locked %d in %.1f s, TPS %.0f before, %.0f during, %.0f after; share of the time by node%s", round, b, err, r.OK, r.Rows, r.Ranges, r.Locked, took, before, during, tps(6*time.Second),
				minus(worked(), w, took))
		}
	}
}
