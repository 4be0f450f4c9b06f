package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/cli"
)

// controlTimeout is for verbs that change something; the node gives up a little earlier and says why.
const controlTimeout = 2*time.Minute + 15*time.Second

// switchoverCmd is `trireme switchover`.
type switchoverCmd struct {
	remote
	To     string `placeholder:"NODE" help:"New leader. Default: the best candidate."`
	DryRun bool   `help:"Say what would happen and whether it would work; change nothing."`
	trxPolicy
	IfTerm uint64 `placeholder:"TERM" help:"Refuse unless this is still the term, as a dry run or status showed it."`
	JSON   bool   `help:"Print the result as JSON."`
}

// trxPolicy says what becomes of open transactions when leadership moves by plan.
type trxPolicy struct {
	OnOpenTrx string `name:"on-open-trx" default:"wait=2s" placeholder:"wait=TIME|kill" help:"What a leader does with open transactions: let them end for a time, then roll them back; or roll them back at once. Default: ${default}."`
}

// wait reads --on-open-trx.
func (c *trxPolicy) wait() (time.Duration, error) {
	if c.OnOpenTrx == "kill" {
		return 0, nil
	}
	text, found := strings.CutPrefix(c.OnOpenTrx, "wait=")
	d, err := time.ParseDuration(text)
	if !found || err != nil || d < 0 || d > api.MaxTrxWait {
		return 0, usagef("--on-open-trx=%s is neither \"kill\" nor \"wait=TIME\" with a time up to %v, such as wait=2s",
			c.OnOpenTrx, api.MaxTrxWait)
	}
	return d, nil
}

// Run asks for the switchover and prints its outcome.
func (c *switchoverCmd) Run(e *env) error {
	wait, err := c.wait()
	if err != nil {
		return err
	}
	res, err := ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (res api.SwitchoverResult,
		err error) {
		if c.To != "" {
			if err := checkNode(ctx, client, c.To); err != nil {
				return res, err
			}
		}
		return api.Switchover.Ask(ctx, client, api.SwitchoverRequest{To: c.To, DryRun: c.DryRun, IfTerm: c.IfTerm,
			OpenTrxWait: &wait})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(e.out, res)
	} else {
		printSwitchover(e, res, wait)
	}
	if err == nil && res.Problem != "" {
		return cli.Silent(exitFailed)
	}
	return err
}

func printSwitchover(e *env, res api.SwitchoverResult, wait time.Duration) {
	if !res.DryRun {
		fmt.Fprintln(e.out, res.Text())
		if res.OpenCount > 0 {
			fmt.Fprintf(e.out, "%s rolled back, since still open after %v:\n", count(res.OpenCount, "transaction was",
				"transactions were"), wait)
			printTransactions(e, res)
		}
		return
	}
	if res.Problem != "" {
		fmt.Fprintf(e.out, "it would not work; %s stays the leader of term %d\n", res.From, res.Term)
		for _, line := range cli.Wrap(res.Problem, 98) {
			fmt.Fprintf(e.out, "  %s\n", line)
		}
	} else {
		fmt.Fprintf(e.out, "leadership would move from %s (term %d) to %s; writes would be held for about %.0f ms\n",
			res.From, res.Term, res.To, res.WriteGapMS)
		if res.OpenCount > 0 {
			fmt.Fprintf(e.out, "%s now; what is open still after %v would be rolled back:\n",
				count(res.OpenCount, "transaction is open", "transactions are open"), wait)
			printTransactions(e, res)
		}
		if res.TiedSessions != nil {
			n, why := api.TiedText(res.TiedSessions)
			for _, line := range cli.Wrap(count(n, "session", "sessions")+" would end, which cannot be carried over: "+why,
				cli.MaxColumns) {
				fmt.Fprintln(e.out, line)
			}
		}
	}
	rows := [][]string{{"NODE", "ELIGIBLE", "WHY"}}
	for _, c := range res.Candidates {
		rows = append(rows, []string{c.Name, map[bool]string{true: "yes", false: "no"}[c.Eligible], c.Reason})
	}
	if len(rows) > 1 {
		cli.PrintTable(e.out, rows)
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func printTransactions(e *env, res api.SwitchoverResult) {
	for _, t := range res.OpenTransactions {
		fmt.Fprintf(e.out, "  %s@%s, open for %d s, %s", t.User, t.Host, t.AgeS,
			count(int(t.Rows), "row changed", "rows changed"))
		if t.Statement != "" {
			fmt.Fprintf(e.out, ": %s", strings.Join(strings.Fields(t.Statement), " "))
		}
		fmt.Fprintln(e.out)
	}
	if more := res.OpenCount - len(res.OpenTransactions); more > 0 {
		fmt.Fprintf(e.out, "  and %d more\n", more)
	}
}

// checkNode finds a misspelt node before anything is asked of the cluster.
func checkNode(ctx context.Context, client *api.Client, name string) error {
	view, err := client.Cluster(ctx)
	if err != nil {
		return err
	}
	names := namesOf(view)
	if !slices.Contains(names, name) {
		return api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(names, " "))
	}
	return nil
}

func namesOf(view api.ClusterView) []string {
	names := make([]string, len(view.Members))
	for i, m := range view.Members {
		names[i] = m.Name
	}
	return names
}

// historyCmd is `trireme history`.
type historyCmd struct {
	remote
	JSON bool `help:"Print GET /history as it is."`
}

// Run prints the events, oldest first.
func (c *historyCmd) Run(e *env) error {
	events, err := ask(c.remote, e, reads, (*api.Client).History)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, events)
	}
	for _, ev := range events {
		printEvent(e.out, ev)
	}
	return nil
}

