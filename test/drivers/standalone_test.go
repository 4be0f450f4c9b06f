package drivers

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
)

// TestStandaloneRouter: `trireme router` next to an application knows one node, finds the others, and leads to the
// leader, through a switchover, a failover, and the loss of the node that it was told of.
func TestStandaloneRouter(t *testing.T) {
	t.Parallel()
	c := lease(t)
	c.sql("CREATE DATABASE IF NOT EXISTS alone", "CREATE TABLE IF NOT EXISTS alone.t (id INT PRIMARY KEY)")
	leader := c.healthy()
	r := startRouter(c, leader, "")
	db, reader := c.open(r.write), c.open(r.read)
	for i, change := range []struct {
		name string
		now  func() *demo.Node
	}{{"as started", func() *demo.Node { return leader }}, {"switchover", c.switchover}, {"failover", c.failover}} {
		leader = change.now()
		began := time.Now()
		if _, err := db.ExecContext(t.Context(), "REPLACE INTO alone.t VALUES (?)", i); err != nil && i > 0 {
			t.Errorf("%s: a new session is not led to the new leader at once: %v", change.name, err)
		}
		took := time.Since(began)
		eventually(t, healLimit, change.name+": a write reaches the leader", func() error {
			if _, err := db.ExecContext(t.Context(), "REPLACE INTO alone.t VALUES (?)", i); err != nil {
				return err
			}
			return servedBy(t.Context(), db, leader.Ports.MySQL)
		})
		t.Logf("%s: the first session after it took %v", change.name, took)
		c.healthy()
		eventually(t, healLimit, change.name+": reads are led to a follower", func() error {
			if servedBy(t.Context(), reader, leader.Ports.MySQL) == nil {
				return fmt.Errorf("the leader answers")
			}
			return reader.PingContext(t.Context())
		})
	}
	c.lose(t, c.healthy())
	eventually(t, healLimit, "a write after the loss of a daemon", func() error {
		_, err := db.ExecContext(t.Context(), "REPLACE INTO alone.t VALUES (9)")
		return err
	})
}

// lose kills a node's daemon for the rest of the test.
func (c *cluster) lose(t *testing.T, n *demo.Node) {
	t.Helper()
	c.KillDaemon(n)
	t.Cleanup(func() { must(t, c.Start(n)) })
}

// TestSwitchoverStandalone: writers through a router without a node, for which planned switchovers wait since it has a
// token, hear of no error. Some 10 s.
func TestSwitchoverStandalone(t *testing.T) {
	testkit.Quiet(t, "logins, which a planned switchover waits for no longer than half a second")
	c := lease(t)
	c.sql("CREATE DATABASE IF NOT EXISTS alone", "DROP TABLE IF EXISTS alone.w",
		"CREATE TABLE alone.w (id INT PRIMARY KEY AUTO_INCREMENT, writer INT, v INT)")
	r := startRouterAs(c, c.healthy(), c.token("writers"), "")
	w := c.writeThrough(r.write, 64)
	for range 2 {
		w.goOn(t)
		leader := c.switchover()
		w.goOn(t)
		t.Logf("%s leads; %d transactions acknowledged", leader.Name, w.acknowledged())
	}
	acked, failed := w.end()
	if len(failed) > 0 {
		t.Errorf("%d errors: %s", len(failed), strings.Join(failed[:min(3, len(failed))], "; "))
	}
	c.healthy()
	db, rows := c.admin(), 0
	defer db.Close()
	must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM alone.w WHERE v = 2").Scan(&rows))
	if rows < acked {
		t.Errorf("%d rows, %d acknowledged", rows, acked)
	}
}

// token is a new viewer's.
func (c *cluster) token(name string) string {
	c.t.Helper()
	res, err := api.NewToken.Ask(c.t.Context(), c.Client(c.healthy()),
		api.TokenRequest{Name: name, Role: string(pki.Viewer)})
	must(c.t, err)
	c.t.Cleanup(func() {
		_, err := api.RemoveToken.Ask(context.WithoutCancel(c.t.Context()), c.Client(c.Nodes()[0]), api.TokenName{Name: name})
		must(c.t, err)
	})
	return res.Token
}

// writers run small transactions on alone.w, each in a session of its own, which it replaces when one fails.
type writers struct {
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	acked  []int
	failed []string
}

