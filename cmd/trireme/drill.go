package main

import (
	"cmp"
	"fmt"
	"os"

	"trireme/internal/ops/backup"
	"trireme/internal/ops/cli"
)

type backupDrillCmd struct {
	Place     string `arg:"" help:"Directory of the backup, or s3://BUCKET/PREFIX."`
	Scratch   string `type:"existingdir" placeholder:"DIR" help:"Directory with room for the data, in which the drill makes one of its own and removes it. Default: $$TMPDIR, or /tmp."`
	NoCompare bool   `help:"Do not compare: restore everything and read every table. Works on any host."`
	Config    string `type:"path" placeholder:"FILE" help:"Settings of this host's node, a follower. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
	Mysqld    string `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	OSUser    string `name:"os-user" placeholder:"USER" help:"User to run mysqld as, when this runs as root. Default: our own."`
	JSON      bool   `help:"Print the outcome as JSON."`
	placeFlags
}

// Run drills. Tables that differ are exit code 1.
func (c *backupDrillCmd) Run(e *env) error {
	from, err := c.open(e, c.Place)
	if err != nil {
		return err
	}
	p := &progressLine{w: e.errOut}
	o := backup.DrillOptions{Scratch: cmp.Or(c.Scratch, os.TempDir())}
	o.RestoreOptions = backup.RestoreOptions{From: from, Mysqld: c.Mysqld, OSUser: c.OSUser, Port: 3306, Say: p.say,
		Done: p.stage, Logger: e.warnings()}
	if !c.NoCompare {
		src, err := backupSource(c.Config)
		if err != nil {
			return fmt.Errorf("%w; on a host without a node: --no-compare", err)
		}
		defer src.Daemon.Close()
		o.With = &src
	}
	d, err := backup.Drill(e.ctx, o)
	p.end()
	if err != nil && e.ctx.Err() != nil {
		return fmt.Errorf("interrupted; no server runs, and nothing is left: %w", err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(e.out, d)
	} else {
		c.print(e, d)
	}
	if err == nil && len(d.Differences) > 0 {
		err = cli.Silent(exitFailed)
	}
	return err
}

func (c *backupDrillCmd) print(e *env, d *backup.Drilled) {
	e.say("Restored from the copy %s: %d MiB, up to entry %d%s, in %.1f s; %d tables were read in %.1f s.", d.Base,
		d.Bytes>>20, d.Index, newestText(d.Newest), d.RestoreSeconds, d.Tables, d.ReadSeconds)
	printGTIDs(e, d.GTIDs)
	for _, x := range d.Differences {
		fmt.Fprintf(e.out, "%s %s %s\n", e.bad("DIFFERENT"), x.Table, x.What)
	}
	switch {
	case len(d.Differences) > 0:
	case d.With == "":
		fmt.Fprintln(e.out, "the backup can be restored; it was compared with no node")
	default:
		fmt.Fprintf(e.out, "the backup can be restored, and every table is as it was on %s at that moment\n", d.With)
	}
}
