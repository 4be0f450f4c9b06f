package main

import (
	"fmt"
	"log/slog"

	"trireme/internal/config"
	"trireme/internal/node"
)

// nodeCmd is `trireme node`.
type nodeCmd struct {
	Config string `type:"path" placeholder:"FILE" help:"Settings of this node. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
}

// Run is the daemon. It ends at SIGTERM or SIGINT, after leadership was handed over, or when going on is not safe.
func (c *nodeCmd) Run(e *env) error {
	path := c.Config
	if path == "" {
		path = defaultConfigFile()
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return fmt.Errorf("log.level: %w", err) // config.Load has checked it
	}
	log := slog.New(slog.NewTextHandler(e.errOut, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	return node.Run(e.ctx, cfg, buildVersion(), log)
}
