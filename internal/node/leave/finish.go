package leave

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/node/lifecycle"
)

const dispersePatience = 5 * time.Second // for everybody to know that it is the end

// ErrEnded ends the daemon: its server goes on without it.
var ErrEnded = errors.New("the cluster has ended")

// WhyOver is why no daemon starts on a directory any more.
func (e *End) WhyOver(d *config.Disbanded) error {
	what := "It was a logger: nothing is left to run here"
	if e.ID.Role != config.RoleLogger {
		role := "one now, the source of the others"
		if d.Source != e.ID.Name {
			role = "replica of " + d.Source + " now"
		}
		what = fmt.Sprintf("Its MySQL server is a plain %s, and is started by: %s", role,
			strings.Join(e.Host.MySQL().PlainCommand(), " "))
	}
	return fmt.Errorf("cluster %q was ended by `trireme leave` on %s. %s", e.ID.Cluster,
		d.At.UTC().Format("2006-01-02 15:04:05 UTC"), what)
}

// Finish ends this daemon once the others know of the end, or will hear of it from somebody else: the source first, so
// that it is back first. version is of the settings that say so.
func (e *End) Finish(ctx context.Context, d *config.Disbanded, version uint64) {
	e.Control.LeaderHost().Change((*lifecycle.Status).BeginStop) // this node does not lead any more
	e.Host.WakeLoop()
	e.Log.Warn("the cluster has ended: mysqld continues as a plain server", "source", d.Source)
	if l := e.Lives.Life(); l != nil && d.Source == e.ID.Name { // it is not fed any more
		if err := l.Admin().ForgetSource(ctx); err != nil {
			e.Log.Warn("the source keeps a replication channel that leads nowhere: RESET REPLICA ALL removes it", "err", err)
		}
	}
	deadline := now() + dispersePatience
	for now() < deadline && !e.mayDisperse(d, version) {
		if poll.Pause(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
	e.Host.Fail(ErrEnded)
}

func (e *End) mayDisperse(d *config.Disbanded, version uint64) bool {
	c, peers := e.Members.Current(), e.Gossip.Peers()
	if d.Source == e.ID.Name {
		return !slices.ContainsFunc(c.Members, func(m config.Member) bool {
			p := peers[m.ID]
			return p.Fresh() && p.Settings < version
		})
	}
	m, _ := c.Member(d.Source)
	return !peers[m.ID].Fresh()
}
