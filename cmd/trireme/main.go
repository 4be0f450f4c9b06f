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

	"trireme/internal/ops/cli"
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
	Init  initCmd  `cmd:"" group:"make" help:"Make the first node of a new cluster."`
	Join  joinCmd  `cmd:"" group:"make" help:"Make a node and join it to a running cluster."`
	Adopt adoptCmd `cmd:"" group:"make" help:"Turn a running MySQL server into a node, with its data, in place."`
	MySQL mysqlCmd `cmd:"" group:"make" name:"mysql" help:"Open a MySQL client at this host's node as trireme_admin, to make the first account for example."`

	Status    statusCmd    `cmd:"" group:"see" help:"Show all nodes; any node answers."`
	Topology  topologyCmd  `cmd:"" group:"see" help:"Draw who gets the log from whom: leader, followers, loggers, learners."`
	Dashboard dashboardCmd `cmd:"" group:"see" help:"Print a link to the dashboard that logs in once."`
	WhyNot    whyNotCmd    `cmd:"" group:"see" help:"Say why a node is not, or could not be, the leader."`
	History   historyCmd   `cmd:"" group:"see" help:"Show what happened: elections, failovers, fences, rejoins."`
	Report    reportCmd    `cmd:"" group:"see" help:"Draw a page about a period: load, what commits and sessions waited for, statements, lag, elections."`
	Check     checkCmd     `cmd:"" group:"see" help:"Compare the data of all nodes, byte by byte, while they run; repair on command."`
	Advise    adviseCmd    `cmd:"" group:"see" help:"Report what prevents parallel apply and prolongs a failover, what it costs and what to do."`

	Switchover switchoverCmd `cmd:"" group:"lead" help:"Move leadership to another node, as planned."`
	Failover   failoverCmd   `cmd:"" group:"lead" help:"Move leadership without the leader's help, when it is sick, or lost during a pause."`
	Pause      pauseCmd      `cmd:"" group:"lead" help:"Switch automatic failover off; fences stay on."`
	Resume     resumeCmd     `cmd:"" group:"lead" help:"Switch automatic failover on again."`

	Add     addCmd     `cmd:"" group:"members" help:"Invite a node: make a one-time join token."`
	Remove  removeCmd  `cmd:"" group:"members" help:"Remove a node from the cluster, dead or alive. The leader hands over first."`
	Reinit  reinitCmd  `cmd:"" group:"members" help:"Delete a node's MySQL data and copy another node's."`
	Promote promoteCmd `cmd:"" group:"members" help:"Give learners a vote, once they have caught up; others may lose theirs at that moment."`
	Demote  demoteCmd  `cmd:"" group:"members" help:"Take a node's vote. It keeps its data and follows. The leader hands over first."`
	Delay   delayCmd   `cmd:"" group:"members" help:"Show a delayed learner, or stop it at a transaction, for example before a wrong DELETE."`
	Leave   leaveCmd   `cmd:"" group:"members" help:"End the cluster: its servers become a plain source and replicas."`

	Restart restartCmd `cmd:"" group:"restart" help:"Restart all nodes, one after the other, the leader last."`
	Upgrade upgradeCmd `cmd:"" group:"restart" help:"Upgrade Trireme or MySQL on all nodes, one after the other, the leader last."`

	Backup  backupCmd  `cmd:"" group:"backup" help:"Keep copies of the data, and every committed change after them, outside the cluster."`
	Restore restoreCmd `cmd:"" group:"backup" help:"Restore a server from a backup, as the cluster was at any moment."`

	Config configCmd `cmd:"" group:"settings" help:"Show and change the cluster's settings; check a node's file."`
	Token  tokenCmd  `cmd:"" group:"settings" help:"Tokens of people and programs, each with a role: make, list and remove them."`
	Cert   certCmd   `cmd:"" group:"settings" help:"Certificates: show or renew this node's, issue others."`
	VIP    vipCmd    `cmd:"" group:"settings" name:"vip" help:"Virtual IP addresses on this host: what would fail."`

	Force      forceCmd      `cmd:"" group:"repair" name:"force-quorum" help:"Make a cluster out of the survivors of a lost majority. May lose data."`
	Void       voidCmd       `cmd:"" group:"repair" help:"Declare void a committed entry that no node can apply: it does nothing on any node, and its changes are lost."`
	ForceApply forceApplyCmd `cmd:"" group:"repair" name:"force-apply" help:"Have all nodes apply, without foreign key checks, a committed entry that no node can apply."`
	Log        logCmd        `cmd:"" group:"repair" help:"Read a raft log on disk; no daemon or mysqld is needed."`

	Node       nodeCmd       `cmd:"" group:"run" help:"Run the daemon of this node in the foreground."`
	Router     routerCmd     `cmd:"" group:"run" help:"Run the router alone, on a host without a node."`
	Demo       demoCmd       `cmd:"" group:"run" help:"Run a whole cluster on this machine, with load, faults and a verdict."`
	Completion completionCmd `cmd:"" group:"run" help:"Print the completion script of a shell."`
	Version    versionCmd    `cmd:"" group:"run" help:"Show the version."`

	Guard    guardCmd    `cmd:"" hidden:""`
	Complete completeCmd `cmd:"" hidden:""`
	Manual   manualCmd   `cmd:"" hidden:""`
}

const description = "Turns ordinary MySQL servers into one self-healing database. To begin: trireme init, or " +
	"trireme demo to try it on this machine. The pages are in /usr/share/doc/trireme, `man trireme-VERB` explains a verb."

// groups are the headings of verbs in `trireme --help`, by their keys.
var groups = kong.ExplicitGroups([]kong.Group{
	{Key: "make", Title: "Make a cluster (`trireme add` invites the other nodes):"},
	{Key: "see", Title: "See how it is:"},
	{Key: "lead", Title: "Move leadership:"},
	{Key: "members", Title: "Add, remove and change nodes:"},
	{Key: "restart", Title: "Restart and upgrade without an outage:"},
	{Key: "backup", Title: "Back up and restore:"},
	{Key: "settings", Title: "Settings, tokens, certificates, virtual addresses:"},
	{Key: "repair", Title: "Repair what does not repair itself (some of these lose data):"},
	{Key: "run", Title: "Programs:"},
})

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
	for _, line := range cli.Wrap(fmt.Sprintf(format, args...), cli.MaxColumns) {
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
	return cli.Program{Name: "trireme", Description: description,
		Commands: new(commands), Options: []kong.Option{groups}, Env: e,
		Declared: func(app *kong.Application) { e.app = app }, Report: e.report, Out: out,
		ErrOut: errOut}.Run(args)
}
