// Command trireme is the product: the daemon next to each mysqld, the tools that talk to a cluster, and the demo.
//
// This package parses, wires and prints; what is done is done in internal/.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"trireme/internal/cli"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3 // or no quorum
)

// commands is the command line. Each field with a Run method is one verb.
type commands struct {
	Node       nodeCmd       `cmd:"" help:"Run the daemon of this node in the foreground."`
	Router     routerCmd     `cmd:"" help:"Run the router alone, on a host without a node."`
	Init       initCmd       `cmd:"" help:"Make the first node of a new cluster."`
	Join       joinCmd       `cmd:"" help:"Make a node and join it to a running cluster."`
	Leave      leaveCmd      `cmd:"" help:"End the cluster: its servers become a plain source and replicas."`
	Adopt      adoptCmd      `cmd:"" help:"Turn a running MySQL server into a node, with its data, in place."`
	Add        addCmd        `cmd:"" help:"Invite a node: make a one-time join token."`
	Remove     removeCmd     `cmd:"" help:"Remove a node from the cluster, dead or alive. The leader hands over first."`
	Reinit     reinitCmd     `cmd:"" help:"Delete a node's MySQL data and copy another node's."`
	Promote    promoteCmd    `cmd:"" help:"Give learners a vote, once they have caught up; others may lose theirs at that moment."`
	Demote     demoteCmd     `cmd:"" help:"Take a node's vote. It keeps its data and follows. The leader hands over first."`
	Delay      delayCmd      `cmd:"" help:"Show a delayed learner, or stop it at a transaction, for example before a wrong DELETE."`
	MySQL      mysqlCmd      `cmd:"" name:"mysql" help:"Open a MySQL client at this host's node as trireme_admin, to make the first account for example."`
	Status     statusCmd     `cmd:"" help:"Show all nodes; any node answers."`
	Topology   topologyCmd   `cmd:"" help:"Draw who gets the log from whom: leader, followers, loggers, learners."`
	Dashboard  dashboardCmd  `cmd:"" help:"Print a link to the dashboard that logs in once."`
	Switchover switchoverCmd `cmd:"" help:"Move leadership to another node, as planned."`
	Restart    restartCmd    `cmd:"" help:"Restart all nodes, one after the other, the leader last."`
	Upgrade    upgradeCmd    `cmd:"" help:"Upgrade Trireme or MySQL on all nodes, one after the other, the leader last."`
	Failover   failoverCmd   `cmd:"" help:"Move leadership without the leader's help, when it is sick, or lost during a pause."`
	WhyNot     whyNotCmd     `cmd:"" help:"Say why a node is not, or could not be, the leader."`
	Pause      pauseCmd      `cmd:"" help:"Switch automatic failover off; fences stay on."`
	Resume     resumeCmd     `cmd:"" help:"Switch automatic failover on again."`
	History    historyCmd    `cmd:"" help:"Show what happened: elections, failovers, fences, rejoins."`
	Report     reportCmd     `cmd:"" help:"Draw a page about a period: load, what commits and sessions waited for, statements, lag, elections."`
	Void       voidCmd       `cmd:"" help:"Declare void a committed entry that no node can apply: it does nothing on any node, and its changes are lost."`
	ForceApply forceApplyCmd `cmd:"" name:"force-apply" help:"Have all nodes apply, without foreign key checks, a committed entry that no node can apply."`
	Force      forceCmd      `cmd:"" name:"force-quorum" help:"Make a cluster out of the survivors of a lost majority. May lose data."`
	Backup     backupCmd     `cmd:"" help:"Keep copies of the data, and every committed change after them, outside the cluster."`
	Restore    restoreCmd    `cmd:"" help:"Restore a server from a backup, as the cluster was at any moment."`
	Check      checkCmd      `cmd:"" help:"Compare the data of all nodes, byte by byte, while they run; repair on command."`
	Advise     adviseCmd     `cmd:"" help:"Report what prevents parallel apply and prolongs a failover, what it costs and what to do."`
	Log        logCmd        `cmd:"" help:"Read a raft log on disk; no daemon or mysqld is needed."`
	Config     configCmd     `cmd:"" help:"Show and change the cluster's settings; check a node's file."`
	Token      tokenCmd      `cmd:"" help:"Tokens of people and programs, each with a role: make, list and remove them."`
	Cert       certCmd       `cmd:"" help:"Certificates: show or renew this node's, issue others."`
	VIP        vipCmd        `cmd:"" name:"vip" help:"Virtual IP addresses on this host: what would fail."`
	Demo       demoCmd       `cmd:"" help:"Run a whole cluster on this machine, with load, faults and a verdict."`
	Guard      guardCmd      `cmd:"" hidden:""`
	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Complete   completeCmd   `cmd:"" hidden:""`
	Manual     manualCmd     `cmd:"" hidden:""`
	Version    versionCmd    `cmd:"" help:"Show the version."`
}

// env is what every verb needs besides its own flags.
type env struct {
	ctx    context.Context // ends at SIGINT or SIGTERM
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	app    *kong.Application // the declarations of the command line
	json   bool              // --json was given: standard output holds JSON documents only
	palette
}

// warnings are log lines of the packages that a verb uses which its user should see.
func (e *env) warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(e.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// progress is where a verb that works for long tells how far it is: with --json standard output is for the result
// alone.
func (e *env) progress(asJSON bool) io.Writer {
	if asJSON {
		return e.errOut
	}
	return e.out
}

// ask prints a question that the user answers with a line.
func (e *env) ask(format string, args ...any) { fmt.Fprintf(e.progress(e.json), format, args...) }

// say prints a sentence for people.
func (e *env) say(format string, args ...any) {
	for _, line := range wrap(fmt.Sprintf(format, args...), maxColumns) {
		fmt.Fprintln(e.out, line)
	}
}

// typed is the line that the user types, without the space around it; empty if nothing was typed.
func (e *env) typed() (string, error) {
	line, err := bufio.NewReader(io.LimitReader(e.in, 4096)).ReadString('\n')
	if err == io.EOF {
		err = nil
	}
	return strings.TrimSpace(line), err
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if slices.Equal(args, []string{"--version"}) {
		args = []string{"version"}
	}
	e := &env{ctx: ctx, in: in, out: out, errOut: errOut, palette: paletteFor(out), json: cli.AsksJSON(args)}
	return cli.Program{Name: "trireme", Description: "Turns ordinary MySQL servers into one self-healing database.",
		Commands: new(commands), Env: e, Declared: func(app *kong.Application) { e.app = app }, Report: e.report, Out: out,
		ErrOut: errOut}.Run(args)
}
