package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/membership"
)

const (
	boundInterval = time.Second
	// ownGrace is how long a node that was ready keeps what it needs itself while its log is at the bound: its mysqld
	// restarts.
	ownGrace = time.Minute
)

// retainers is everybody as this node knows them. For purge only.
func (n *Node) retainers(st *consensus.Status) []ledger.LogRetainer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ready := n.control.ReadyLocked(); ready {
		n.purging.readyAt = now()
	}
	own := ledger.LogRetainer{ID: n.id.ID, Keep: n.lives.KeepFrom(),
		Ready: n.purging.readyAt > 0 && now()-n.purging.readyAt < ownGrace}
	return membership.Retainers(own, st, n.Settings(), n.gossip.Peers())
}

// purge removes what no node's recovery needs any more (S8). Beyond the log's bound it gives up data nodes that are
// away, if S8 holds without them: they are seeded when they come back. What is left to do then is to write no more: see
// noteBound.
func (n *Node) purge(context.Context) {
	st := n.cons.Status()
	all, m := n.retainers(&st), membership.VotesOf(&st)
	limit, why := n.logBound()
	safe, pin := ledger.PurgePoint(st.Commit, m, all)
	n.purgeTo(min(int64(n.cfg.Raft.LogMax), limit), safe)
	if safe > 0 {
		n.purging.givenUp = ""
	}
	if n.rlog.Size() > limit {
		var given []string
		if safe, given, pin = ledger.BoundPoint(st.Commit, m, all); n.purgeTo(limit, safe) && len(given) > 0 {
			n.noteGivenUp(strings.Join(given, ", "), why, safe)
		}
	}
	n.noteBound(limit, why, pin)
}

// noteGivenUp tells once of those that are away that they will be seeded.
func (n *Node) noteGivenUp(names, why string, index uint64) {
	if names == n.purging.givenUp {
		return
	}
	n.purging.givenUp = names
	n.log.Warn("the log has come to its bound: data nodes that are away are given up and will be seeded", "nodes", names,
		"bound", why)
	n.history.Add(n.history.Event("purge", index,
		fmt.Sprintf("%s: %s will be seeded on return: the log does not go back as far as its data any more", why, names)))
}

// purgeTo says whether anything was removed.
func (n *Node) purgeTo(limit int64, safe uint64) bool {
	before, _ := n.rlog.FirstIndex()
	after, err := n.rlog.Purge(safe, limit)
	if errors.Is(err, raftlog.ErrClosed) {
		err = nil
	}
	switch {
	case n.warnings.isNew("purge", err):
		n.log.Warn("the log was not purged", "err", err)
	case after > before:
		n.log.Info("log purged", "first", after, "safe", safe, "bytes", n.rlog.Size())
	}
	return after > before
}

// logBound is the most that the log may take, in bytes: raft.log_limit, and what its disk has room for, less what a
// node needs to go on. Once it was reached, one segment less: writes must not open and close all the time.
func (n *Node) logBound() (limit int64, why string) {
	limit = math.MaxInt64
	if l := n.cfg.Raft.LogLimit; l > 0 {
		limit, why = int64(l), fmt.Sprintf("the raft log has come to raft.log_limit, %v", l)
	}
	seg := int64(n.cfg.Raft.LogSegment)
	if free, err := logSpace(n.cfg.RaftDir()); err == nil {
		if room := n.rlog.Size() + int64(free) - spaceLow - 2*seg; room < limit {
			limit, why = room, fmt.Sprintf("the disk of %s has %d MiB left for the raft log", n.cfg.RaftDir(), free>>20)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bound != "" {
		limit -= seg
	}
	return limit, why
}

// noteBound tells everybody when this node's log should take no more, and who keeps it from being purged.
func (n *Node) noteBound(limit int64, why, pin string) {
	size, bound := n.rlog.Size(), ""
	if size <= int64(n.cfg.Raft.LogMax)+int64(n.cfg.Raft.LogSegment) && size <= limit {
		pin = ""
	}
	if size > limit {
		bound = why
		if pin != "" {
			bound += " and cannot be purged: " + pin
		}
	}
	n.mu.Lock()
	was := n.bound
	if was != bound || (pin == "") != (n.pinned == "") {
		n.gossip.Publish()
	}
	n.bound, n.pinned = bound, pin
	n.mu.Unlock()
	switch {
	case bound != "" && was == "":
		n.log.Error(bound, "bytes", size)
	case bound == "" && was != "":
		n.log.Info("the raft log is below its bound again", "bytes", size)
	default:
		return
	}
	n.wakeLoop()
}

// refusedLocked says why the leader takes no writes although it has a majority: more of the voters' logs have come to
// their bounds than it can do without. It goes on by itself when they are below.
func (n *Node) refusedLocked(st *consensus.Status) string {
	m := membership.VotesOf(st)
	var full []string
	room := func(id uint64) bool { return id == n.id.ID && n.bound == "" }
	if n.bound != "" && m.Votes(n.id.ID) {
		full = append(full, n.id.Name+": "+n.bound)
	}
	has := map[uint64]bool{}
	for id, p := range n.gossip.Peers() {
		if !m.Votes(id) || !p.Fresh() {
			continue
		}
		if has[id] = p.Bound == ""; !has[id] {
			full = append(full, p.Member.Name+": "+p.Bound)
		}
	}
	if len(full) == 0 || m.Reaches(func(id uint64) bool { return room(id) || has[id] }) {
		return ""
	}
	slices.Sort(full)
	return "no majority of the voters has room for more in its log (" + strings.Join(full, "; ") + ")"
}
