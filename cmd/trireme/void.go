package main

import (
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

// voidCmd is `trireme void`.
type voidCmd struct{ decision }

// forceApplyCmd is `trireme force-apply`.
type forceApplyCmd struct{ decision }

// decision is what an operator decides about the entry that blocks a cluster.
type decision struct {
	remote
	Without []string `placeholder:"NODE,…" help:"Nodes that cannot be started. If their data has the entry, it is deleted when they come back."`
	GTID    string   `name:"gtid" placeholder:"GTID" help:"Do not ask; refuse unless this is the entry's."`
	DryRun  bool     `help:"Only report what would or may be lost."`
	JSON    bool     `help:"Print the report, or with --gtid the result, as JSON."`
}

// outcome says how a decision is sent and told.
type outcome struct {
	send api.Verb[api.VoidRequest, api.VoidReport]
	verb string // what would be done to the entry
	done string // with the entry's number
}

// voidPatience is how long nodes may take to go on after the entry.
const voidPatience = 2 * time.Minute

// Run gives the entry up.
func (c *voidCmd) Run(e *env) error {
	return c.run(e, outcome{api.Void, "declared void", "Entry %d is void.\n"})
}

// Run has the entry applied.
func (c *forceApplyCmd) Run(e *env) error {
	return c.run(e, outcome{api.ForceApply, "applied", "All nodes apply entry %d without foreign key checks.\n"})
}

// run shows the report, asks for the GTID, and waits until the cluster takes writes.
func (c *decision) run(e *env, o outcome) error {
	if c.DryRun && c.GTID != "" {
		return usagef("--dry-run and --gtid exclude each other")
	}
	if c.JSON && !c.DryRun && c.GTID == "" {
		return usagef("--json goes with --dry-run or --gtid: with neither the GTID is asked for")
	}
	req := api.VoidRequest{Without: c.Without, By: whoAmI()}
	rep, err := c.request(e, o, req)
	if err != nil {
		return err
	}
	if !c.JSON {
		o.print(e, rep)
	}
	if ends, err := planned(e, c.DryRun, c.JSON, rep, refusalOf(rep.ProblemKind, rep.Problem, rep.Advice)); ends {
		return err
	}
	if req.GTID = c.GTID; req.GTID == "" {
		e.ask("\nType the GTID to continue: ")
		if err := typed(e, rep.Entry.GTID, "the GTID", "--gtid"); err != nil {
			return err
		}
		req.GTID = rep.Entry.GTID
	}
	if rep, err = c.request(e, o, req); err != nil {
		return err
	}
	leader, err := c.await(e, rep)
	if c.JSON {
		if jsonErr := printJSON(e.out, rep); jsonErr != nil {
			return jsonErr
		}
		return err
	}
	fmt.Fprintf(e.out, o.done, rep.Entry.Index)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%s takes writes. Run `trireme check` now.\n", leader)
	return nil
}

func (c *decision) request(e *env, o outcome, req api.VoidRequest) (api.VoidReport, error) {
	return have(c.remote, e, o.send, req)
}

// await waits until a leader takes writes, which has gone on after the entry.
func (c *decision) await(e *env, rep api.VoidReport) (leader string, err error) {
	what := fmt.Sprintf("a leader that takes writes; the nodes restart their mysqld and continue after entry %d",
		rep.Entry.Index)
	seen := c.until(e, voidPatience, what, func(v api.ClusterView) bool {
		if b := v.Blocked; b != nil && b.Index > rep.Entry.Index {
			err = api.Errorf(api.KindConflict, "entry %d cannot be applied either (%s)", b.Index, b.Entry).
				With("see what it loses: trireme void --dry-run")
		} else if b == nil {
			leader = v.Leader
		}
		return err != nil || leader != ""
	})
	if !seen {
		err = api.Errorf(api.KindTimeout, "it is decided, but no leader takes writes after %v", voidPatience).
			With("see `trireme status`")
	}
	return leader, err
}

func (o outcome) print(e *env, rep api.VoidReport) {
	b := rep.Entry
	para := func(format string, args ...any) {
		for _, line := range cli.Wrap(fmt.Sprintf(format, args...), 98) {
			fmt.Fprintln(e.out, line)
		}
	}
	para("Entry %d, %s, which %s wrote: %s.", b.Index, b.GTID, b.Node, b.Entry)
	para("%s could not apply it, error %d: %s", strings.Join(b.Nodes, ", "), b.Number, b.Error)
	fmt.Fprintln(e.out)
	if rep.Problem != "" {
		para("It would not be %s: %s.", o.verb, rep.Problem)
		para("%s", rep.Advice)
		return
	}
	para("%s", rep.Loss)
}
