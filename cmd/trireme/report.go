package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/control/dashboard"
	"trireme/internal/ops/cli"
)

// reportCmd is `trireme report`.
type reportCmd struct {
	remote
	From    string `placeholder:"TIME" default:"1h" help:"Begin of the period: 2026-11-23T02:40:00Z, 2026-11-23 02:40 (of this host's clock), 02:40 (today), or 90m ago. Default: ${default}."`
	To      string `placeholder:"TIME" default:"0s" help:"End of the period, written in the same way. Default: now."`
	Compare string `placeholder:"EARLIER" help:"An earlier period of the same length to compare with: 1d (a day earlier), 7d, or previous (just before)."`
	Output  string `short:"o" placeholder:"FILE" help:"Where the page goes; - for standard output. Default: trireme-report-CLUSTER-TIME.html in this directory."`
	JSON    bool   `help:"Print the page's data as JSON."`
}

// Run asks every node for what it has recorded and draws the page.
func (c *reportCmd) Run(e *env) error {
	now := time.Now()
	from, err := pointInTime(c.From, now)
	if err != nil {
		return usagef("--from: %v", err)
	}
	to, err := pointInTime(c.To, now)
	if err != nil {
		return usagef("--to: %v", err)
	}
	if !to.After(from) {
		return usagef("the period ends at %s, before it begins at %s", clock(to), clock(from))
	}
	by, err := c.earlierBy(to.Sub(from))
	if err != nil {
		return usagef("--compare: %v", err)
	}
	r, err := ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (r comparedReport, err error) {
		if r.Report, err = gather(ctx, client, from, to); err != nil || by == 0 {
			return r, err
		}
		earlier, err := gather(ctx, client, from.Add(-by), to.Add(-by))
		r.Earlier = &earlier
		return r, err
	})
	if err == nil {
		err = recorded(r.Report)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, r)
	}
	if c.Output == "-" {
		return dashboard.WriteReport(e.out, r.Report, r.Earlier)
	}
	if c.Output == "" {
		c.Output = fmt.Sprintf("trireme-report-%s-%s.html", r.Cluster, from.UTC().Format("20060102T150405Z"))
	}
	file, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := writeReport(file, r); err != nil {
		return fmt.Errorf("%s: %w", c.Output, err)
	}
	for _, n := range r.Nodes {
		if n.Problem != "" {
			fmt.Fprintf(e.errOut, "%s is missing: %s\n", n.Node, n.Problem)
		}
	}
	fmt.Fprintln(e.out, c.Output)
	return nil
}

// comparedReport is what --json prints.
type comparedReport struct {
	api.Report
	Earlier *api.Report `json:"earlier,omitempty"` // --compare
}

// earlierBy is how much earlier the period to compare with lies; 0: no comparison.
func (c *reportCmd) earlierBy(length time.Duration) (time.Duration, error) {
	switch c.Compare {
	case "":
		return 0, nil
	case dashboard.Previous:
		return length, nil
	}
	by, err := cli.Duration(c.Compare)
	if err == nil && by <= 0 {
		err = fmt.Errorf("%q is not a time before", c.Compare)
	}
	return by, err
}

// recorded fails if a report has nothing to show, and says which period has.
func recorded(r api.Report) error {
	var since time.Time
	var problems []string
	for _, n := range r.Nodes {
		if len(n.Buckets) > 0 || len(n.Statements) > 0 {
			return nil
		}
		if n.Oldest != nil && (since.IsZero() || n.Oldest.Before(since)) {
			since = *n.Oldest
		}
		if n.Problem != "" {
			problems = append(problems, n.Node+": "+n.Problem)
		}
	}
	if len(r.Events) > 0 {
		return nil
	}
	begins := "no node that answers has recorded anything yet"
	if !since.IsZero() {
		begins = "what the nodes have recorded begins at " + clock(since)
	}
	return api.Errorf(api.KindNotFound, "nothing was recorded from %s to %s", clock(r.From), clock(r.To)).
		With("%s", strings.Join(append([]string{begins}, problems...), "; "))
}

// writeReport closes the file, too.
func writeReport(file io.WriteCloser, r comparedReport) error {
	err := dashboard.WriteReport(file, r.Report, r.Earlier)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// gather asks all nodes, by way of one of them.
func gather(ctx context.Context, client *api.Client, from, to time.Time) (api.Report, error) {
	view, err := client.Cluster(ctx)
	if err != nil {
		return api.Report{}, err
	}
	events, err := client.History(ctx)
	if err != nil {
		return api.Report{}, err
	}
	return api.MakeReport(view, events, from, to,
		func(node string) (api.PeriodView, error) { return client.Period(ctx, node, from, to) })
}

// pointInTime reads a time of day, or how long ago it is.
func pointInTime(text string, now time.Time) (time.Time, error) {
	if d, err := cli.Duration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, form := range []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04",
		"2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			y, m, d := now.Local().Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.Local), nil
		}
	}
	return time.Time{},
		fmt.Errorf(
			"%q is neither a time such as 2026-11-23T02:40:00Z, \"2026-11-23 02:40\" or 02:40, nor how long ago, such as 90m",
			text)
}
