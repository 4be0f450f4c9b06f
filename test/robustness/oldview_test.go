package robustness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
)

// oldView keeps a router at its view of the cluster while the leader of that view loses its mysqld. It starts again at
// the same address and follows another leader: what it shows may be old, and no client of the read-write port may see
// it, however late a router is.
func (c *cluster) oldView() {
	leader := c.healthy()
	late, next := c.others(leader)[0], c.others(leader)[1]
	before := c.fired(late)
	c.command(late, "arm routes.before-view=pause")
	c.awaitFired(late, before, "routes.before-view=pause", nil)
	// A node whose loop stands still cannot take over.
	eventually(c.t, healLimit, leader.Name+" takes "+late.Name+" for silent", func() error {
		v, err := c.seen(leader)
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.Name == late.Name && m.State != api.StateDown {
				return fmt.Errorf("%s: %s", m.State, m.Reason)
			}
		}
		return nil
	})
	pid := c.KillMySQL(leader)
	eventually(c.t, healLimit, next.Name+" leads, "+leader.Name+" follows", func() error {
		if err := c.primary(next); err != nil {
			return err
		}
		v, err := c.seen(next)
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.Name == leader.Name && (m.State != api.StateHealthy || m.MySQL == nil || m.MySQL.PID == 0 ||
				m.MySQL.PID == pid) {
				return fmt.Errorf("%s: %s", m.State, m.Reason)
			}
		}
		return nil
	})
	db, err := c.throughRouter(late).Open("")
	must(c.t, err)
	defer db.Close()
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), sqlLimit)
		defer cancel()
		var port int
		err := db.QueryRowContext(ctx, "SELECT @@port").Scan(&port)
		if err == nil && port != next.Ports.MySQL {
			err = fmt.Errorf("led to the server at port %d; %s leads, at port %d", port, next.Name, next.Ports.MySQL)
		}
		answered <- err
	}()
	held := time.NewTimer(time.Second)
	defer held.Stop()
	select {
	case err = <-answered:
		err = errors.Join(errors.New("a router that cannot know who leads did not hold its client"), err)
		c.command(late, "release routes.before-view")
	case <-held.C:
		c.command(late, "release routes.before-view")
		err = <-answered
	}
	must(c.t, err)
	c.healthy()
}
