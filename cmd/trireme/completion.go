package main

import (
	"context"
	"io"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/cli"
)

// completionCmd is `trireme completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script.
func (c *completionCmd) Run(e *env) error {
	_, err := io.WriteString(e.out, cli.Script(e.app.Name, c.Shell))
	return err
}

// completeCmd is what the scripts ask: the words after the program's name; the last one is completed and may be empty.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

const namesPatience = time.Second

// Run prints a candidate and what it is on each line.
func (c *completeCmd) Run(e *env) error {
	return cli.Complete(e.out, e.app, c.Words, func(flags map[string]string) []string {
		return memberNames(e.ctx, remote{API: flags["api"], Cluster: flags["cluster"]})
	})
}

// memberNames asks the cluster, or the settings that the last joining left here; a completion must be quick.
func memberNames(ctx context.Context, r remote) []string {
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	client, err := r.client(ctx, false)
	if err == nil {
		defer client.Close()
		if view, err := client.Cluster(ctx); err == nil {
			return namesOf(view)
		}
	}
	n, err := config.Load(defaultConfigFile())
	if err != nil {
		return nil
	}
	c, err := config.LoadCluster(n.Dir)
	if err != nil {
		return nil
	}
	return c.Names()
}
