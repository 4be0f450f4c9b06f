package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
)

// TestFormerNodeCannotCopy: what a removed node knows logs in to no server any more, also when the leader dies in the
// instant of the removal, and the nodes that stay can be copied from as before.
func TestFormerNodeCannotCopy(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	n4, err := c.Add(t.Context(), "former", config.RoleLearner)
	must(t, err)
	c.joined(n4)
	known, err := config.LoadSecrets(n4.Dir)
	must(t, err)
	for _, n := range c.others(n4) {
		must(t, c.cloneLogin(n, known.Clone))
	}
	c.KillDaemon(n4)
	result[api.MemberResult](c, leader, 0, "remove "+n4.Name)
	c.KillDaemon(leader)
	c.Forget(n4)
	c.start(leader)
	leader = c.healthy()
	for _, n := range c.Nodes() {
		eventually(t, healLimit, "the old password does not log in to "+n.Name, func() error {
			err := c.cloneLogin(n, known.Clone)
			if deniesAccess(err) {
				return nil
			}
			return fmt.Errorf("got %w", err)
		})
		// Passwords of accounts for a server's own host are each node's own, which counts here, where all are on one host.
		own, err := config.LoadSecrets(n.Dir)
		must(t, err)
		must(t, c.login(own.Repl, "tcp", tcpAddr(n.Ports.MySQL)))
		for _, a := range []config.Account{known.Admin, known.Repl} {
			for addr, network := range map[string]string{c.socket(n): "unix", tcpAddr(n.Ports.MySQL): "tcp",
				tcpAddr(n.Ports.RW): "tcp", tcpAddr(n.Ports.RO): "tcp"} {
				if err := c.login(a, network, addr); !deniesAccess(err) {
					t.Errorf("%s of %s at %s of %s: %v", a.User, n4.Name, addr, n.Name, err)
				}
			}
		}
		eventually(t, healLimit, "all know the new one, says "+n.Name, func() error {
			s, err := config.LoadSecrets(n.Dir)
			if err != nil {
				return err
			}
			for _, o := range c.Nodes() {
				if err := c.cloneLogin(o, s.Clone); err != nil {
					return fmt.Errorf("at %s: %w", o.Name, err)
				}
			}
			return nil
		})
	}
	eventually(t, healLimit, "the change has ended, says the leader", func() error {
		cl := c.Client(leader)
		defer cl.Close()
		if v, err := api.CA.Ask(t.Context(), cl); err != nil || v.Rotating {
			return fmt.Errorf("%+v, %w", v.Rotating, err)
		}
		return nil
	})
	before, err := config.LoadSecrets(leader.Dir)
	must(t, err)
	result[api.ReplaceResult](c, leader, 0, "cert new-password")
	eventually(t, healLimit, "an administrator has the password replaced", func() error {
		for _, n := range c.Nodes() {
			s, err := config.LoadSecrets(n.Dir)
			switch {
			case err != nil:
				return err
			case s.Clone == before.Clone:
				return fmt.Errorf("%s has the one from before", n.Name)
			}
			if err := c.cloneLogin(leader, s.Clone); err != nil {
				return err
			}
		}
		return nil
	})
	again := c.others(leader)[0]
	c.says(leader, 0, "reinit "+again.Name+" --yes", again.Name)
	c.shows(leader, again.Name, "has a copy", healthyVoter)
	if copies := c.copies(again); copies == 0 {
		t.Error("no copy was made")
	}
}

// deniesAccess says whether a server has refused a password.
func deniesAccess(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == 1045
}

func tcpAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// socket of a node's mysqld.
func (c *cluster) socket(n *demo.Node) string {
	c.t.Helper()
	for _, s := range c.State().Nodes {
		if s.Name == n.Name && s.MySQLSocket != nil {
			return *s.MySQLSocket
		}
	}
	c.t.Fatalf("%s has no socket", n.Name)
	return ""
}

// cloneLogin logs in to a node's mysqld from outside, as a node does that copies its data.
func (c *cluster) cloneLogin(n *demo.Node, a config.Account) error {
	return c.login(a, "tcp", tcpAddr(n.Ports.MySQL))
}

func (c *cluster) login(a config.Account, network, addr string) error {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.Timeout = a.User, a.Password, network, addr, 5*time.Second
	if network == "tcp" {
		cfg.TLSConfig = "skip-verify"
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	return db.PingContext(ctx)
}
