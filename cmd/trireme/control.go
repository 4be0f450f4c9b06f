package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
)

// controlTimeout is for verbs that change something; the node gives up a little earlier and says why.
const controlTimeout = 2*time.Minute + 15*time.Second

// switchoverCmd is `trireme switchover`.
type switchoverCmd struct {
	remote
	To     string `placeholder:"NODE" help:"New leader. Default: the best candidate."`
	DryRun bool   `help:"Say what would happen and whether it would work; change nothing."`
	JSON   bool   `help:"Print the result as JSON."`
}

// Run asks for the switchover and prints its outcome.
func (c *switchoverCmd) Run(e *env) error {
	client, err := c.client(e.ctx, true)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(e.ctx, controlTimeout)
	defer cancel()
	if c.To != "" {
		if err := checkNode(ctx, client, c.To); err != nil {
			return err
		}
	}
	res, err := client.Switchover(ctx, api.SwitchoverRequest{To: c.To, DryRun: c.DryRun})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	printSwitchover(e, res)
	return nil
}

func printSwitchover(e *env, res api.SwitchoverResult) {
	if !res.DryRun {
		fmt.Fprintf(e.out, "%s leads now, in term %d (before: %s); writes were held for %.0f ms\n", res.To, res.Term, res.From, res.WriteGapMS)
		return
	}
	if res.To == "" {
		fmt.Fprintf(e.out, "%s would stay the leader: no node can take over now\n", res.From)
	} else {
		fmt.Fprintf(e.out, "leadership would move from %s to %s\n", res.From, res.To)
	}
	rows := [][]string{{"NODE", "ELIGIBLE", "WHY"}}
	for _, c := range res.Candidates {
		rows = append(rows, []string{c.Name, map[bool]string{true: "yes", false: "no"}[c.Eligible], c.Reason})
	}
	if len(rows) > 1 {
		printTable(e.out, rows)
	}
}

// checkNode finds a misspelt node before anything is asked of the cluster.
func checkNode(ctx context.Context, client *api.Client, name string) error {
	view, err := client.Cluster(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(view.Members))
	for i, m := range view.Members {
		names[i] = m.Name
	}
	if !slices.Contains(names, name) {
		return api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(names, " "))
	}
	return nil
}

// historyCmd is `trireme history`.
type historyCmd struct {
	remote
	JSON bool `help:"Print GET /history as it is."`
}

// Run prints the events, oldest first.
func (c *historyCmd) Run(e *env) error {
	client, err := c.client(e.ctx, false)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(e.ctx, readTimeout)
	defer cancel()
	events, err := client.History(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, events)
	}
	for _, ev := range events {
		head := fmt.Sprintf("%s  term %-4d %-4s %-10s ", ev.Time.Local().Format("2006-01-02 15:04:05.000"), ev.Term, ev.Node, ev.Kind)
		text := ev.Message
		if ev.GapMS > 0 {
			text += fmt.Sprintf(" (%.0f ms without a writable leader)", ev.GapMS)
		}
		if ev.GTIDs != "" {
			text += " " + ev.GTIDs
		}
		for i, line := range wrap(text, 100-len(head)) {
			if i > 0 {
				head = strings.Repeat(" ", len(head))
			}
			fmt.Fprintln(e.out, head+line)
		}
	}
	return nil
}

// addCmd is `trireme add`.
type addCmd struct {
	remote
	Name string        `arg:"" help:"Name of the new node."`
	Role string        `default:"voter" enum:"voter,logger,learner" help:"voter (mysqld and vote), logger (vote without mysqld) or learner (mysqld without vote)."`
	TTL  time.Duration `name:"ttl" default:"1h" help:"How long the token is good."`
	JSON bool          `help:"Print the result as JSON."`
}

// Run makes the token and prints the command to run on the new host.
func (c *addCmd) Run(e *env) error {
	if err := config.CheckName("node", c.Name); err != nil {
		return errUsage{err}
	}
	client, err := c.client(e.ctx, true)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(e.ctx, controlTimeout)
	defer cancel()
	res, err := client.NewJoinToken(ctx, api.JoinTokenRequest{Name: c.Name, Role: c.Role, TTL: c.TTL})
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
	fmt.Fprintf(e.out, "On the new host, before %s, run:\n\n  trireme join --name %s%s \\\n    %s\n\n",
		res.Expires.Local().Format("2006-01-02 15:04"), c.Name, role, res.Token)
	fmt.Fprintf(e.out, "The token works once. Anybody who has it can become a node and read all data.\n")
	return nil
}
