package node

import (
	"context"
	"slices"
	"strings"

	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
)

// startEvents lets scheduled events run here. A replica holds all of them disabled, so those that the leader before did
// not hold disabled are enabled again first, on this server only. Clients do not wait for it.
func (n *Node) startEvents(ctx context.Context, l *lifecycle.Life) {
	disabled := n.Settings().DisabledEvents
	events, err := l.Admin().Events(ctx)
	for _, e := range events {
		if err == nil && strings.HasSuffix(e.Status, "SIDE_DISABLED") && !slices.Contains(disabled, eventName(e)) {
			err = l.Admin().SetEventEnabled(ctx, e.Schema, e.Name, true)
		}
	}
	if err == nil {
		err = l.RunEvents(ctx)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Error("scheduled events do not run", "err", err)
		n.history.Record("events", "", "scheduled events do not run: "+err.Error())
		return
	}
	n.special.Store(true)
}

func eventName(e mysqld.Event) string { return e.Schema + "." + e.Name }

// recordEvents keeps the list of disabled events in the cluster settings current (leader only). It looks when something
// other than rows was committed since it last looked.
func (n *Node) recordEvents(ctx context.Context) {
	s := n.lives.Status()
	l, known := s.Life(), n.Settings().DisabledEvents
	if l == nil || !l.RunsEvents() || !s.Opens(l) || !n.special.Swap(false) {
		return
	}
	events, err := l.Admin().Events(ctx)
	if err != nil {
		n.special.Store(true)
		return
	}
	var disabled []string
	for _, e := range events {
		if e.Status != "ENABLED" {
			disabled = append(disabled, eventName(e))
		}
	}
	slices.Sort(disabled)
	if slices.Equal(disabled, known) {
		return
	}
	if _, err := n.members.Change(ctx, 0, func(c *config.Cluster) error { c.DisabledEvents = disabled; return nil }); err != nil {
		n.log.Debug("the states of scheduled events were not recorded", "err", err)
		n.special.Store(true)
	}
}
