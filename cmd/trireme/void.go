package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
)

// voidCmd is `trireme void`.
type voidCmd struct {
	remote
	Without []string `placeholder:"NODE,…" help:"Nodes that cannot be started. Data with the entry is thrown away."`
	GTID    string   `name:"gtid" placeholder:"GTID" help:"Do not ask; refuse unless this is the entry's."`
	DryRun  bool     `help:"Only report what would be lost."`
	JSON    bool     `help:"Print the report, or with --gtid the result, as JSON."`
}

// voidPatience is how long nodes may take to go on after the entry; voidPoll how often they are looked at.
const (
	voidPatience = 2 * time.Minute
	voidPoll     = 250 * time.Millisecond
)

// Run shows the report, asks for the GTID, and waits until the cluster takes writes.
func (c *voidCmd) Run(e *env) error {
	if c.DryRun && c.GTID != "" {
		return usagef("--dry-run and --gtid exclude each other")
	}
	if c.JSON && !c.DryRun && c.GTID == "" {
		return usagef("--json goes with --dry-run or --gtid: with neither the GTID is asked for")
	}
	req := api.VoidRequest{Without: c.Without, By: whoAmI()}
	rep, err := c.request(e, req)
	if err != nil {
		return err
	}
	if !c.JSON {
		printVoid(e, rep)
	}
	switch {
	case c.DryRun && c.JSON:
		if err := printJSON(e.out, rep); err != nil {
			return err
		}
	case rep.Problem != "" && c.JSON:
		return api.Errorf(rep.ProblemKind, "nothing is changed: %s", rep.Problem).With("%s", rep.Advice)
	}
	if c.DryRun || rep.Problem != "" {
		if rep.Problem != "" {
			return errSilent(exitFailed)
		}
		return nil
	}
	if req.GTID = c.GTID; req.GTID == "" {
		e.ask("\nType the GTID to go on: ")
		if err := typed(e, rep.Entry.GTID, "the GTID"); err != nil {
			return err
		}
		req.GTID = rep.Entry.GTID
	}
	if rep, err = c.request(e, req); err != nil {
		return err
	}
	leader, err := c.await(e, rep)
	if c.JSON {
		if jsonErr := printJSON(e.out, rep); jsonErr != nil {
			return jsonErr
		}
		return err
	}
	fmt.Fprintf(e.out, "Entry %d is void.\n", rep.Entry.Index)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%s takes writes. Run `trireme check` now.\n", leader)
	return nil
}

func (c *voidCmd) request(e *env, req api.VoidRequest) (api.VoidReport, error) {
	return ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (api.VoidReport, error) {
		return client.Void(ctx, req)
	})
}

// await waits until a leader takes writes, which has gone on after the entry.
func (c *voidCmd) await(e *env, rep api.VoidReport) (leader string, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, voidPatience)
	defer cancel()
	for {
		rctx, done := context.WithTimeout(ctx, probeTimeout)
		var v api.ClusterView
		if client, cerr := c.client(rctx, false); cerr == nil {
			v, _ = client.Cluster(rctx) // an error: asked again
			client.Close()
		}
		done()
		switch b := v.Blocked; {
		case b != nil && b.Index > rep.Entry.Index:
			return "", api.Errorf(api.KindConflict, "entry %d cannot be applied either (%s)", b.Index, b.Entry).
				With("see what it loses: trireme void --dry-run")
		case b == nil && v.Leader != "":
			return v.Leader, nil
		}
		select {
		case <-ctx.Done():
			return "", api.Errorf(api.KindTimeout, "it is decided, but no leader takes writes after %v", voidPatience).
				With("see `trireme status`")
		case <-time.After(voidPoll):
		}
	}
}

func printVoid(e *env, rep api.VoidReport) {
	b := rep.Entry
	para := func(format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...), 98) {
			fmt.Fprintln(e.out, line)
		}
	}
	para("Entry %d, %s, which %s wrote: %s.", b.Index, b.GTID, b.Node, b.Entry)
	para("%s could not apply it, error %d: %s", strings.Join(b.Nodes, ", "), b.Number, b.Error)
	fmt.Fprintln(e.out)
	if rep.Problem != "" {
		para("It would not be declared void: %s.", rep.Problem)
		para("%s", rep.Advice)
		return
	}
	para("%s", rep.Loss)
}
