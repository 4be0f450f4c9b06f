// Package room is what a member does about room: it purges the raft log of what no recovery needs (S8), gives up
// members that are away when the log is at its bound, refuses writes when that is not enough, and watches the free
// space of its disks.
package room

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
	"trireme/internal/node/membership"
)

const (
	BoundInterval = time.Second // of PurgeLog
	// ownGrace is how long a node that was ready keeps what it needs itself while its log is at the bound: its mysqld
	// restarts.
	ownGrace = time.Minute
)

// Host is the rest of the member.
type Host interface {
	Raft() consensus.Status
	Log() *raftlog.Log
	Settings() *config.Cluster
	// Needs is from which index this member's recovery may need the log, and whether its mysqld is judged and fed, both
	// at one moment.
	Needs() (keep uint64, ready bool)
	// GaveUp adds to the history that data nodes were given up by a purge up to an index.
	GaveUp(index uint64, text string)
	// IsNew says whether an attempt at what has failed in a way that was not told yet.
	IsNew(what string, err error) bool
	WakeLoop()
}

// Room is of one member. Its methods may be called from any goroutine, but PurgeLog and WatchSpace from one each.
type Room struct {
	cfg    config.Node
	id     config.Identity
	gossip *gossip.Gossip
	host   Host
	log    *slog.Logger

	mu    sync.Mutex // calls nothing while held
	state State

	// owned by PurgeLog
	givenUp string        // the data nodes that the log does not go back to any more
	readyAt time.Duration // when this member was ready last; 0: never
}

// State is what a member knows of its room at one moment.
type State struct {
	FullDir string         // not empty: a disk is full, or nearly: that of this folder
	Bound   string         // not empty: the raft log should take no more, and why
	Pinned  string         // not empty: who keeps the raft log from being purged
	Disks   []api.DiskView // as they were last looked at; never changed
}

// New makes a member's part of which nothing is known yet.
func New(cfg config.Node, id config.Identity, g *gossip.Gossip, host Host, log *slog.Logger) *Room {
	return &Room{cfg: cfg, id: id, gossip: g, host: host, log: log}
}

// State is what is known now.
func (r *Room) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// change changes what is known, and returns what was.
func (r *Room) change(f func(*State)) (was State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was = r.state
	f(&r.state)
	return was
}

// Purge has a member's log purged up to where S8 allows it, by its caller: first, by usual, of what no node's recovery
// needs any more. If the log is beyond its bound after that, atBound gives up data nodes that are away, if S8 holds
// without them: they are seeded when they come back. pin says who keeps the rest; self is what the member says of
// itself.
func Purge(self ledger.LogRetainer, st *consensus.Status, settings *config.Cluster, peers gossip.Peers,
	usual func(safe uint64) (beyond bool), atBound func(safe uint64, given []string)) (pin string) {
	m, all := membership.VotesOf(st), membership.Retainers(self, st, settings, peers)
	safe, pin := ledger.PurgePoint(st.Commit, m, all)
	if usual(safe) {
		var given []string
		safe, given, pin = ledger.BoundPoint(st.Commit, m, all)
		atBound(safe, given)
	}
	return pin
}

// self is this member as its own purge sees it.
func (r *Room) self() ledger.LogRetainer {
	now := time.Duration(consensus.Boottime())
	keep, ready := r.host.Needs()
	if ready {
		r.readyAt = now
	}
	return ledger.LogRetainer{ID: r.id.ID, Keep: keep, Ready: r.readyAt > 0 && now-r.readyAt < ownGrace}
}