func printEvent(w io.Writer, ev api.Event) {
	head := fmt.Sprintf("%s  term %-4d %-4s %-10s ", ev.Time.Local().Format("2006-01-02 15:04:05.000"), ev.Term, ev.Node,
		ev.Kind)
	text := ev.Message
	if ev.By != "" {
		text += ", by " + ev.By
	}
	if ev.FromIncarnation == 0 && ev.GTIDs != "" {
		text += " " + ev.GTIDs
	}
	lines := cli.Wrap(text, 100-len(head))
	if p := ev.Phases; p != nil {
		figures := fmt.Sprintf("detect %.0f, close %.0f, vote %.0f, apply %.0f, open %.0f, route %.0f ms",
			p.DetectMS, p.CloseMS, p.VoteMS, p.ApplyMS, p.OpenMS, p.RouteMS)
		if ev.GapMS > 0 {
			figures = fmt.Sprintf("%.0f ms without writes: %s", ev.GapMS, figures)
		}
		lines = append(lines, cli.Wrap(figures, 100-len(head))...)
	}
	if r := ev.RolledBack; r != nil && (!r.Known || r.Count > 0) {
		lines = append(lines, cli.Wrap(rolledBackText(ev.From, r), 100-len(head))...)
	}
	for i, line := range lines {
		if i > 0 {
			head = strings.Repeat(" ", len(head))
		}
		fmt.Fprintln(w, head+line)
	}
}

func rolledBackText(from string, r *api.RolledBack) string {
	if !r.Known {
		return "what " + from + " rolled back is known when its mysqld has rejoined"
	}
	if r.More {
		return fmt.Sprintf("%s rolled back at least %s, none acknowledged: %s …", from,
			count(int(r.Count), "transaction", "transactions"), r.GTIDs)
	}
	return fmt.Sprintf("%s rolled back %s, none acknowledged: %s", from,
		count(int(r.Count), "transaction", "transactions"), r.GTIDs)
}

// addCmd is `trireme add`.
type addCmd struct {
	remote
	Name string        `arg:"" help:"Name of the new node."`
	Role string        `default:"voter" enum:"voter,logger,learner" help:"voter (mysqld and vote), logger (vote without mysqld) or learner (mysqld without vote)."`
	TTL  time.Duration `name:"ttl" default:"1h" help:"How long the token is valid."`
	changeFlags
}

// Run makes the token and prints the command to run on the new host.
func (c *addCmd) Run(e *env) error {
	if err := config.CheckName("node", c.Name); err != nil {
		return usagef("%v", err)
	}
	res, err := have(c.remote, e, api.NewJoinToken, api.JoinTokenRequest{Name: c.Name, Role: c.Role, TTL: c.TTL,
		IfTerm: c.IfTerm})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	role := ""
	if res.Role != config.RoleVoter {
		role = " --role " + res.Role
	}
	fmt.Fprintf(e.out, "On the new host, before %s, run:\n\n  trireme join --name %s%s --host %[2]s -\n\n",
		res.Expires.Local().Format("2006-01-02 15:04"), c.Name, role)
	fmt.Fprintf(e.out, "--host is the name or address by which the other nodes reach it.\n")
	fmt.Fprintf(e.out,
		"It reads this token from its standard input; an argument could be seen by every account of that host:\n\n%s\n\n",
		res.Token)
	fmt.Fprintf(e.out, "The token works once. Anybody who has it can become a node and read all data.\n")
	return nil
}
