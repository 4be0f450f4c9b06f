package reads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
)

// AFTER's live set. The leader says which data nodes count as live. A write at AFTER waits for those; a read at AFTER
// goes to one of those. So a node that is dead or cut off holds writes up for a moment only, and one that is cut off is
// not read at AFTER.
//
//	tell    A router asks at t0 by its clock. At t1 the leader notes that the set's nodes may be read for 1.25 D from then, and answers with the set and its
//	        commit index C.
//	read    Once a statement has come, its router makes sure that t0 + D is not over, that the node is in the set, that the connection to its server is
//	        older than t0, and that the node has said, after that, that its server has applied C.
//	write   At tx its router knows that the write X is committed. After that it asks the leader whom to wait for, which is who counts as live or
//	        may be read still, and each of those says that it has applied X; then the client gets its answer.
//
// A read that begins after X's answer shows X:
//
//	tx < t1   C covers X, also if that was known from an earlier leader: one answers only when it has applied an entry of its own term. The connection's
//	          server has applied C.
//	tx > t1   The leader was asked whom to wait for before X was answered, so before the read, so before t0 + D by the router's clock, so before t1 + 1.25 D by
//	          the leader's (clocks differ by less than a fifth): the node was waited for. It has said that it has X after tx, so after t0: of
//	          the connection's server, or of a later one, after whose start that connection is gone.
//	a later leader was asked at that time: it waits for all members, for 1.25 D since it saw that it leads, which is after t1: who leads looks at its lease
//	          after each answer. The record of a member that is removed stays until it cannot be read any more, so that no later leader overlooks it.
//
// Nothing of this rests on why the leader takes a node in or drops it: that is a matter of who waits for how long.
const (
	liveGrace = api.LiveFor * 5 / 4 // until api.LiveFor, D, is over by any clock
	// liveHeard is the age of a status, which comes each second, at which its node is not counted as live any more.
	liveHeard = 2 * time.Second
	// liveRound is the longest time in which a node must have applied what was committed when that began, to count as
	// live: then it keeps up.
	liveRound = 2 * time.Second
	// liveAgain is the pause before the leader is asked again whom to wait for.
	liveAgain = 200 * time.Millisecond
)

const (
	liveWait byte = iota // whom a write waits for
	liveTell             // the set, for a router that may read its nodes
)

// errNotSure is given to who asks a node that cannot speak for the cluster.
var errNotSure = errors.New("this node does not lead, or cannot prove it")

// liveSet is the leader's account. Times are of CLOCK_BOOTTIME.
type liveSet struct {
	mu    sync.Mutex
	term  uint64        // that it is of
	since time.Duration // when this node saw that it leads in it
	nodes map[uint64]*liveNode
}

type liveNode struct {
	live   bool
	until  time.Duration // it may be read by who was told that it is live
	target uint64        // to be applied in the present round; 0: none
	began  time.Duration // of the round
}

// lead makes the set one of a term. false: the term is over.
func (l *liveSet) lead(term uint64, now time.Duration) bool {
	if term > l.term {
		l.term, l.since, l.nodes = term, now, map[uint64]*liveNode{}
	}
	return term == l.term
}

// of is the account of a node; what an earlier leader told of it is not known.
func (l *liveSet) of(id uint64) *liveNode {
	if l.nodes[id] == nil {
		l.nodes[id] = &liveNode{until: l.since + liveGrace}
	}
	return l.nodes[id]
}

// look takes what is known of a data node now: whether it is heard of and serves, and what it has applied of what is
// committed. It says whether that changes what it counts as.
func (l *liveSet) look(now time.Duration, id uint64, serves bool, applied, commit uint64) (changed bool) {
	m := l.of(id)
	switch was := m.live; {
	case !serves:
		m.live, m.target = false, 0
		return was
	case was:
		return false
	case m.target == 0 || now > m.began+liveRound:
		m.target, m.began = commit, now
	}
	if applied >= m.target {
		m.live, m.target = true, 0
	}
	return m.live
}

