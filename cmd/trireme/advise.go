package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/advise"
	"trireme/internal/ops/cli"
)

// adviseCmd is `trireme advise`.
type adviseCmd struct {
	remote
	account
	For  time.Duration `default:"5s" help:"How long to look at what happens now: waits for rows, appliers. Default: ${default}."`
	JSON bool          `help:"Print the findings as JSON."`
}

// Run looks and says what it found.
func (c *adviseCmd) Run(e *env) error {
	if c.For < 0 || c.For > time.Hour {
		return usagef("--for=%v: give an hour at most", c.For)
	}
	password, err := c.password()
	if err != nil {
		return err
	}
	view, err := ask(c.remote, e, reads, func(client *api.Client, ctx context.Context) (api.ClusterView, error) {
		return client.Cluster(ctx)
	})
	if err != nil {
		return err
	}
	facts, err := advise.Look(e.ctx, advise.Options{View: view, User: c.User, Password: password, For: c.For})
	if err != nil {
		return err
	}
	findings := advise.Judge(facts)
	warns := slices.ContainsFunc(findings, func(f advise.Finding) bool { return f.Severity == advise.Warn })
	if c.JSON {
		err = printJSON(e.out, struct {
			OK       bool             `json:"ok"`
			Cluster  string           `json:"cluster"`
			Tables   int              `json:"tables"`
			Findings []advise.Finding `json:"findings"`
		}{!warns, view.Cluster, len(facts.Tables), slices.Concat([]advise.Finding{}, findings)})
	} else {
		printAdvice(e, facts, findings)
	}
	if err == nil && warns {
		return cli.Silent(exitFailed)
	}
	return err
}

func printAdvice(e *env, facts advise.Facts, findings []advise.Finding) {
	for _, f := range findings {
		fmt.Fprintf(e.out, "%s %s: %s\n", f.Severity, f.Code, f.Where)
		for _, part := range [][2]string{{"      ", f.What}, {"costs ", f.Cost}, {"do    ", f.Do}} {
			for i, line := range cli.Wrap(part[1], 90) {
				label := part[0]
				if i > 0 {
					label = "      "
				}
				fmt.Fprintf(e.out, "  %s%s\n", label, line)
			}
		}
	}
	fmt.Fprintf(e.out, "%s of %s and %s were looked at: %s\n", count(len(facts.Tables), "table", "tables"),
		facts.View.Leader, count(len(facts.Nodes)-1, "follower", "followers"), count(len(findings), "finding", "findings"))
}
