package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/ops/demo"
)

// TestHAProxy runs the configuration of docs/balancers.md: 3306 leads to the leader and 3307 to a follower, also after
// a failover and after a switchover, and a session does not stay with a node that led before.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		cannot(t, "there is no haproxy; scripts/deps.sh test installs it for root: %v", err)
	}
	c := lease(t)
	write, read := startHAProxy(c, program)
	c.sql("CREATE DATABASE IF NOT EXISTS balanced", "CREATE TABLE IF NOT EXISTS balanced.t (id INT PRIMARY KEY)")

	db := c.open(write)
	leader := c.healthy()
	for i, change := range []struct {
		name string
		now  func() *demo.Node
	}{{"as started", func() *demo.Node { return leader }}, {"failover", c.failover}, {"switchover", c.switchover}} {
		var session *sql.Conn
		eventually(t, healLimit, "a session through haproxy", func() (err error) {
			session, err = db.Conn(t.Context())
			return err
		})
		leader = change.now()
		eventually(t, healLimit, change.name+": a write reaches the new leader", func() error {
			if _, err := db.ExecContext(t.Context(), "REPLACE INTO balanced.t VALUES (?)", i); err != nil {
				return err
			}
			return servedBy(t.Context(), db, leader.Ports.MySQL)
		})
		if i > 0 {
			eventually(t, healLimit, change.name+": the session to the old leader ends", func() error {
				if session.PingContext(t.Context()) == nil {
					return errors.New("it is open")
				}
				return nil
			})
		}
		_ = session.Close()
		c.healthy()
		reader := c.open(read)
		eventually(t, healLimit, change.name+": reads are led to a follower", func() error {
			if servedBy(t.Context(), reader, leader.Ports.MySQL) == nil {
				return errors.New("the leader answers")
			}
			var n int
			return reader.QueryRowContext(t.Context(), "SELECT id FROM balanced.t WHERE id = ?", i).Scan(&n)
		})
	}
}

// servedBy fails unless the server that answers has this port.
func servedBy(ctx context.Context, db *sql.DB, port int) error {
	var got int
	if err := db.QueryRowContext(ctx, "SELECT @@port").Scan(&got); err != nil {
		return err
	}
	if got != port {
		return fmt.Errorf("port %d answers, not %d", got, port)
	}
	return nil
}

// open a pool to an address. It keeps no idle connection, so each statement shows where new ones go.
func (c *cluster) open(addr string) *sql.DB {
	c.t.Helper()
	s := c.State()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = s.User, s.Password, "tcp", addr
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = dialLimit, statementLimit, statementLimit
	cfg.Logger = quiet{}
	connector, err := mysql.NewConnector(cfg)
	must(c.t, err)
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(0)
	c.t.Cleanup(func() { _ = db.Close() })
	return db
}

// quiet drops the driver's own complaints about lost connections: they are what is tested.
type quiet struct{}

func (quiet) Print(...any) {}

var (
	documented   = regexp.MustCompile("(?s)```haproxy\n(.*?)```")
	documentedDB = regexp.MustCompile(`(?m)^( *server db)(\d) db\d:3306 check port 8008$`)
)

// startHAProxy starts it with the documented text, the addresses changed to the cluster's, and returns where it
// listens.
func startHAProxy(c *cluster, program string) (write, read string) {
	t := c.t
	t.Helper()
	doc, err := os.ReadFile("../../docs/balancers.md")
	must(t, err)
	block := documented.FindSubmatch(doc)
	if block == nil {
		t.Fatal("docs/balancers.md has no haproxy block")
	}
	servers := 0
	text := documentedDB.ReplaceAllStringFunc(string(block[1]), func(line string) string {
		m := documentedDB.FindStringSubmatch(line)
		i, _ := strconv.Atoi(m[2])
		n := c.Nodes()[i-1]
		servers++
		return fmt.Sprintf("%s%s %s:%d check port %d", m[1], m[2], n.Host, n.Ports.MySQL, n.Ports.API)
	})
	if servers != 9 {
		t.Fatalf("%d server lines of docs/balancers.md were understood, not 9", servers)
	}
	write, read = freeAddr(t), freeAddr(t)
	text = strings.Replace(text, "bind :3306", "bind "+write, 1)
	text = strings.Replace(text, "bind :3307", "bind "+read, 1)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	if out, err := exec.CommandContext(t.Context(), program, "-c", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("haproxy does not take the documented configuration: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "-db", "-f", file)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy:\n%s", out.String())
		}
	})
	return write, read
}

// freeAddr is a loopback address whose port is free.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}
