package main

import (
	"context"
	"fmt"

	"trireme/internal/api"
)

// failoverCmd is `trireme failover`.
type failoverCmd struct {
	remote
	To    string `placeholder:"NODE" help:"New leader. Default: the best candidate."`
	Force bool   `help:"Even if the leader is healthy."`
	Yes   bool   `help:"Do not ask."`
	changeFlags
}

// Run asks first who it would be, has that confirmed, and asks for exactly that.
func (c *failoverCmd) Run(e *env) error {
	res, err := ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (res api.FailoverResult,
		err error) {
		if c.To != "" {
			if err := checkNode(ctx, client, c.To); err != nil {
				return res, err
			}
		}
		req := api.FailoverRequest{To: c.To, Force: c.Force, IfTerm: c.IfTerm}
		if !c.Yes {
			req.DryRun = true
			if res, err = api.Failover.Ask(ctx, client, req); err != nil {
				return res, err
			}
			if err := c.confirm(e, res); err != nil {
				return res, err
			}
			req.DryRun, req.To, req.IfTerm = false, res.To, res.Term
		}
		return api.Failover.Ask(ctx, client, req)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	before := ""
	if res.From != "" {
		before = " (before: " + res.From + ")"
	}
	fmt.Fprintf(e.out, "%s leads now, in term %d%s; that took %.0f ms\n", res.To, res.Term, before, res.TookMS)
	return nil
}

// confirm wants the new leader's name typed.
func (c *failoverCmd) confirm(e *env, res api.FailoverResult) error {
	from := res.From
	if from == "" {
		from = "the old leader"
	}
	e.ask("Leadership moves from %s (term %d) to %s without %s's help: its clients are cut, and what was not\n"+
		"acknowledged to them is rolled back. Type the new leader's name to continue: ", from, res.Term, res.To, from)
	return typed(e, res.To, "the node's name", "--yes")
}
