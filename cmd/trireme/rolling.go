package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
	"trireme/internal/ops/rolling"
)

// restartCmd is `trireme restart`.
type restartCmd struct{ turns }

// Run restarts.
func (c *restartCmd) Run(e *env) error { return c.turns.run(e, false) }

// upgradeCmd is `trireme upgrade`.
type upgradeCmd struct{ turns }

// Run upgrades.
func (c *upgradeCmd) Run(e *env) error { return c.turns.run(e, true) }

// turns is what verbs have in common that take one node after the other.
type turns struct {
	remote
	Nodes        []string      `arg:"" optional:"" name:"node" help:"Only these. Default: all."`
	Command      string        `name:"run" placeholder:"COMMAND" help:"Shell command that does it to one node, whose name is in $$TRIREME_NODE and host in $$TRIREME_HOST, such as 'ssh $$TRIREME_HOST systemctl restart trireme'. Default: the verb asks you to do it."`
	Patience     time.Duration `default:"15m" placeholder:"TIME" help:"How long a node may take until it is healthy again. Default: ${default}."`
	AcceptOutage bool          `help:"Continue although writes are refused while a node restarts, with fewer than three voters."`
	DryRun       bool          `help:"Show the order, and what prevents it; change nothing."`
	Yes          bool          `help:"Do not ask before writes go to another series of MySQL."`
	JSON         bool          `help:"Print the result as JSON; what happens goes to standard error."`
}

// run gives each node its turn, and prints what became of it.
func (c *turns) run(e *env, upgrade bool) error {
	if c.Patience <= 0 {
		return usagef("--patience=%v is no time", c.Patience)
	}
	say := e.progress(c.JSON)
	o := rolling.Options{Nodes: c.Nodes, Upgrade: upgrade, AcceptOutage: c.AcceptOutage, Patience: c.Patience,
		Poll: time.Second, View: func(context.Context) (api.ClusterView, error) {
			return ask(c.remote, e, reads, (*api.Client).Cluster)
		},
		Switchover: func(_ context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
			return have(c.remote, e, api.Switchover, req)
		},
		Act:     func(ctx context.Context, m api.MemberView) error { return c.act(ctx, e, say, m) },
		Confirm: func(question string) error { return c.confirm(e, question) },
		Say:     func(format string, args ...any) { fmt.Fprintf(say, format+"\n", args...) },
	}
	if c.DryRun {
		return c.plan(e, o)
	}
	res, err := rolling.Run(e.ctx, o)
	if c.JSON {
		if jsonErr := printJSON(e.out, res); err == nil {
			err = jsonErr
		}
	}
	if err != nil && len(res.Left) > 0 {
		return fmt.Errorf("%w\nnot done: %s; the same command with these names continues", err, strings.Join(res.Left, " "))
	}
	if err == nil && !c.JSON {
		fmt.Fprintf(e.out, "all done: %s\n", count(len(res.Steps), "node", "nodes"))
	}
	return err
}

// plan is a dry run.
func (c *turns) plan(e *env, o rolling.Options) error {
	v, err := o.View(e.ctx)
	if err != nil {
		return err
	}
	order, problem := rolling.Plan(v, o)
	if order == nil {
		return problem
	}
	if c.JSON {
		res := struct {
			Cluster     string   `json:"cluster"`
			Order       []string `json:"order"`
			Problem     string   `json:"problem,omitempty"`
			ProblemKind api.Kind `json:"problem_kind,omitempty"` // of the error that it would be
		}{Cluster: v.Cluster, Order: order}
		if problem != nil {
			res.Problem, res.ProblemKind = problem.Error(), cli.Failure(problem, kindsOf).Kind
		}
		err = printJSON(e.out, res)
	} else {
		for i, name := range order {
			what := ""
			if name == v.Leader && len(v.Members) > 1 {
				what = ", once it has handed leadership over"
			}
			fmt.Fprintf(e.out, "%d. %s%s\n", i+1, name, what)
		}
		if problem != nil {
			fmt.Fprintf(e.out, "it would not begin: %v\n", problem)
		}
	}
	if err == nil && problem != nil {
		return cli.Silent(exitFailed)
	}
	return err
}

// act runs the command for one node, or asks the operator to act.
func (c *turns) act(ctx context.Context, e *env, say io.Writer, m api.MemberView) error {
	host, _, err := net.SplitHostPort(m.Daemon.API)
	if err != nil {
		return fmt.Errorf("the address of %s, %q, is no host and port", m.Name, m.Daemon.API)
	}
	if c.Command == "" {
		fmt.Fprintf(say,
			"restart the daemon of %s on %s now (as a service: systemctl restart trireme); --run COMMAND would do it for you\n",
			m.Name, host)
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Command)
	cmd.Env = append(os.Environ(), "TRIREME_NODE="+m.Name, "TRIREME_HOST="+host)
	cmd.Stdout, cmd.Stderr = e.errOut, e.errOut
	cmd.WaitDelay = 5 * time.Second // what it started may hold its output open
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the command failed for %s: %w", m.Name, err)
	}
	return nil
}

// confirm wants a yes.
func (c *turns) confirm(e *env, question string) error {
	if c.Yes {
		return nil
	}
	e.ask("%s\nType yes to continue: ", question)
	typed, err := e.typed()
	if err != nil {
		return err
	}
	if typed != "yes" {
		return usagef("stopped before the switchover: %q is not \"yes\"; type it, or give --yes", typed)
	}
	return nil
}