// tell is the set, for one who may read its nodes.
func (l *liveSet) tell(now time.Duration) (ids []uint64) {
	for id, m := range l.nodes {
		if m.live {
			m.until = now + liveGrace
			ids = append(ids, id)
		}
	}
	return ids
}

// readable says whether somebody may read a node at AFTER.
func (l *liveSet) readable(now time.Duration, id uint64) bool {
	m := l.of(id)
	return m.live || now < m.until
}

// wait is whom writes wait for, members or not any more.
func (l *liveSet) wait(now time.Duration, members []uint64) (ids []uint64) {
	for _, id := range members {
		l.of(id)
	}
	for id := range l.nodes {
		switch {
		case l.readable(now, id):
			ids = append(ids, id)
		case !slices.Contains(members, id):
			delete(l.nodes, id)
		}
	}
	return ids
}

// LookAtLive looks at all data nodes, as the leader.
func (r *Reads) LookAtLive() {
	st := r.host.Raft().Status()
	if st.Role != consensus.Leader {
		return
	}
	members, peers := r.dataMembers(), r.host.Peers()
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	if !r.live.lead(st.Term, now()) {
		return
	}
	for _, m := range members {
		serves, applied := m.ID == r.id.ID, st.Commit // the leader is always read
		if p, known := peers[m.ID]; known {
			applied = p.Member.Raft.Applied
			serves = p.Up && now() < p.At+liveHeard && p.Ready && !m.Removing && !(m.Role == config.RoleLearner && m.Delay() > 0)
		}
		if r.live.look(now(), m.ID, serves, applied, st.Commit) {
			r.log.Info("AFTER's live set changes", "node", m.Name, "live", serves, "term", st.Term)
		}
	}
}

// MayBeRead says whether somebody may read a member at AFTER, as far as the leader of a term knows.
func (r *Reads) MayBeRead(term, id uint64) bool {
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	return r.live.term != term || r.live.readable(now(), id)
}

// liveHere answers ReqLive as the leader.
func (r *Reads) liveHere(kind byte) (commit uint64, ids []uint64, err error) {
	st := r.host.Raft().Status()
	if st.Role != consensus.Leader || r.host.Settled() != st.Term {
		return 0, nil, errNotSure
	}
	var members []uint64
	for _, m := range r.dataMembers() {
		members = append(members, m.ID)
	}
	r.live.mu.Lock()
	ok := r.live.lead(st.Term, now())
	if ok && kind == liveTell {
		ids = r.live.tell(now())
	} else if ok {
		ids = r.live.wait(now(), members)
	}
	r.live.mu.Unlock()
	// after the account; raft shows it before anybody can have heard of it
	commit = r.host.Raft().Status().Commit
	if !ok || !r.host.Raft().HoldsLease() || r.host.Raft().Status().Term != st.Term { // last of all (S10)
		return 0, nil, errNotSure
	}
	return commit, ids, nil
}

// LiveForPeer answers ReqLive.
func (r *Reads) LiveForPeer(_ context.Context, _ uint64, kind uint8) ([]uint64, error) {
	commit, ids, err := r.liveHere(kind)
	return append([]uint64{commit}, ids...), err
}

// askLive puts ReqLive to the leader, wherever it is.
func (r *Reads) askLive(ctx context.Context, kind byte) (commit uint64, ids []uint64, err error) {
	leader := r.host.Raft().Status().Leader
	switch leader {
	case 0:
		return 0, nil, errors.New("no leader is known here")
	case r.id.ID:
		return r.liveHere(kind)
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	told, err := ReqLive.Ask(ctx, r.host, leader, kind)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("%s, the leader as far as is known here, does not say who counts as live: %w",
			r.name(leader), err)
	case len(told) == 0:
		return 0, nil, errors.New("an empty answer")
	}
	return told[0], told[1:], nil
}
