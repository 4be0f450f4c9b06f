package main

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

// forceCmd is `trireme force-quorum`.
type forceCmd struct {
	remote
	Voters      []string `placeholder:"NODE,…" help:"Voters of the new cluster; learners of another region may be named. Default: the voters that answer."`
	DryRun      bool     `help:"Only report what would be done and what may be lost."`
	ConfirmTerm uint64   `placeholder:"TERM" help:"Do not ask; refuse unless this is the term, as the report shows it."`
	JSON        bool     `help:"Print the report, or with --confirm-term the result, as JSON."`
}

// forcePatience is how long the new cluster may take until it writes.
const forcePatience = 90 * time.Second

// Run shows the report, asks for the term, and waits for the new cluster.
func (c *forceCmd) Run(e *env) error {
	if c.DryRun && c.ConfirmTerm != 0 {
		return usagef("--dry-run and --confirm-term exclude each other")
	}
	if c.JSON && !c.DryRun && c.ConfirmTerm == 0 {
		return usagef("--json goes with --dry-run or --confirm-term: with neither the term is asked for")
	}
	req := api.ForceRequest{Voters: c.Voters, By: whoAmI()}
	rep, err := c.request(e, req)
	if err != nil {
		return err
	}
	if !c.JSON {
		printForce(e, rep)
	}
	if ends, err := planned(e, c.DryRun, c.JSON, rep, refusalOf(rep.ProblemKind, rep.Problem, rep.Advice)); ends {
		return err
	}
	if req.Confirm = c.ConfirmTerm; req.Confirm == 0 {
		if req.Confirm, err = askTerm(e, rep); err != nil {
			return err
		}
		req.Seen = rep.Seen
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
	fmt.Fprintf(e.out, "Generation %d of cluster %s is decided, in term %d, from %s's log.\n", rep.NewGeneration,
		rep.Cluster, rep.NewTerm, rep.Source)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out,
		"%s takes writes. See `trireme status` and `trireme history`; add nodes again with `trireme add`.\n", leader)
	return nil
}

func (c *forceCmd) request(e *env, req api.ForceRequest) (api.ForceReport, error) {
	return have(c.remote, e, api.ForceQuorum, req)
}

// whoAmI is for the records; the cluster knows a token only.
func whoAmI() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if sudo := os.Getenv("SUDO_USER"); sudo != "" && sudo != name {
		name = sudo + " as " + name
	}
	host, err := os.Hostname()
	return name + "@" + cmp.Or(map[bool]string{true: host}[err == nil], "?")
}

// askTerm wants the term typed back.
func askTerm(e *env, rep api.ForceReport) (uint64, error) {
	e.ask("\nType the term (%d) to continue: ", rep.Term)
	typed, err := e.typed()
	if err != nil {
		return 0, err
	}
	if typed == "" {
		return 0, usagef("nothing was done; type the term, or give --confirm-term")
	}
	if n, err := strconv.ParseUint(typed, 10, 64); err != nil || n != rep.Term {
		return 0, usagef("nothing was done: %q is not %d", typed, rep.Term)
	}
	return rep.Term, nil
}

// await asks the source until a node takes writes in the new generation. Its daemon starts again meanwhile.
func (c *forceCmd) await(e *env, rep api.ForceReport) (leader string, err error) {
	what := fmt.Sprintf("a leader of generation %d; %s restarts its daemon and is elected", rep.NewGeneration, rep.Source)
	seen := c.until(e, forcePatience, what, func(v api.ClusterView) bool {
		leader = v.Leader
		return v.Generation >= rep.NewGeneration && v.Leader != ""
	})
	if !seen {
		return "", api.Errorf(api.KindTimeout, "generation %d is decided, but no leader of it takes writes after %v",
			rep.NewGeneration, forcePatience).
			With("see `trireme status --api %s` and the daemon's log there", rep.SourceAPI)
	}
	return leader, nil
}

func printForce(e *env, rep api.ForceReport) {
	fmt.Fprintf(e.out, "Cluster %s, generation %d, term %d\n\n", rep.Cluster, rep.Generation, rep.Term)
	rows := [][]string{{"NODE", "ANSWERS", "ROLE", "TERM", "LAST ENTRY", "OF TERM", "COMMITTED", "THEN"}}
	then := map[string]string{}
	for _, n := range rep.Voters {
		then[n] = "voter"
	}
	for _, n := range rep.Learners {
		then[n] = "learner"
	}
	for _, s := range rep.Survivors {
		what := then[s.Name]
		if s.Name == rep.Source {
			what += ", its log counts"
		}
		rows = append(rows, []string{s.Name, "yes", s.Role, fmt.Sprint(s.Term), fmt.Sprint(s.LastIndex),
			fmt.Sprint(s.LastTerm), fmt.Sprint(s.Commit), what})
	}
	for _, m := range rep.GivenUp {
		rows = append(rows, []string{m.Name, "no", m.Role, "-", "-", "-", "-", "given up"})
	}
	cli.PrintTable(e.out, rows)
	fmt.Fprintln(e.out)
	if rep.Problem != "" {
		fmt.Fprintf(e.out, "It would not be done: %s\n", rep.Problem)
		if rep.Advice != "" {
			fmt.Fprintf(e.out, "%s\n", rep.Advice)
		}
		return
	}
	para := func(text string) {
		for _, line := range cli.Wrap(text, 98) {
			fmt.Fprintln(e.out, line)
		}
	}
	para(rep.Loss)
	for _, s := range rep.Survivors {
		if s.Drops != "" {
			para(fmt.Sprintf("%s drops what %s does not have and what was never committed: %s", s.Name, rep.Source,
				strings.ReplaceAll(s.Drops, ",", ", ")))
		}
	}
	para("Kept GTIDs: " + cmp.Or(strings.ReplaceAll(rep.GTIDs, ",", ", "), "none"))
	if len(rep.GivenUp) > 0 {
		para("The nodes given up must not come back on their own: power them off, or make sure that they can reach a survivor. A majority of them " +
			"that runs out of reach takes writes by itself, and no software can know. One that meets a survivor fences itself permanently.")
	}
}
