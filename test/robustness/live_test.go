package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/wan"
)

// TestLiveSet: with AFTER, a follower whose host stands still, or is cut off, holds writes up once and then no more;
// while it is cut off its own router answers reads at EVENTUAL with what it has, and none at AFTER; it counts as live
// again when it is back. All the while, and when the leader is lost, no read at AFTER through any router misses what
// was answered before it began. About 45 s.
func TestLiveSet(t *testing.T) {
	t.Parallel()
	topo := emulated(t, "city")
	c := createShape(t, shape{nodes: 3, wan: &topo, tune: func(n *config.Node) {
		n.Router.Sessions, n.Router.ConsistencyTimeout = config.SessionsCarry, config.Duration(8*time.Second)
	}})
	leader := c.healthy()
	c.sql(leader, func(conn *sql.Conn) {
		for _, q := range []string{"CREATE DATABASE live", "CREATE TABLE live.t (id INT PRIMARY KEY, v BIGINT)",
			"INSERT INTO live.t VALUES (1, 0)"} {
			_, err := conn.ExecContext(t.Context(), q)
			must(t, err)
		}
	})
	w := c.liveWrites(leader)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	end := func() { stop(); wg.Wait() }
	defer end()
	readers := map[string]*liveReader{}
	for _, n := range c.Nodes() {
		r := c.liveReads(n, w)
		readers[n.Name] = r
		wg.Go(func() { r.run(ctx) })
	}
	c.countLive(leader, 3)
	w.more(20)
	for _, n := range c.Nodes() {
		readers[n.Name].more(20)
	}

	still := c.others(c.healthy())[0] // asked each time: a machine that is short of CPU may move leadership
	must(t, c.SignalHost(still, syscall.SIGSTOP))
	t.Logf("%s stands still: the first write took %v, the next 50 %v", still.Name, w.more(1), w.more(50))
	must(t, c.SignalHost(still, syscall.SIGCONT))
	c.countLive(c.healthy(), 3)
	readers[still.Name].more(20)

	cut := c.others(c.healthy())[1]
	must(t, c.Network().Isolate(cut.Name, wan.Both))
	t.Logf("%s is cut off: the first write took %v, the next 50 %v", cut.Name, w.more(1), w.more(50))
	own := c.sessionsAt(fmt.Sprintf("%s:%d", cut.Host, cut.Ports.RO))
	var old int64
	must(t, own.QueryRowContext(t.Context(), "SELECT v FROM live.t").Scan(&old))
	if got := w.answered.Load(); old >= got {
		t.Errorf("%s, cut off, has %d of %d: nothing is tried here", cut.Name, old, got)
	}
	var e *mysql.MySQLError
	if err := own.QueryRowContext(t.Context(), liveQuery).Scan(&old); !errors.As(err, &e) || e.Number != 45801 {
		t.Errorf("%s, cut off, read at AFTER: %d, %v", cut.Name, old, err)
	}
	must(t, c.Network().RestoreAll())
	c.countLive(c.healthy(), 3)
	readers[cut.Name].more(20)

	leader = c.healthy()
	term := c.view().Term
	c.crash(leader)
	next := c.failedOver(term)
	c.countLive(next, 3)
	w.more(50)
	for _, n := range c.Nodes() {
		readers[n.Name].more(20)
	}
	end()
	for name, r := range readers {
		t.Logf("through %s: %d reads at AFTER, %d refused (%v)", name, r.reads.Load(), r.refused.Load(), r.last)
	}
}

const liveQuery = "SELECT /*+ trireme_consistency(AFTER) */ v FROM live.t"

// countLive waits until that many nodes count as live for a leader.
func (c *cluster) countLive(leader *demo.Node, want int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	began := time.Now()
	must(c.t, c.WaitLive(ctx, leader, want))
	c.t.Logf("all count as live after %v", time.Since(began).Round(time.Millisecond))
}

// liveWriter writes numbers that rise, at AFTER.
type liveWriter struct {
	c        *cluster
	db       *sql.DB
	last     int64
	answered atomic.Int64 // highest that was answered OK
}

func (c *cluster) liveWrites(n *demo.Node) *liveWriter {
	w := &liveWriter{c: c, db: c.splitPort(n)}
	c.t.Cleanup(func() { w.db.Close() })
	return w
}

// more writes until that many writes were answered OK; all others must have been told that nothing is known, or
// promised, of them.
func (w *liveWriter) more(n int) time.Duration {
	w.c.t.Helper()
	began := time.Now()
	for n > 0 {
		w.last++
		_, err := w.db.ExecContext(w.c.t.Context(), fmt.Sprintf("UPDATE /*+ trireme_consistency(AFTER) */ live.t SET v = %d",
			w.last))
		if err == nil {
			w.answered.Store(w.last)
			n--
		} else if time.Since(began) > healLimit {
			w.c.t.Fatalf("writes at AFTER: %v", err)
		} else {
			w.c.t.Logf("write %d: %v", w.last, err)
		}
	}
	return time.Since(began).Round(time.Millisecond)
}

// liveReader reads at AFTER through one router.
type liveReader struct {
	c              *cluster
	node           *demo.Node
	db             *sql.DB
	w              *liveWriter
	reads, refused atomic.Int64
	last           error // of those refused; for when run has ended
}

func (c *cluster) liveReads(n *demo.Node, w *liveWriter) *liveReader {
	return &liveReader{c: c, node: n, db: c.sessionsAt(fmt.Sprintf("%s:%d", n.Host, n.Ports.RO)), w: w}
}

func (r *liveReader) run(ctx context.Context) {
	for ctx.Err() == nil {
		before := r.w.answered.Load()
		var got int64
		err := r.db.QueryRowContext(ctx, liveQuery).Scan(&got)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.refused.Add(1)
			r.last = err
			<-time.After(20 * time.Millisecond)
		case got < before:
			r.c.t.Errorf("through %s: write %d was answered at AFTER, and a read at AFTER that began later shows %d",
				r.node.Name, before, got)
			return
		default:
			r.reads.Add(1)
		}
	}
}

// more waits for reads that were answered.
func (r *liveReader) more(n int64) {
	r.c.t.Helper()
	before := r.reads.Load()
	eventually(r.c.t, healLimit, "reads at AFTER through "+r.node.Name,
		func() error { return atLeast(int(r.reads.Load()-before), int(n)) })
}
