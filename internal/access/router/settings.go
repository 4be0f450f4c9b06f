package router

import (
	"fmt"

	"trireme/internal/base/config"
)

// FromSettings makes a Config of what a file says. Who runs the router adds its logger, its certificate and whom the
// router asks.
func FromSettings(r config.Router) (Config, error) {
	c := Config{RWListen: r.RWAddr(), ROListen: r.ROAddr(), SplitListen: r.SplitAddr(), StreamListen: r.StreamAddr(),
		RWSocket: r.RWSocket, ROSocket: r.ROSocket, SplitSocket: r.SplitSocket,
		HoldTimeout: r.HoldTimeout.Std(), MaxConns: r.MaxConns, Limits: Limits{Conns: r.MaxConnsPerAddress,
			Rate: r.MaxConnRate},
		Sessions: r.Sessions == config.SessionsCarry, ReplayReads: r.Replay == config.ReplayReads, Levels: map[string]Level{},
		ConsistencyTimeout: r.ConsistencyTimeout.Std(), OwnWritesTimeout: r.OwnWritesTimeout.Std(), MaxLag: r.MaxLag.Std()}
	var err error
	if c.Limits.Balancers, err = r.BalancerNets(); err != nil {
		return c, fmt.Errorf("router.balancers: %w", err)
	}
	if c.Consistency, err = ParseLevel(r.Consistency); err != nil {
		return c, fmt.Errorf("router.consistency: %w", err)
	}
	for user, level := range r.Levels {
		if c.Levels[user], err = ParseLevel(level); err != nil {
			return c, fmt.Errorf("router.levels: %s: %w", user, err)
		}
	}
	return c, nil
}
