package drivers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/demo"
	"trireme/internal/pki"
)

// TestRouterAlone: `trireme router` beside an application knows one node, finds the others, and leads to whoever leads, through a switchover, a
// failover, and the loss of the node that it was told of.
func TestRouterAlone(t *testing.T) {
	c := share(t)
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

// standalone is the addresses of a router without a node.
type standalone struct{ write, read, split string }

// startRouter runs `trireme router` that knows one node, with more settings of [router].
func startRouter(c *cluster, known *demo.Node, settings string) (r standalone) {
	t := c.t
	t.Helper()
	dir := t.TempDir()
	ca, err := os.ReadFile(filepath.Join(known.Dir, "tls", pki.CAFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o644))
	text := fmt.Sprintf("nodes = [%q]\nca = \"ca.pem\"\n[router]\nbind = \"127.0.0.1\"\n%s", net.JoinHostPort(known.Host, strconv.Itoa(known.Ports.API)), settings)
	for key, addr := range map[string]*string{"rw_port": &r.write, "ro_port": &r.read, "split_port": &r.split} {
		*addr = freeAddr(t)
		_, port, err := net.SplitHostPort(*addr)
		must(t, err)
		text += key + " = " + port + "\n"
	}
	file := filepath.Join(dir, "router.toml")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	if out, err := exec.CommandContext(t.Context(), binary, "router", "--config", file, "--check").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "router", "--config", file)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it did not end in order: %v", err)
		}
		if t.Failed() {
			t.Logf("trireme router:\n%s", out.String())
		}
	})
	eventually(t, healLimit, "trireme router listens", func() error {
		conn, err := net.DialTimeout("tcp", r.write, dialLimit)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return r
}
