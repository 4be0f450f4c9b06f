package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/setup"
)

// inviteTTL is how long an invitation is good for; it is used at once.
const inviteTTL = 10 * time.Minute

// first makes the cluster with its first node, starts it, and makes the application's account once writes are accepted.
func (c *Cluster) first(ctx context.Context) error {
	n := c.nodes[0]
	c.say("%s: trireme init", n.Name)
	o := setup.InitOptions{Node: c.settings(n), CredentialDir: c.opts.CredentialDir, Throwaway: true}
	if c.opts.Template != nil {
		o.Secrets = &c.opts.Template.secrets
	}
	res, err := setup.Init(o)
	if err != nil {
		return fmt.Errorf("init of %s: %w", n.Name, err)
	}
	c.mu.Lock()
	c.state.Token = res.Credential.Token
	c.mu.Unlock()
	if err := c.begin(ctx, n); err != nil {
		return err
	}
	if err := c.whileRunning(ctx, n, n.Name+" to accept writes", func() error { return c.primary(ctx, n) }); err != nil {
		return err
	}
	return c.makeAccount(ctx, n)
}

// primary is nil when a node says that it takes writes.
func (c *Cluster) primary(ctx context.Context, n *Node) error {
	_, err := ask(ctx, c.Client(n), func(cl *api.Client, ctx context.Context) (bool, error) {
		ok, h, err := cl.Check(ctx, "/primary")
		if err == nil && !ok {
			err = fmt.Errorf("%s is %s, %s: %s", n.Name, h.Role, h.State, h.Reason)
		}
		return ok, err
	})
	return err
}

// join makes a node a member and starts it.
func (c *Cluster) join(ctx context.Context, n *Node) error {
	c.say("%s: trireme add, trireme join (%s)", n.Name, n.Role)
	if err := c.invite(ctx, n); err != nil {
		return err
	}
	return c.begin(ctx, n)
}

// begin starts a node for the first time.
func (c *Cluster) begin(ctx context.Context, n *Node) error {
	if c.opts.Template != nil && n.Role != config.RoleLogger {
		if err := c.opts.Template.fill(ctx, c.settings(n)); err != nil {
			return err
		}
		if c.opts.Filled != nil {
			if err := c.opts.Filled(n); err != nil {
				return err
			}
		}
	}
	return c.Start(n)
}

// Add makes one more node a member and starts its daemon; it does not wait for it (WaitMember). No other goroutine may
// use the cluster's list of nodes meanwhile.
func (c *Cluster) Add(ctx context.Context, name, role string) (*Node, error) {
	ports, err := sparePorts()
	if err != nil {
		return nil, err
	}
	n := c.layOutNode(name, role, ports)
	err = c.settle(n)
	if err == nil {
		err = c.join(ctx, n)
	}
	if err != nil {
		c.Forget(n)
		return nil, err
	}
	return n, nil
}

// Forget ends a node's daemon and takes it from the list; whether it is a member is another matter.
func (c *Cluster) Forget(n *Node) {
	close(n.gone)
	if p := n.process(); p != nil {
		p.Kill()
	}
	release(n.Ports)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = slices.DeleteFunc(slices.Clone(c.nodes), func(o *Node) bool { return o == n })
	c.state.Nodes = slices.DeleteFunc(slices.Clone(c.state.Nodes), func(s NodeState) bool { return s.Name == n.Name })
}

// invite makes a node a member and its directory.
func (c *Cluster) invite(ctx context.Context, n *Node) error {
	cl := c.Client(c.nodes[0])
	defer cl.Close()
	invitation, err := api.NewJoinToken.Ask(ctx, cl, api.JoinTokenRequest{Name: n.Name, Role: n.Role, TTL: inviteTTL})
	if err != nil {
		return fmt.Errorf("invitation of %s: %w", n.Name, err)
	}
	if _, err := setup.Join(ctx, setup.JoinOptions{Token: invitation.Token, Node: c.settings(n), Role: n.Role,
		Listen: c.listen(n)}); err != nil {
		return fmt.Errorf("join of %s: %w", n.Name, err)
	}
	return nil
}

// WaitMember waits until a node is a healthy member, and has its vote if it is to have one.
func (c *Cluster) WaitMember(ctx context.Context, n *Node) error {
	return c.whileRunning(ctx, n, n.Name+" to become a healthy member", func() error { return c.healthyMember(ctx, n) })
}

func (c *Cluster) healthyMember(ctx context.Context, n *Node) error {
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	return n.Joined(v)
}

// Joined says what a node lacks in a view to be a healthy member, with its vote if it is to have one; nil: nothing.
// Until it has heard that it has its vote it cannot take over, however healthy it is.
func (n *Node) Joined(v api.ClusterView) error {
	for _, m := range v.Members {
		if m.Name != n.Name {
			continue
		}
		if m.State != api.StateHealthy || n.Role != config.RoleLearner && !m.Raft.Voter {
			return fmt.Errorf("%s is %s, voter %v: %s", m.Name, m.State, m.Raft.Voter, m.Reason)
		}
		return nil
	}
	return fmt.Errorf("%s is not a member yet", n.Name)
}
