package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/signal"
	"syscall"

	"trireme/internal/access/vip"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/guard"
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
		return noStart(err)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return fmt.Errorf("log.level: %w", err) // config.Load has checked it
	}
	log := slog.New(slog.NewTextHandler(e.errOut, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	ignoreHangup()
	return node.Run(e.ctx, cfg, buildVersion(), log)
}

// ignoreHangup is for what goes on when the terminal that it was started from closes (SIGHUP).
func ignoreHangup() { signal.Ignore(syscall.SIGHUP) }

// noStart is what a mistake in its settings ends a daemon or a router with: another start would find the same one.
func noStart(err error) error {
	if mistake, ok := errors.AsType[*config.Error](err); ok {
		return api.Errorf(api.KindFinal, "%s", mistake.Error())
	}
	return err
}

// guardCmd is the second process of `trireme node`, which starts it.
type guardCmd struct {
	Node string       `help:"Name of the node, for its log and the process list."`
	VIP  []netip.Addr `name:"vip" sep:"none" help:"Address to remove with mysqld."`
}

// Run ends when the daemon does.
func (c *guardCmd) Run(e *env) error {
	ignoreHangup()
	withdraw := func() error {
		if len(c.VIP) == 0 {
			return nil
		}
		return vip.Remove(c.VIP)
	}
	return guard.Run(slog.New(slog.NewTextHandler(e.errOut, nil)).With("node", c.Node), withdraw)
}
