package main

import (
	"context"
	"fmt"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

// leaveCmd is `trireme leave`.
type leaveCmd struct {
	remote
	DryRun bool `help:"Say what would become of each node and whether it would work; change nothing."`
	trxPolicy
	IfTerm uint64 `placeholder:"TERM" help:"Refuse unless this is still the term, as a dry run or status showed it."`
	Yes    bool   `help:"Do not ask for the cluster's name."`
	JSON   bool   `help:"Print the result as JSON."`
}

// Run ends the cluster and says what is left.
func (c *leaveCmd) Run(e *env) error {
	wait, err := c.wait()
	if err != nil {
		return err
	}
	res, err := ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (api.LeaveResult, error) {
		req := api.LeaveRequest{DryRun: true, IfTerm: c.IfTerm, OpenTrxWait: &wait}
		res, err := api.Leave.Ask(ctx, client, req)
		if err != nil || c.DryRun || res.Problem != "" {
			return res, err
		}
		if err := c.confirm(e, res.Cluster); err != nil {
			return res, err
		}
		req.DryRun = false
		return api.Leave.Ask(ctx, client, req)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(e.out, res)
	} else {
		printLeave(e, res)
	}
	if err == nil && res.Problem != "" {
		return cli.Silent(exitFailed)
	}
	return err
}

// confirm wants the cluster's name typed: no daemon starts on these directories again.
func (c *leaveCmd) confirm(e *env, cluster string) error {
	if c.Yes {
		return nil
	}
	e.ask("Cluster %s ends: its servers become a plain source and replicas, without failover.\nType the cluster's name to continue: ", cluster)
	typed, err := e.typed()
	if err != nil {
		return err
	}
	if typed != cluster {
		return usagef("nothing was done: %q is not %q; type the cluster's name, or give --yes", typed, cluster)
	}
	return nil
}

func printLeave(e *env, r api.LeaveResult) {
	would := "is"
	if r.DryRun {
		would = "would be"
	}
	if r.Problem != "" {
		fmt.Fprintf(e.out, "it would not work; the cluster continues: %s\n", r.Problem)
		return
	}
	fmt.Fprintf(e.out, "%s (%s) %s a plain source\n", r.Source.Name, r.Source.Addr, would)
	for _, s := range r.Replicas {
		fmt.Fprintf(e.out, "%s (%s) %s its replica, read-only, as %s\n", s.Name, s.Addr, would, r.Account)
	}
	for _, name := range r.Loggers {
		fmt.Fprintf(e.out, "%s %s gone: it has no data\n", name, would)
	}
	if r.OpenCount > 0 && r.DryRun {
		fmt.Fprintf(e.out, "%s now\n", count(r.OpenCount, "transaction is open", "transactions are open"))
	} else if r.OpenCount > 0 {
		fmt.Fprintf(e.out, "%s rolled back\n", count(r.OpenCount, "open transaction was", "open transactions were"))
	}
	if !r.DryRun {
		fmt.Fprintln(e.out,
			"Each daemon's process becomes its mysqld now, with DIR/mysql/my.cnf-plain; change the unit files to start that (docs/ops/leave.md).")
	}
}
