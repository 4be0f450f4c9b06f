package robustness

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

// liveChaosLimit is for one statement: what a host that stands still has not answered is given up.
const liveChaosLimit = 4 * time.Second

// TestLiveChaos: writers at AFTER through each node and a router alone, readers at AFTER through each port of all
// these, and hosts that stand still, are cut off from all or from one, lose their mysqld, or hand leadership over, at
// random. No read misses what was answered before it began. About three minutes.
func TestLiveChaos(t *testing.T) {
	needs.Long(t)
	topo := emulated(t, "city")
	c := createShape(t, shape{nodes: 3, wan: &topo, tune: func(n *config.Node) {
		n.Router.Sessions, n.Router.ConsistencyTimeout = config.SessionsCarry, config.Duration(3*time.Second)
	}})
	c.sql(c.healthy(), func(conn *sql.Conn) {
		for _, q := range []string{"CREATE DATABASE live", "CREATE TABLE live.t (id INT PRIMARY KEY, v BIGINT)",
			"INSERT INTO live.t VALUES (1, 0)"} {
			_, err := conn.ExecContext(t.Context(), q)
			must(t, err)
		}
	})
	var numbers, answered, failed atomic.Int64 // of writes
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	end := func() { stop(); wg.Wait() }
	defer end()
	var readers []*liveChaosReader
	doors := map[string]map[string]string{"standalone router": c.standaloneRouter()}
	for _, n := range c.Nodes() {
		doors[n.Name] = map[string]string{}
		for port, number := range map[string]int{"6446": n.Ports.RW, "6447": n.Ports.RO, "6450": n.Ports.Split} {
			doors[n.Name][port] = fmt.Sprintf("%s:%d", n.Host, number)
		}
	}
	for name, addrs := range doors {
		writes := c.sessionsAt(addrs["6450"])
		wg.Go(func() {
			for ctx.Err() == nil {
				x := numbers.Add(1)
				within, cancel := context.WithTimeout(ctx, liveChaosLimit)
				_, err := writes.ExecContext(within,
					fmt.Sprintf("UPDATE /*+ trireme_consistency(AFTER) */ live.t SET v = GREATEST(v, %d)", x))
				cancel()
				if err != nil {
					failed.Add(1)
					<-time.After(20 * time.Millisecond)
					continue
				}
				for was := answered.Load(); was < x && !answered.CompareAndSwap(was, x); was = answered.Load() {
				}
			}
		})
		for port, addr := range addrs {
			r := &liveChaosReader{name: name + ":" + port, db: c.sessionsAt(addr)}
			readers = append(readers, r)
			wg.Go(func() { r.run(ctx, t, &answered) })
		}
	}
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for began := time.Now(); time.Since(began) < 2*time.Minute && !t.Failed(); {
		n := c.Nodes()[rnd.IntN(3)]
		other := c.others(n)[rnd.IntN(2)]
		length := time.Duration(300+rnd.IntN(6500)) * time.Millisecond // three seconds and more have a node dropped
		before := answered.Load()
		what := ""
		switch rnd.IntN(6) {
		case 0, 1:
			what = "stands still"
			must(t, c.SignalHost(n, syscall.SIGSTOP))
			<-time.After(length)
			must(t, c.SignalHost(n, syscall.SIGCONT))
		case 2:
			what = "is cut off"
			must(t, c.Network().Isolate(n.Name, wan.Both))
			<-time.After(length)
			must(t, c.Network().RestoreAll())
		case 3:
			what = "is cut off from " + other.Name
			must(t, c.Network().Cut(n.Name, other.Name))
			<-time.After(length)
			must(t, c.Network().RestoreAll())
		case 4:
			what = fmt.Sprint("lost its mysqld ", c.KillMySQL(n))
			<-time.After(length)
		default:
			within, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := c.Switchover(within, n.Name)
			cancel()
			what = fmt.Sprintf("is to lead: %v", err)
		}
		<-time.After(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		t.Logf("%s %s, %v: %d answered meanwhile", n.Name, what, length, answered.Load()-before)
	}
	c.healthy()
	end()
	t.Logf("writes: %d, of which %d failed", numbers.Load(), failed.Load())
	for _, r := range readers {
		t.Logf("through %s: %d reads at AFTER, %d failed (%v)", r.name, r.reads, r.failed, r.last)
		if r.reads < 100 {
			t.Errorf("through %s: %d reads are too few to tell", r.name, r.reads)
		}
	}
}

// sessionsAt opens sessions at an address.
func (c *cluster) sessionsAt(addr string) *sql.DB {
	c.t.Helper()
	l := c.Direct(c.Nodes()[0])
	l.Addr = verify.Fixed(addr)
	db, err := l.Open("")
	must(c.t, err)
	c.t.Cleanup(func() { db.Close() })
	return db
}

// standaloneRouter starts a router without a node, and gives the addresses of its ports.
func (c *cluster) standaloneRouter() map[string]string {
	c.t.Helper()
	known, dir, addrs := c.Nodes()[0], c.t.TempDir(), map[string]string{}
	text := fmt.Sprintf("nodes = [\"%s:%d\"]\nca = %q\n[router]\nbind = \"127.0.0.1\"\nconsistency_timeout = \"3s\"\n",
		known.Host, known.Ports.API, filepath.Join(known.Dir, "tls", pki.CAFile))
	for port, key := range map[string]string{"6446": "rw_port", "6447": "ro_port", "6450": "split_port"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(c.t, err)
		addrs[port] = l.Addr().String()
		text += fmt.Sprintf("%s = %d\n", key, l.Addr().(*net.TCPAddr).Port)
		must(c.t, l.Close())
	}
	file := filepath.Join(dir, "router.toml")
	must(c.t, os.WriteFile(file, []byte(text), 0o644))
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), testkit.Program(c.t, testkit.Trireme), "router",
		"--config", file)
	must(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("the router did not end in order: %v", err)
		}
	})
	return addrs
}

// liveChaosReader reads at AFTER through one port. Its counts are for when run has ended.
type liveChaosReader struct {
	name          string
	db            *sql.DB
	reads, failed int
	last          error
}

func (r *liveChaosReader) run(ctx context.Context, t *testing.T, answered *atomic.Int64) {
	for ctx.Err() == nil {
		before := answered.Load()
		var got int64
		within, cancel := context.WithTimeout(ctx, liveChaosLimit)
		err := r.db.QueryRowContext(within, liveQuery).Scan(&got)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.failed, r.last = r.failed+1, err
			<-time.After(20 * time.Millisecond)
		case got < before:
			t.Errorf("through %s: write %d was answered at AFTER, and a read at AFTER that began later shows %d", r.name, before,
				got)
			return
		default:
			r.reads++
		}
	}
}
