// Command trireme-lab is what proves and measures Trireme: benchmarks, fault campaigns, emulated networks. The clusters
// that it makes run the program trireme in its directory.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/alecthomas/kong"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/tpcc"
	"trireme/lab/wan"
)

const (
	program    = "trireme-lab"
	exitFailed = 1
)

// commands is the command line. Each field with a Run method is one verb.
type commands struct {
	Bench      benchCmd      `cmd:"" help:"Measure Trireme and its rivals on this machine."`
	Verify     verifyCmd     `cmd:"" help:"Check that nothing acknowledged is lost: fault campaigns, with a verdict."`
	Demo       demoCmd       `cmd:"" help:"Run a whole cluster on emulated hosts, with load, faults and a verdict, as trireme demo does without."`
	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Complete   completeCmd   `cmd:"" hidden:""`
	Manual     manualCmd     `cmd:"" hidden:""`
	Version    versionCmd    `cmd:"" help:"Show the version."`
}

// env is what every verb needs besides its own flags.
type env struct {
	ctx    context.Context // ends at SIGINT or SIGTERM
	out    io.Writer
	errOut io.Writer
	app    *kong.Application // the declarations of the command line
	json   bool              // --json was given: standard output holds JSON documents only
}

// progress is where a verb that works for long tells how far it is: with --json standard output is for the result
// alone.
func (e *env) progress(asJSON bool) io.Writer {
	if asJSON {
		return e.errOut
	}
	return e.out
}

// usagef is a failure of the command line itself.
func usagef(format string, args ...any) *api.Error { return api.Errorf(api.KindUsage, format, args...) }

func printJSON(w io.Writer, v any) error { return cli.PrintJSON(w, v) }

// roles are those of the processes that benchmarks and campaigns start.
var roles = []child.Role{wan.Forwarder, faultfs.Server, tpcc.Generator}

func main() {
	child.Main(roles...)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e := &env{ctx: ctx, out: out, errOut: errOut, json: cli.AsksJSON(args)}
	return cli.Program{Name: program, Description: "Tests and measures Trireme on this machine.", Commands: new(commands),
		Env: e, Declared: func(app *kong.Application) { e.app = app }, Report: e.report, Out: out, ErrOut: errOut}.Run(args)
}

// report prints an error, and gives the exit code. With --json a program finds the same on standard output.
func (e *env) report(err error) int {
	return cli.Report(e.ctx, program, e.out, e.errOut, e.json, err, nil)
}

// completionCmd is `trireme-lab completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script.
func (c *completionCmd) Run(e *env) error {
	_, err := io.WriteString(e.out, cli.Script(program, c.Shell))
	return err
}

// completeCmd is what the scripts ask.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints a candidate and what it is on each line.
func (c *completeCmd) Run(e *env) error {
	return cli.Complete(e.out, e.app, c.Words, func(map[string]string) []string { return nil })
}

// manualCmd writes the manual from the same declarations that --help is printed from.
type manualCmd struct {
	Dir      string `arg:"" optional:"" type:"path" help:"Where the man pages go, one for each verb."`
	Markdown bool   `help:"Print docs/lab.md."`
}

// intro is what docs/lab.md says of all verbs.
//
//go:embed intro.txt
var intro string

var manual = cli.Manual{
	Intro: intro,
	ExitCodes: [][2]string{{"0", "Done."}, {"1", "Failed, or a promise was broken."},
		{"2", "The command line is wrong; nothing was done."}, {"3", "A cluster does not answer."}},
	Environment: [][2]string{
		{"MYSQLD", "mysqld to run, when --mysqld is not given."},
		{"TRIREME_BINARY", "The program trireme to measure, in place of the one in this program's directory, or in PATH."},
	},
}

// Run writes the pages.
func (c *manualCmd) Run(e *env) error {
	return manual.Write(e.out, e.app, c.Dir, c.Markdown)
}

// versionCmd is `trireme-lab version`.
type versionCmd struct {
	JSON bool `help:"Print it as JSON."`
}

// version is that of a package; scripts/package.sh links it in.
var version string

func buildVersion() string { return cli.Version(version) }

// Run prints what the build recorded.
func (c *versionCmd) Run(e *env) error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if c.JSON {
		return printJSON(e.out, map[string]string{"version": buildVersion(), "go": runtime.Version(), "platform": platform})
	}
	fmt.Fprintln(e.out, program, buildVersion(), runtime.Version(), platform)
	return nil
}
