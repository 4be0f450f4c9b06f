package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
)

// all nodes, the leader first.
func (c *checker) all() []*node { return append([]*node{c.leader}, c.followers...) }

func (c *checker) close() {
	if c.leader == nil {
		return
	}
	for _, n := range c.all() {
		_ = n.db.Close()
	}
	c.leader, c.followers = nil, nil
}

// connect opens the sessions again, as the cluster is now. Nodes that have been compared so far are waited for.
func (c *checker) connect(ctx context.Context) error {
	c.close()
	v, members, err := c.members(ctx)
	if err != nil {
		return err
	}
	c.res.Cluster, c.res.Leader = v.Cluster, v.Leader
	var nodes []*node
	for _, m := range members {
		n, err := open(ctx, m.Name, m.MySQL.Host, m.MySQL.Port, c.o.User, c.o.Password)
		if err != nil {
			for _, n := range nodes {
				_ = n.db.Close()
			}
			return err
		}
		n.epoch = m.MySQL.Epoch
		if m.Name == v.Leader {
			nodes = slices.Insert(nodes, 0, n)
		} else {
			nodes = append(nodes, n)
		}
	}
	c.leader, c.followers = nodes[0], nodes[1:]
	c.res.Nodes = c.res.Nodes[:0]
	for _, n := range nodes {
		c.res.Nodes = append(c.res.Nodes, n.name)
	}
	slices.Sort(c.res.Nodes)
	return c.settle(ctx)
}

// members are the nodes to compare. One that was compared before and is away now is waited for.
func (c *checker) members(ctx context.Context) (v api.ClusterView, members []api.MemberView, err error) {
	deadline := time.Now().Add(settleLimit)
	for {
		var away map[string]string
		var delayed []string
		v, err = c.view(ctx)
		if err == nil {
			members, away, delayed, err = dataNodes(v)
		}
		waited := time.Now().After(deadline)
		expected := err == nil && !slices.ContainsFunc(c.res.Nodes, func(name string) bool { return away[name] != "" })
		if ctx.Err() != nil || waited && err != nil {
			return v, nil, errors.Join(err, ctx.Err())
		}
		if err == nil && (expected || waited) {
			for name, why := range away {
				c.away[name] = why
			}
			c.res.LeftOut = delayed
			return v, members, nil
		}
		if len(c.res.Nodes) == 0 { // the run has not begun: say it at once
			return v, nil, err
		}
		if err := poll.Pause(ctx, time.Second); err != nil {
			return v, nil, err
		}
	}
}

// dataNodes are the members whose data can be compared, why others cannot, and those that lack data on purpose.
func dataNodes(v api.ClusterView) (members []api.MemberView, away map[string]string, delayed []string, err error) {
	away = map[string]string{}
	leads := false
	for _, m := range v.Members {
		switch {
		case m.MySQL == nil:
		case m.Delay != nil:
			delayed = append(delayed, m.Name)
		case m.State != api.StateHealthy:
			away[m.Name] = strings.TrimSuffix("it is "+m.State+": "+m.Reason, ": ")
		default:
			members = append(members, m)
			leads = leads || m.Name == v.Leader && m.MySQL.Epoch != "" && !m.MySQL.ReadOnly
		}
	}
	switch {
	case !leads:
		return nil, nil, nil, ErrNoLeader
	case len(members) < 2:
		return nil, nil, nil, ErrAlone
	}
	return members, away, delayed, nil
}

// view asks for the cluster.
func (c *checker) view(ctx context.Context) (api.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, quickLimit)
	defer cancel()
	return c.o.Cluster.Cluster(ctx)
}

// still fails unless the leader is the one that it was, in the same life and term.
func (c *checker) still(ctx context.Context) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	for _, m := range v.Members {
		if m.Name == c.leader.name && m.Name == v.Leader && m.MySQL != nil && m.MySQL.Epoch == c.leader.epoch {
			return nil
		}
	}
	return fmt.Errorf("%w: %q, not %s", errMoved, v.Leader, c.leader.name)
}

// settle finds out which GTIDs of the leader each follower will never execute: what it lacks although it does not lag,
// and still lacks later.
func (c *checker) settle(ctx context.Context) error {
	const quiet = 3 * time.Second
	had, _, err := positions(ctx, c.leader.db)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(settleLimit)
	for _, n := range c.followers {
		since := time.Now()
		for {
			has, _, err := positions(ctx, n.db)
			if err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
			missing := had.Subtract(has)
			if !missing.Equal(n.never) {
				n.never, since = missing, time.Now()
			}
			now, _, err := positions(ctx, c.leader.db)
			if err != nil {
				return err
			}
			if missing.Empty() || passed(had, has, now) {
				break
			}
			lagging := true
			if v, err := c.view(ctx); err == nil {
				lagging = slices.ContainsFunc(v.Members, func(m api.MemberView) bool {
					return m.Name == n.name && (m.MySQL == nil || m.MySQL.LagBytes == nil || *m.MySQL.LagBytes > 0)
				})
			}
			if !lagging && time.Since(since) >= quiet {
				break
			}
			if lagging {
				since = time.Now()
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: %w (%v)", n.name, errLagging, settleLimit)
			}
			if err := poll.Pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// passed: a follower that has executed something which the leader executed later has executed all of had that is in the
// log: it commits in the log's order. On a cluster that is written to all the time, one is never without lag for long.
func passed(had, has, now gtid.Set) bool { return !has.Intersect(now.Subtract(had)).Empty() }

// rest is how long the nodes are left alone, so that our queries take the share of the time on the one that has worked
// most.
func (c *checker) rest() time.Duration {
	var most time.Duration
	for _, n := range c.all() {
		most, n.worked = max(most, n.worked), 0
	}
	return time.Duration(float64(most) * (1/c.o.Share - 1))
}

// throttle waits as long as the share of the time wants it, and while followers lag or the leader is busy. A cluster
// that cannot be asked is not waited for: what comes next finds out. The error is that of ctx.
func (c *checker) throttle(ctx context.Context) error {
	if err := poll.Pause(ctx, c.rest()); err != nil {
		return err
	}
	if time.Since(c.looked) < time.Second {
		return nil
	}
	said := ""
	for {
		why, err := c.burdened(ctx)
		c.looked = time.Now()
		if err != nil || why == "" {
			return ctx.Err()
		}
		if said == "" {
			c.o.Say("waiting: %s", why)
			said = why
		}
		if err := poll.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// burdened says why the check had better wait; empty: it need not.
func (c *checker) burdened(ctx context.Context) (string, error) {
	v, err := c.view(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range v.Members {
		lag, _, known := m.Lag()
		if known && lag > c.o.MaxLag.Seconds() && slices.Contains(c.res.Nodes, m.Name) {
			return fmt.Sprintf("%s lags by %.1f s, more than --max-lag", m.Name, lag), nil
		}
	}
	rows, err := c.leader.rows(ctx, quickLimit, "SHOW GLOBAL STATUS LIKE 'Threads_running'")
	if err != nil || len(rows) != 1 {
		return "", err
	}
	var running int
	if _, err := fmt.Sscan(rows[0]["value"], &running); err == nil && running > c.o.MaxBusy {
		return fmt.Sprintf("%d threads run on %s, more than --max-running", running, c.leader.name), nil
	}
	return "", nil
}
