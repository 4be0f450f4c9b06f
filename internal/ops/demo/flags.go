package demo

import (
	"context"
	"time"

	"trireme/internal/api"
)

// Flags are the command line of `trireme demo`; `trireme-lab demo` has more. The action is an argument, not a verb of
// its own, so that `trireme demo --help` shows the flags.
type Flags struct {
	Action string `arg:"" optional:"" enum:"run,stop,supervise" default:"run" help:"stop: end the demo that runs in the background in --dir. Default: run one."`

	Nodes    int           `default:"3" help:"Data nodes with a vote."`
	Loggers  int           `default:"0" help:"Nodes with a log and a vote but no mysqld, on top."`
	Learners int           `default:"0" help:"Data nodes without a vote, on top."`
	Dir      string        `type:"path" placeholder:"DIR" help:"Where everything goes. Default: a new directory below the system's temporary one."`
	PortBase int           `placeholder:"PORT" help:"First of ten ports per node. Default: 21000, or the next free ones."`
	Mysqld   string        `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	Duration time.Duration `default:"60s" help:"How long the load runs."`
	NoFaults bool          `help:"Load only, nothing is killed."`
	Tour     bool          `help:"Stop at each act of the demo, and go on when you press Enter."`
	Keep     bool          `help:"Leave the cluster running after the verdict, until Ctrl-C."`
	Detach   bool          `help:"Leave the cluster running in the background, without load."`
	JSON     bool          `help:"Print the verdict as JSON, with --detach where the cluster is; what happens goes to standard error."`
}

// Options that the flags ask for.
func (f Flags) Options() RunOptions {
	return RunOptions{Nodes: f.Nodes, Loggers: f.Loggers, Learners: f.Learners, Dir: f.Dir, PortBase: f.PortBase,
		Duration: f.Duration,
		NoFaults: f.NoFaults, Tour: f.Tour, Keep: f.Keep, Detach: f.Detach, MySQL: f.Mysqld}
}

// Do starts or ends a demo, and returns what --json prints; nil: nothing. supervise is what --detach starts in the
// background.
func (f Flags) Do(ctx context.Context, o RunOptions) (any, error) {
	switch f.Action {
	case "stop":
		if f.Dir == "" {
			return nil, api.Errorf(api.KindUsage, "which demo? Give its directory: trireme demo stop --dir DIR")
		}
		ended, err := Stop(ctx, f.Dir, o.Out)
		if err != nil {
			return nil, err
		}
		return map[string]any{"dir": f.Dir, "ended": ended}, nil
	case SuperviseVerb:
		return nil, Supervise(ctx, o)
	}
	out, err := Run(ctx, o)
	if out.Dir == "" {
		return nil, err
	}
	return out, err
}
