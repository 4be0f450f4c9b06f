package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/ops/check"
	"trireme/internal/ops/cli"
)

// account is the flags of verbs that log in to the nodes' mysqlds.
type account struct {
	User         string `default:"trireme_check" help:"Account on the servers. Default: ${default}."`
	PasswordFile string `type:"path" placeholder:"FILE" help:"File with its password, mode 0600. Default: $$TRIREME_MYSQL_PASSWORD; without that, none."`
}

func (a account) password() (string, error) {
	if a.PasswordFile == "" {
		return os.Getenv("TRIREME_MYSQL_PASSWORD"), nil
	}
	if err := config.CheckPrivate(a.PasswordFile); err != nil {
		return "", err
	}
	b, err := os.ReadFile(a.PasswordFile)
	return strings.TrimRight(string(b), "\r\n"), err
}

// checkCmd is `trireme check`.
type checkCmd struct {
	remote
	account
	Table      []string      `placeholder:"SCHEMA.TABLE" help:"Only this table, or all of a schema; may be given again. mysql: the accounts."`
	Share      float64       `default:"0.2" help:"Share of the time in which each node works for the check: 1 is as fast as it can. Default: ${default}."`
	MaxLag     time.Duration `default:"2s" help:"Wait while a follower lags by more than this. Default: ${default}."`
	MaxRunning int           `default:"32" help:"Wait while more threads run on the leader. Default: ${default}."`
	State      string        `type:"path" placeholder:"FILE" help:"File that records the progress: after an interruption the same command continues."`
	Every      time.Duration `placeholder:"TIME" help:"Check again and again, with this much time from start to start, until Ctrl-C."`
	Repair     bool          `help:"Copy the data again of nodes that differ from the majority (trireme reinit), one after the other, and compare again."`
	JSON       bool          `help:"Print the result as JSON; with --every one document for each round."`
}

// Run compares, says what differs, and repairs.
func (c *checkCmd) Run(e *env) error {
	switch {
	case c.Share <= 0 || c.Share > 1:
		return usagef("--share=%v must be more than 0 and at most 1", c.Share)
	case c.MaxLag <= 0 || c.MaxRunning < 1:
		return usagef("--max-lag and --max-running must be more than 0")
	case c.Every < 0:
		return usagef("--every=%v is no time", c.Every)
	case c.Every > 0 && c.Repair:
		return usagef("--repair cannot be combined with --every: a person must decide to delete data")
	}
	for {
		began := time.Now()
		err := c.once(e)
		if c.Every == 0 {
			return err
		}
		if err != nil && e.ctx.Err() == nil {
			_ = e.report(err) // the next round may fare better
		}
		if poll.Pause(e.ctx, time.Until(began.Add(c.Every))) != nil {
			return nil
		}
	}
}

// once is one round.
func (c *checkCmd) once(e *env) error {
	password, err := c.password()
	if err != nil {
		return err
	}
	client, err := c.client(e.ctx, c.Repair)
	if err != nil {
		return err
	}
	defer client.Close()
	line := &progressLine{w: e.errOut}
	o := check.Options{Cluster: check.Ask{Client: client}, User: c.User, Password: password, Only: c.Table, Share: c.Share,
		MaxLag: c.MaxLag, MaxBusy: c.MaxRunning, State: c.State, Say: line.say,
		Progress: func(p check.Progress) { line.show(checkText(p)) }}
	res, err := check.Run(e.ctx, o)
	if err == nil && c.Repair && len(res.Differences) > 0 {
		line.end()
		printCheck(e.errOut, res)
		res, err = check.Repair(e.ctx, o, res)
	}
	line.end()
	if err != nil {
		return c.failed(e.ctx, err)
	}
	if c.JSON {
		err = printJSON(e.out, struct {
			OK bool `json:"ok"`
			check.Result
		}{res.OK(), res})
	} else {
		printCheck(e.out, res)
	}
	if err == nil && !res.OK() {
		return cli.Silent(exitFailed)
	}
	return err
}

func (c *checkCmd) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		if c.State != "" {
			return api.Errorf(api.KindInterrupted, "interrupted").With("the same command goes on")
		}
		return api.Errorf(api.KindInterrupted, "interrupted").With("with --state FILE the next run continues")
	}
	if check.Unreachable(err) {
		return api.Errorf(api.KindNoLeader, "%v", err).With("see `trireme status`")
	}
	return err
}

func printCheck(w io.Writer, r check.Result) {
	for _, d := range r.Differences {
		fmt.Fprintln(w, d)
	}
	for _, n := range r.NotChecked {
		fmt.Fprintf(w, "not checked: %s: %s\n", n.What, n.Why)
	}
	for _, name := range r.LeftOut {
		fmt.Fprintf(w, "left out: node %s, which is delayed on purpose\n", name)
	}
	verdict := "are equal"
	if !r.OK() {
		verdict = "were compared: " + count(len(r.Differences), "difference", "differences") + ", " +
			fmt.Sprint(len(r.NotChecked)) + " not checked"
	}
	fmt.Fprintf(w, "%s, %s on %s %s (%v; %s looked at under a lock)\n", count(r.Tables, "table", "tables"),
		count(int(r.Rows), "row", "rows"), strings.Join(r.Nodes, " "), verdict, r.Ended.Sub(r.Began).Round(100*time.Millisecond),
		count(r.Locked, "range was", "ranges were"))
}

// checkText says how far a check is.
func checkText(p check.Progress) string {
	return fmt.Sprintf("%s: %d of about %d rows, %.0f rows/s, about %v left", p.Table, p.Rows, p.TotalRows, p.RowsPerSec,
		p.Left.Round(time.Second))
}
