package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"trireme/internal/ops/cli"
	"trireme/lab/campaign"
	"trireme/lab/rivals"
)

// verifyCmd is `trireme-lab verify`.
type verifyCmd struct {
	Cluster verifyClusterCmd `cmd:"" help:"Hit a real cluster with faults under load, and check that nothing acknowledged is lost. Needs root."`
	Sim     verifySimCmd     `cmd:"" help:"Run seeds of the simulation: the real consensus and log under a network, disks and clocks that fail."`
	Report  verifyReportCmd  `cmd:"" help:"Write the report of all campaigns that were counted."`
}

// verifyClusterCmd is `trireme-lab verify cluster`.
type verifyClusterCmd struct {
	Time     time.Duration `placeholder:"TIME" help:"How long. Without this and --faults: until Ctrl-C, which ends it with a verdict."`
	Faults   int           `placeholder:"N" help:"How many faults."`
	Seed     uint64        `placeholder:"S" help:"Repeat the sequence of faults of a run. Timings of real servers are not the same twice. Default: a new one."`
	FaultsOf []string      `placeholder:"KIND,…" help:"Kinds of faults. A wrong one lists them all. Default: all."`

	System     string `placeholder:"NAME" help:"The system to hit: trireme, or a rival to see what it loses. A wrong name lists them all. Default: trireme."`
	Nodes      int    `placeholder:"N" help:"Nodes. Default: 3."`
	Loggers    int    `placeholder:"N" help:"How many of them have a log and a vote but no mysqld."`
	Learners   int    `placeholder:"N" help:"How many more nodes have no vote."`
	Swarm      bool   `help:"What is not named comes from the seed: number and roles of nodes, durability, links, sessions, consistency, encryption, compression, sizes, how busy clients are, kinds of faults and how often two come at once."`
	Topology   string `placeholder:"NAME|FILE" help:"Links between emulated hosts: lan, city, 10ms, 30ms, two-regions, three-cities, or a file; none: all on the loopback address. Default: lan."`
	Durability string `placeholder:"MODE" help:"log or double. Default: log."`

	Mysqld string `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	Dir    string `type:"path" placeholder:"DIR" help:"Scratch directory. Default: a new one, kept only if a promise was broken."`
	Out    string `type:"path" placeholder:"DIR" help:"Where counts are added up. Default: docs/safety, if it is there."`
	JSON   bool   `help:"Print the verdict as JSON; what happens goes to standard error."`
}

// safetyDir is where a checkout of the project keeps what campaigns have shown.
const safetyDir = "docs/safety"

// Run makes a campaign. A broken promise is exit code 1.
func (c *verifyClusterCmd) Run(e *env) error {
	kinds, err := campaign.Kinds(c.FaultsOf)
	if err != nil {
		return usagef("%v", err)
	}
	if len(c.FaultsOf) == 0 {
		kinds = nil
	}
	trireme, build, err := hit(e.ctx)
	if err != nil {
		return err
	}
	v, err := campaign.Run(e.ctx, campaign.Options{Binary: trireme, System: c.System, Nodes: c.Nodes, Loggers: c.Loggers,
		Learners: c.Learners, Swarm: c.Swarm, Durability: c.Durability, Topology: c.Topology, Kinds: kinds, Seed: c.Seed,
		Faults: c.Faults, Time: c.Time, Dir: c.Dir, State: stateFile(c.Out, campaign.StateName), MySQL: c.Mysqld,
		Build: build, Say: e.progress(c.JSON)})
	if errors.Is(err, campaign.ErrUsage) {
		return usagef("%s", strings.TrimPrefix(err.Error(), campaign.ErrUsage.Error()+": "))
	}
	if err != nil && len(v.Errors) == 0 { // nothing was hit
		return err
	}
	if c.JSON {
		err = errors.Join(err, printJSON(e.out, v))
	} else {
		fmt.Fprint(e.out, v)
	}
	if err == nil && !v.OK() {
		err = cli.Silent(exitFailed)
	}
	return err
}

// hit is the program that nodes run, and how it was built: counts are its own. Without one the path is empty, and only
// rivals can be started.
func hit(ctx context.Context) (path string, b campaign.Build, err error) {
	if path, err = rivals.FindTrireme(); err != nil {
		return "", campaign.Build{Version: buildVersion()}, nil
	}
	b, err = campaign.BuildOf(ctx, path)
	return path, b, err
}

// verifySimCmd is `trireme-lab verify sim`.
type verifySimCmd struct {
	Seeds int    `default:"500" placeholder:"N" help:"How many seeds. Default: 500."`
	From  uint64 `placeholder:"S" help:"The first one. Default: 0."`
	Jobs  int    `default:"1" placeholder:"N" help:"How many at once. Default: 1."`
	Out   string `type:"path" placeholder:"DIR" help:"Where seeds are counted. Default: docs/safety, if it is there."`
	JSON  bool   `help:"Print what was counted as JSON; what happens goes to standard error."`
}

// Run simulates. A broken promise is exit code 1, after the smallest schedule that was found for it.
func (c *verifySimCmd) Run(e *env) error {
	if c.Seeds < 1 || c.Jobs < 1 {
		return usagef("--seeds and --jobs are from 1 on")
	}
	counted, err := campaign.Simulate(e.ctx, campaign.Simulation{From: c.From, Seeds: c.Seeds, Jobs: c.Jobs,
		State: stateFile(c.Out, campaign.SimulationName), Build: campaign.ThisBuild(buildVersion()), Say: e.progress(c.JSON)})
	if c.JSON && (err == nil || counted.Count > 0 || len(counted.Violations) > 0) {
		err = errors.Join(err, printJSON(e.out, counted))
	}
	return err
}

// verifyReportCmd is `trireme-lab verify report`.
type verifyReportCmd struct {
	Out  string `type:"path" default:"docs/safety" placeholder:"DIR" help:"Where the counts are, and the report goes. Default: docs/safety."`
	JSON bool   `help:"Print the counts of this commit path as JSON; what was read goes to standard error."`
}

// Run draws the report.
func (c *verifyReportCmd) Run(e *env) error {
	if st, err := os.Stat(c.Out); err != nil || !st.IsDir() {
		return fmt.Errorf("%s is no directory; --out names the one in which campaigns were counted", c.Out)
	}
	standing, err := campaign.Report(c.Out, campaign.ThisBuild(buildVersion()), e.progress(c.JSON))
	if err == nil && c.JSON {
		err = printJSON(e.out, standing)
	}
	return err
}

// stateFile is where counts go; empty: nowhere.
func stateFile(out, name string) string {
	if out == "" {
		if _, err := os.Stat(safetyDir); err != nil {
			return ""
		}
		out = safetyDir
	}
	return filepath.Join(out, name)
}
