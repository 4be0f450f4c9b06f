package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/adopt"
	"trireme/internal/ops/cli"
)

// adoptCmd is `trireme adopt`.
type adoptCmd struct {
	nodeFlags
	Cluster      string   `default:"main" help:"Name of the new cluster."`
	Socket       string   `type:"path" help:"Unix socket of the running server."`
	Server       string   `placeholder:"HOST:PORT" help:"Or where it listens, on this host."`
	User         string   `default:"root" help:"Account with all rights on the server, and on the replicas."`
	PasswordFile string   `type:"path" help:"File with its password. Default: $$TRIREME_MYSQL_PASSWORD; without that, none."`
	Replica      []string `placeholder:"HOST:PORT" help:"Each replica that is to become a node too: the source stops only when all of them hold everything."`
	Role         string   `default:"voter" enum:"voter,learner" help:"With a join token: as given to trireme add."`
	trxPolicy
	Outage time.Duration `default:"10s" help:"How long writes may be closed before the server is stopped; after that everything is undone. Default: ${default}."`
	DryRun bool          `help:"Check everything, say what would happen, change nothing."`
	Undo   bool          `help:"Give the server its files back, if its node has not led yet."`
	JSON   bool          `help:"Print checks, settings and the outcome as JSON."`
	Token  string        `arg:"" optional:"" help:"Of a replica: join token from trireme add. Default: $$TRIREME_JOIN_TOKEN; - reads it from standard input."`
}

// adoptDone is what --json prints of a server that was adopted, in addition to its checks.
type adoptDone struct {
	madeNode
	Members []string  `json:"members,omitempty"`
	Closed  time.Time `json:"writes_closed_since"`
	Left    []string  `json:"left_in_place,omitempty"`
}

// Run checks, adopts, and says how to start the node.
func (c *adoptCmd) Run(e *env) error {
	if c.Undo {
		return c.undo(e)
	}
	opts, err := c.options(e)
	if err != nil {
		return err
	}
	p, err := adopt.Look(e.ctx, opts)
	if err != nil {
		return err
	}
	defer p.Close()
	switch {
	case !c.JSON:
		printPlan(e, p)
	case c.DryRun || !p.OK():
		err = printJSON(e.out, p)
	}
	if err == nil && !p.OK() {
		err = adopt.ErrChecks
	}
	if err != nil || c.DryRun {
		return err
	}
	res, err := p.Run(e.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, struct {
			*adopt.Plan
			Done adoptDone `json:"done"`
		}{p, adoptDone{madeNode{opts.Node.Name, res.ConfigFile, res.CredentialFile}, res.Members, res.Closed, res.Left}})
	}
	c.printResult(e, opts.Node, res)
	return nil
}

func (c *adoptCmd) options(e *env) (opts adopt.Options, err error) {
	if opts.Login, err = c.login(); err != nil {
		return opts, err
	}
	if opts.TrxWait, err = c.wait(); err != nil {
		return opts, err
	}
	if c.Outage <= 0 {
		return opts, usagef("--outage=%v is no time", c.Outage)
	}
	if opts.Token, err = e.joinToken(c.Token); err != nil {
		return opts, err
	}
	if opts.Token != "" && len(c.Replica) > 0 {
		return opts, usagef("--replica is for the source, which goes first; a replica joins by itself with its token")
	}
	if opts.Node, err = c.node(0); err != nil {
		return opts, err
	}
	opts.Node.Cluster = c.Cluster
	if opts.Token != "" {
		opts.Node.Cluster = "" // the cluster says it
	}
	opts.Replicas, opts.Outage, opts.Role = c.Replica, c.Outage, c.Role
	opts.Say = func(format string, args ...any) { fmt.Fprintf(e.errOut, format+"\n", args...) }
	return opts, nil
}

// login is how to reach the server.
func (c *adoptCmd) login() (adopt.Login, error) {
	l := adopt.Login{Socket: c.Socket, User: c.User, Password: os.Getenv("TRIREME_MYSQL_PASSWORD")}
	switch {
	case c.Socket != "" && c.Server != "":
		return l, usagef("--socket and --server name the same server: give one")
	case c.Socket == "" && c.Server == "":
		return l, usagef("where is the server? Give --socket PATH or --server HOST:PORT")
	case c.Server != "":
		host, port, err := net.SplitHostPort(c.Server)
		if err == nil {
			l.Port, err = strconv.Atoi(port)
		}
		if err != nil {
			return l, usagef("--server=%s is not HOST:PORT", c.Server)
		}
		l.Host = host
	}
	if c.PasswordFile == "" {
		return l, nil
	}
	if err := config.CheckPrivate(c.PasswordFile); err != nil {
		return l, err
	}
	b, err := os.ReadFile(c.PasswordFile)
	l.Password = strings.TrimRight(string(b), "\r\n")
	return l, err
}

func (c *adoptCmd) undo(e *env) error {
	u, err := adopt.Undo(c.Dir)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, u)
	}
	fmt.Fprintf(e.out, "The data is back in %s and %s is removed. %s\n", u.DataDir, c.Dir, u.Again)
	return nil
}

// briefColumns is how much of a setting's value the table of a plan shows; --json has all of it.
const briefColumns = 28

// brief shortens a value: of a path its end tells most.
func brief(value string) string {
	r := []rune(value)
	switch {
	case len(r) <= briefColumns:
		return value
	case r[0] == '/':
		return "…" + string(r[len(r)-briefColumns+1:])
	}
	return string(r[:briefColumns-1]) + "…"
}

func printPlan(e *env, p *adopt.Plan) {
	rows := [][]string{{"CHECK", "RESULT", "FOUND"}}
	for _, c := range p.Checks {
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Result), c.Found})
		if c.Do != "" {
			rows = append(rows, []string{"", "", "-> " + c.Do})
		}
	}
	cli.PrintTable(e.out, rows)
	fmt.Fprintln(e.out)
	rows = [][]string{{"SETTING", "NOW", "THEN"}}
	for _, o := range p.Settings {
		then := brief(o.New) + ": " + o.Why
		switch {
		case o.Kept:
			then = "kept, in mysql.options"
		case o.New == "":
			then = "not set: " + o.Why
		}
		rows = append(rows, []string{o.Name, brief(o.Old), then})
	}
	cli.PrintTable(e.out, rows)
	fmt.Fprintln(e.out)
}

func (c *adoptCmd) printResult(e *env, n config.Node, res adopt.Result) {
	if res.CredentialFile != "" {
		fmt.Fprintf(e.out, "Node %s of the new cluster %s is in %s, with the server's data.\n", n.Name, n.Cluster, n.Dir)
		fmt.Fprintf(e.out, "The operator's credential is %s; keep it safe.\n", res.CredentialFile)
	} else {
		fmt.Fprintf(e.out, "Node %s is a member (nodes are %s), with the server's data in %s.\n", n.Name,
			strings.Join(res.Members, " "), n.Dir)
	}
	fmt.Fprintf(e.out, "The old binary logs are in %s; keep them for point-in-time recovery to moments before now.\n",
		c.Dir+"/before-adopt")
	for _, f := range res.Left {
		fmt.Fprintf(e.out, "On another file system, left where it is: %s\n", f)
	}
	fmt.Fprintf(e.out, "\nWrites are closed since %s. Open them  %s\n", res.Closed.Format(time.TimeOnly),
		startCommand(res.ConfigFile))
	if res.CredentialFile != "" {
		fmt.Fprintf(e.out, "then, for each replica                   trireme add NAME%s\n", apiFlag(n))
		fmt.Fprintf(e.out, "and on its host                          trireme adopt … TOKEN\n")
	}
}
