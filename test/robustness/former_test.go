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
	"trireme/internal/config"
	"trireme/internal/demo"
)

// TestFormerNodeCannotCopy: what a removed node knows logs in to no server any more, also when the leader dies in the instant of the removal, and the nodes
// that stay can be copied from as before.
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
			if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1045 {
				return nil
			}
			return fmt.Errorf("got %w", err)
		})
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
		if v, err := cl.CA(t.Context()); err != nil || v.Rotating {
			return fmt.Errorf("%+v, %w", v.Rotating, err)
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

// cloneLogin logs in to a node's mysqld from outside, as a node does that copies its data.
func (c *cluster) cloneLogin(n *demo.Node, a config.Account) error {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.TLSConfig, cfg.Timeout = a.User, a.Password, "tcp", "skip-verify", 5*time.Second
	cfg.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Ports.MySQL))
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