// PurgeLog purges this member's log. What is left to do beyond the bound is to write no more: see noteBound.
func (r *Room) PurgeLog(context.Context) {
	st := r.host.Raft()
	self := r.self()
	limit, why := r.bound()
	pin := Purge(self, &st, r.host.Settings(), r.gossip.Peers(), func(safe uint64) bool {
		r.purgeTo(min(int64(r.cfg.Raft.LogMax), limit), safe)
		if safe > 0 {
			r.givenUp = ""
		}
		return r.host.Log().Size() > limit
	}, func(safe uint64, given []string) {
		names := strings.Join(given, ", ")
		if !r.purgeTo(limit, safe) || names == "" || names == r.givenUp { // it is told once
			return
		}
		r.givenUp = names
		r.log.Warn("the log has come to its bound: data nodes that are away are given up and will be seeded", "nodes", names,
			"bound", why)
		r.host.GaveUp(safe, why+": "+names+" will be seeded on return: the log does not go back as far as its data any more")
	})
	r.noteBound(limit, why, pin)
}

// purgeTo says whether anything was removed.
func (r *Room) purgeTo(limit int64, safe uint64) bool {
	l := r.host.Log()
	before, _ := l.FirstIndex()
	after, err := l.Purge(safe, limit)
	switch {
	case !errors.Is(err, raftlog.ErrClosed) && r.host.IsNew("purge", err):
		r.log.Warn("the log was not purged", "err", err)
	case after > before:
		r.log.Info("log purged", "first", after, "safe", safe, "bytes", l.Size())
	}
	return after > before
}

// bound is the most that the log may take, in bytes: raft.log_limit, and what its disk has room for, less what a node
// needs to go on. Once it was reached, one segment less: writes must not open and close all the time.
func (r *Room) bound() (limit int64, why string) {
	limit = math.MaxInt64
	if l := r.cfg.Raft.LogLimit; l > 0 {
		limit, why = int64(l), fmt.Sprintf("the raft log has come to raft.log_limit, %v", l)
	}
	dir, seg := r.cfg.RaftDir(), int64(r.cfg.Raft.LogSegment)
	if free, err := logSpace(dir); err == nil {
		if room := r.host.Log().Size() + int64(free) - spaceLow - 2*seg; room < limit {
			limit, why = room, fmt.Sprintf("the disk of %s has %d MiB left for the raft log", dir, free>>20)
		}
	}
	if r.State().Bound != "" {
		limit -= seg
	}
	return limit, why
}

// noteBound tells everybody when this node's log should take no more, and who keeps it from being purged.
func (r *Room) noteBound(limit int64, why, pin string) {
	size, bound := r.host.Log().Size(), ""
	switch {
	case size > limit && pin != "":
		bound = why + " and cannot be purged: " + pin
	case size > limit:
		bound = why
	case size <= int64(r.cfg.Raft.LogMax)+int64(r.cfg.Raft.LogSegment):
		pin = ""
	}
	was := r.change(func(s *State) { s.Bound, s.Pinned = bound, pin })
	if was.Bound != bound || (pin == "") != (was.Pinned == "") {
		r.gossip.Publish()
	}
	switch {
	case bound != "" && was.Bound == "":
		r.log.Error(bound, "bytes", size)
	case bound == "" && was.Bound != "":
		r.log.Info("the raft log is below its bound again", "bytes", size)
	default:
		return
	}
	r.host.WakeLoop()
}

// refused says why the leader takes no writes although it has a majority: more of the voters' logs have come to their
// bounds, as its own has if bound is not empty, than it can do without. It goes on by itself when they are below.
func (r *Room) refused(st *consensus.Status, bound string) string {
	m, room := membership.VotesOf(st), map[uint64]bool{}
	var full []string
	look := func(id uint64, name, bound string) {
		if room[id] = bound == ""; !room[id] && m.Votes(id) {
			full = append(full, name+": "+bound)
		}
	}
	look(r.id.ID, r.id.Name, bound)
	for id, p := range r.gossip.Peers() {
		if p.Fresh() {
			look(id, p.Member.Name, p.Bound)
		}
	}
	if len(full) == 0 || m.Reaches(func(id uint64) bool { return room[id] }) {
		return ""
	}
	slices.Sort(full)
	return "no majority of the voters has room for more in its log (" + strings.Join(full, "; ") + ")"
}