// writeThrough starts them at an address. They are so slow that followers keep up on a busy machine.
func (c *cluster) writeThrough(addr string, n int) *writers {
	c.t.Helper()
	ctx, stop := context.WithCancel(c.t.Context())
	w, db := &writers{stop: stop, acked: make([]int, n)}, c.open(addr)
	c.t.Cleanup(func() { w.end() })
	for i := range n {
		w.all.Go(func() {
			for ctx.Err() == nil {
				err := w.session(ctx, db, i)
				w.mu.Lock()
				if err != nil {
					w.failed = append(w.failed, fmt.Sprintf("writer %d after %d: %v", i, w.acked[i], err))
				}
				w.mu.Unlock()
				pause(ctx)
			}
		})
	}
	return w
}

// session writes until it is stopped, in the middle of no transaction, or one fails.
func (w *writers) session(ctx context.Context, db *sql.DB, i int) error {
	whole := context.WithoutCancel(ctx)
	conn, err := db.Conn(whole)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	for ctx.Err() == nil {
		if err := writeTwice(whole, conn, i); err != nil {
			return err
		}
		w.mu.Lock()
		w.acked[i]++
		w.mu.Unlock()
		pause(ctx)
	}
	return nil
}

// pause is between two transactions of a writer.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

func writeTwice(ctx context.Context, conn *sql.Conn, writer int) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("BEGIN: %w", err)
	}
	defer tx.Rollback()
	for _, q := range []string{"INSERT INTO alone.w (writer, v) VALUES (?, 1)",
		"UPDATE alone.w SET v = v + 1 WHERE id = LAST_INSERT_ID() AND writer = ?"} {
		if _, err := tx.ExecContext(ctx, q, writer); err != nil {
			return fmt.Errorf("%.6s: %w", q, err)
		}
		<-time.After(25 * time.Millisecond) // what applications do in between: at each moment many have a transaction open
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("COMMIT: %w", err)
	}
	return nil
}

func (w *writers) acknowledged() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.acked {
		n += k
	}
	return n
}

// goOn waits until each has written twice more.
func (w *writers) goOn(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	before := slices.Clone(w.acked)
	w.mu.Unlock()
	eventually(t, healLimit, "they write", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, n := range w.acked {
			if n < before[i]+2 {
				return fmt.Errorf("writer %d: %d, and %d before; errors: %q", i, n, before[i], w.failed)
			}
		}
		return nil
	})
}

// end stops them and tells what they heard.
func (w *writers) end() (acked int, failed []string) {
	w.stop()
	w.all.Wait()
	return w.acknowledged(), w.failed
}

// standalone is the addresses of a router without a node, and its log.
type standalone struct{ write, read, split, log string }

// startRouter runs `trireme router` that knows one node, with more settings of [router].
func startRouter(c *cluster, known *demo.Node, settings string) standalone {
	c.t.Helper()
	return startRouterAs(c, known, "", settings)
}

// startRouterAs is startRouter with a token; empty: none.
func startRouterAs(c *cluster, known *demo.Node, token, settings string) (r standalone) {
	t := c.t
	t.Helper()
	dir := t.TempDir()
	ca, err := os.ReadFile(filepath.Join(known.Dir, "tls", pki.CAFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o644))
	text := fmt.Sprintf("nodes = [%q]\nca = \"ca.pem\"\n", net.JoinHostPort(known.Host, strconv.Itoa(known.Ports.API)))
	if token != "" {
		must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
		text += "token_file = \"token\"\n"
	}
	text += "[router]\nbind = \"127.0.0.1\"\n" + settings
	for key, addr := range map[string]*string{"rw_port": &r.write, "ro_port": &r.read, "split_port": &r.split} {
		*addr = freeAddr(t)
		_, port, err := net.SplitHostPort(*addr)
		must(t, err)
		text += key + " = " + port + "\n"
	}
	file := filepath.Join(dir, "router.toml")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	if out, err := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "router", "--config", file,
		"--check").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), testkit.Program(t, testkit.Trireme), "router",
		"--config", file)
	r.log = filepath.Join(dir, "router.log")
	out, err := os.Create(r.log)
	must(t, err)
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	must(t, out.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it did not end in order: %v", err)
		}
		if t.Failed() {
			said, _ := os.ReadFile(r.log)
			t.Logf("trireme router:\n%s", said)
		}
	})
	eventually(t, healLimit, "trireme router listens", func() error {
		conn, err := net.DialTimeout("tcp", r.write, dialLimit)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	must(t, cmd.Process.Signal(syscall.SIGHUP)) // the terminal that it was started from closes, and it goes on
	return r
}
