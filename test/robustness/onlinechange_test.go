package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"trireme/lab/needs"
)

// TestOnlineChange changes a table through the router while it is written, as gh-ost and pt-online-schema-change do:
// rows are copied in chunks into a table with the new columns, triggers carry over what is written meanwhile, and the
// cut-over is gh-ost's: RENAME waits for a LOCK TABLES that is held until all is copied. Leadership moves once in the
// middle. No write is lost, and all nodes are equal.
func TestOnlineChange(t *testing.T) {
	needs.Long(t)
	const rows, chunk, writers = 20_000, 500, 8
	c := lease(t)
	c.healthy()
	db, err := c.Routed().Open("")
	must(t, err)
	defer db.Close()
	do := func(ctx context.Context, q string, args ...any) error {
		var err error
		for range 100 { // a switchover may cut a session, never a row
			if _, err = db.ExecContext(ctx, q, args...); err == nil || ctx.Err() != nil {
				return err
			}
			<-time.After(50 * time.Millisecond)
		}
		return fmt.Errorf("%.60s: %w", q, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	for _, q := range []string{"DROP DATABASE IF EXISTS online", "CREATE DATABASE online",
		"CREATE TABLE online.t (id BIGINT PRIMARY KEY, v INT NOT NULL)",
		fmt.Sprintf("INSERT INTO online.t WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 199) SELECT a.k * 200 + b.k, 0 FROM n a, n b WHERE a.k * 200 + b.k < %d", rows), "CREATE TABLE online.gho (id BIGINT PRIMARY KEY, v INT NOT NULL, added VARCHAR(20) NOT NULL DEFAULT 'new', KEY (v))",
		"CREATE TRIGGER online.ins AFTER INSERT ON online.t FOR EACH ROW REPLACE INTO online.gho (id, v) VALUES (NEW.id, NEW.v)",
		"CREATE TRIGGER online.upd AFTER UPDATE ON online.t FOR EACH ROW REPLACE INTO online.gho (id, v) VALUES (NEW.id, NEW.v)",
		"CREATE TRIGGER online.del AFTER DELETE ON online.t FOR EACH ROW DELETE FROM online.gho WHERE id = OLD.id"} {
		must(t, do(ctx, q))
	}

	// Each writer has rows of its own and knows how often each was written: an answer that was lost may count or not.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	sure, most := map[int64]int{}, map[int64]int{}
	for w := range int64(writers) {
		wg.Go(func() {
			for i := w; ; i += writers {
				select {
				case <-stop:
					return
				default:
				}
				id := i * 7919 % rows / writers * writers
				id += w
				_, err := db.ExecContext(ctx, "UPDATE online.t SET v = v + 1 WHERE id = ?", id)
				mu.Lock()
				if most[id]++; err == nil {
					sure[id]++
				}
				mu.Unlock()
			}
		})
	}
	leader := c.leader()
	for from := 0; from < rows; from += chunk {
		must(t,
			do(ctx,
				"INSERT IGNORE INTO online.gho (id, v) SELECT id, v FROM online.t WHERE id >= ? AND id < ? LOCK IN SHARE MODE",
				from, from+chunk))
		if from == rows/2 {
			c.lead(c.others(leader)[0])
		}
	}
	c.cutOver(ctx)
	close(stop)
	wg.Wait()

	got, err := db.QueryContext(ctx, "SELECT id, v, added FROM online.t")
	must(t, err)
	defer got.Close()
	n := 0
	for ; got.Next(); n++ {
		var id int64
		var v int
		var added string
		must(t, got.Scan(&id, &v, &added))
		if v < sure[id] || v > most[id] || added != "new" {
			t.Errorf("row %d was written %d to %d times and has %d, %q", id, sure[id], most[id], v, added)
		}
	}
	must(t, got.Err())
	if n != rows {
		t.Errorf("%d rows, want %d", n, rows)
	}
	must(t, do(ctx, "DROP DATABASE online"))
}

// cutOver swaps the tables as gh-ost does it: one session locks both names, another one's RENAME waits for it, and goes
// before all writers that wait when the first gives way.
func (c *cluster) cutOver(ctx context.Context) {
	c.t.Helper()
	lock, rename, watch := c.byRouter(), c.byRouter(), c.byRouter()
	lock.exec("CREATE TABLE online.old (id INT PRIMARY KEY)", "LOCK TABLES online.t WRITE, online.old WRITE")
	renamed := make(chan error, 1)
	go func() { renamed <- rename.try("RENAME TABLE online.t TO online.old, online.gho TO online.t") }()
	eventually(c.t, steerLimit, "RENAME waits", func() error {
		n, err :=
			watch.tryValue("SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'RENAME TABLE online.t %' AND STATE LIKE 'Waiting for table metadata lock'")
		if err == nil && n != "1" {
			err = errors.New("it does not yet")
		}
		return err
	})
	lock.exec("DROP TABLE online.old", "UNLOCK TABLES")
	select {
	case err := <-renamed:
		must(c.t, err)
	case <-ctx.Done():
		c.t.Fatal("RENAME did not end")
	}
}

// byRouter opens a connection through the router.
func (c *cluster) byRouter() *session {
	c.t.Helper()
	l := c.Routed()
	l.StatementTimeout = sqlLimit
	db, err := l.Open("")
	must(c.t, err)
	return c.pin(db)
}
