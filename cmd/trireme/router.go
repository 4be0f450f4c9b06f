package main

import (
	"fmt"
	"log/slog"

	"trireme/internal/access/standalone"
	"trireme/internal/api"
	"trireme/internal/base/config"
)

// routerCmd is `trireme router`.
type routerCmd struct {
	Config string `type:"path" placeholder:"FILE" default:"/etc/trireme/router.toml" help:"Settings: nodes, ca, token_file, [router], [log]. Default: ${default}."`
	Check  bool   `help:"Only check the settings."`
	JSON   bool   `help:"With --check: print what was read as JSON."`
}

// Run routes until SIGTERM or SIGINT.
func (c *routerCmd) Run(e *env) error {
	if c.JSON && !c.Check {
		return usagef("--json goes with --check: a router that runs prints its log")
	}
	cfg, err := config.LoadStandalone(c.Config)
	if err == nil && c.Check {
		err = standalone.CheckFiles(c.Config, cfg)
	}
	switch {
	case err != nil && c.Check:
		return api.Errorf(api.KindFailed, "%s", err)
	case err != nil:
		return noStart(err)
	}
	if c.JSON {
		return printJSON(e.out, map[string]any{"file": c.Config, "nodes": cfg.Nodes})
	}
	if c.Check {
		fmt.Fprintf(e.out, "%s: no mistakes found\n", c.Config)
		return nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return fmt.Errorf("log.level: %w", err) // LoadStandalone has checked it
	}
	ignoreHangup()
	return standalone.Run(e.ctx, cfg, slog.New(slog.NewTextHandler(e.errOut, &slog.HandlerOptions{Level: level})))
}
