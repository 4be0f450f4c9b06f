package main

import (
	"errors"
	"time"

	"trireme/internal/demo"
)

// demoCmd is `trireme demo`. The action is an argument, not a verb of its own, so that `trireme demo --help` shows the flags.
type demoCmd struct {
	Action string `arg:"" optional:"" enum:"run,stop,supervise" default:"run" help:"stop: end the demo that runs in the background in --dir. Default: run one."`

	Nodes    int           `default:"3" help:"Data nodes with a vote."`
	Loggers  int           `default:"0" help:"Nodes with a log and a vote but no mysqld, on top."`
	Learners int           `default:"0" help:"Data nodes without a vote, on top."`
	Dir      string        `type:"path" placeholder:"DIR" help:"Where everything goes. Default: a new directory below the system's temporary one."`
	PortBase int           `placeholder:"PORT" help:"First of ten ports per node. Default: 21000, or the next free ones."`
	Mysqld   string        `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	Duration time.Duration `default:"60s" help:"How long the load runs."`
	WAN      string        `name:"wan" placeholder:"NAME|FILE" help:"Put each node on an emulated host; the links: lan, city, 10ms, 30ms, two-regions, three-cities, or a file. Needs root."`
	CPUs     float64       `name:"cpus" placeholder:"N" help:"CPU time of each node, daemon and mysqld together, in CPUs, such as 0.5. Needs root. Default: no limit."`
	NoFaults bool          `help:"Load only, nothing is killed."`
	Keep     bool          `help:"Leave the cluster running after the verdict, until Ctrl-C."`
	Detach   bool          `help:"Leave the cluster running in the background, without load."`
	JSON     bool          `help:"Print the verdict as JSON, with --detach where the cluster is; what happens goes to standard error."`
}

// Run starts or ends a demo. supervise is what --detach starts in the background.
func (c *demoCmd) Run(e *env) error {
	o := demo.RunOptions{
		Nodes: c.Nodes, Loggers: c.Loggers, Learners: c.Learners, Dir: c.Dir, PortBase: c.PortBase, Duration: c.Duration,
		NoFaults: c.NoFaults, Keep: c.Keep, Detach: c.Detach, WAN: c.WAN, CPUs: c.CPUs, MySQL: c.Mysqld, Out: e.progress(c.JSON),
	}
	switch c.Action {
	case "stop":
		if c.Dir == "" {
			return usagef("which demo? Give its directory: trireme demo stop --dir DIR")
		}
		ended, err := demo.Stop(e.ctx, c.Dir, e.progress(c.JSON))
		if err == nil && c.JSON {
			err = printJSON(e.out, map[string]any{"dir": c.Dir, "ended": ended})
		}
		return err
	case demo.SuperviseVerb:
		return demo.Supervise(e.ctx, o)
	}
	out, err := demo.Run(e.ctx, o)
	if c.JSON && out.Dir != "" {
		err = errors.Join(err, printJSON(e.out, out))
	}
	return err
}
