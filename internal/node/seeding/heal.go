package seeding

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
	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
)

// A mysqld may write what no replica can apply (docs/mysql.md). A follower whose applier stops with an error of the
// data tries once more, then has its data replaced by a copy of a node that has applied the entry. The leader lets one
// node at a time do so. A follower on which a session has ended a prepared XA transaction is seeded in the same way. It
// is not repaired in place: whether the session has committed or rolled back is not known, and preparing again what was
// committed may hide the difference.

const (
	healAgain   = 30 * time.Second // between two attempts to apply what failed twice, while it cannot be healed
	healMemory  = 6 * time.Hour    // for which a node remembers that it was seeded for this
	healLongest = 30 * time.Minute // the longest pause between two seedings
	healTimeout = 5 * time.Second  // of the question
	keepOldRoom = 1 << 30          // bytes that must be left when old and new data are both there
	grantLife   = time.Minute      // of the leader's permission, until the node shows that it is seeded
)

// failure is what this node's applier has stopped at, or the XA transaction that a session has ended here. It is
// not changed once it is shown; nil: nothing.
type failure struct {
	view    api.ApplyErrorView
	retried bool          // START REPLICA did not help
	again   time.Duration // when it is tried again, while healing is refused
	keeps   bool          // of the seeding: the old data stays until the copy is complete
}

// Mend deals with the applier of a follower that has stopped with an error.
func (s *Seeding) Mend(ctx context.Context, l *lifecycle.Life, st mysqld.ReplicaStatus) {
	if st.SQLErrno == unknownXID {
		v := s.explain(ctx, l, mysqld.ApplyError{Number: st.SQLErrno, Text: st.SQLError})
		v.Diverged, v.Error = true, "the log ends an XA transaction that a session on this node has ended before: "+v.Error
		s.fenceDiverged(l, v)
		return
	}
	s.NoteApplier(l, s.mend(ctx, l, st))
}

// mend returns why the applier has stopped, in words.
func (s *Seeding) mend(ctx context.Context, l *lifecycle.Life, st mysqld.ReplicaStatus) string {
	e, err := l.ApplyError(ctx, st)
	if err != nil {
		s.log.Debug("the applier's error was not read", "err", err)
	}
	known := s.failure.Load()
	next := failure{}
	switch {
	case known != nil && known.view.Number == e.Number && known.view.Trx == e.GTID:
		next = *known
	default:
		next.view = s.explain(ctx, l, e)
		next.view.Since = s.time.Wall()
		s.log.Error("the applier has stopped", "errno", e.Number, "err", e.Text, "gtid", next.view.GTID,
			"index", next.view.Index,
			"entry", next.view.Entry, "of_resources", next.view.Resources)
	}
	switch {
	case next.view.Resources:
		next.view.Next = "it is tried again every 2 s until what lacks is there"
		s.restartFeed(ctx, l)
	case !next.retried:
		next.retried = true
		next.view.Next = "it is tried once more, and then the node is seeded from one that has applied the entry"
		s.restartFeed(ctx, l)
	default:
		s.heal(ctx, l, &next)
	}
	s.keepFailure(l, &next)
	return next.text()
}

// keepFailure shows what the applier of a life has come to. That the data differs may have been found meanwhile: it
// stays, or HealDiverged would leave the node as it is, out of service.
func (s *Seeding) keepFailure(l *lifecycle.Life, next *failure) {
	s.server.Change(func(st *lifecycle.Status, _ uint64) bool {
		if f := s.failure.Load(); st.Life() == l && (f == nil || !f.view.Diverged) {
			s.failure.Store(next)
		}
		return false
	})
}

// NoteApplier keeps why replication from the feed does not run, and says whether that is new.
func (s *Seeding) NoteApplier(l *lifecycle.Life, problem string) (changed bool) {
	s.server.Change(func(st *lifecycle.Status, applied uint64) bool {
		if st.Life() != l {
			return false
		}
		if changed = s.Applier() != problem; changed {
			s.applier.Store(&problem)
		}
		if f := s.failure.Load(); f != nil && !f.view.Diverged && problem == "" && applied >= f.view.Index {
			s.failure.Store(nil)
		}
		return changed
	})
	return changed
}

// text is for status and why-not.
func (f *failure) text() string {
	v := &f.view
	what := "the applier has stopped"
	switch {
	case v.Resources:
		what = "the applier waits for resources"
	case v.Diverged:
		what = "the data differs"
	}
	if v.Entry != "" {
		what += fmt.Sprintf(" at entry %d (%s: %s)", v.Index, v.GTID, v.Entry)
	}
	if v.Number == 0 { // mysqld has said nothing
		return fmt.Sprintf("%s: %s; %s", what, v.Error, v.Next)
	}
	return fmt.Sprintf("%s: error %d: %s; %s", what, v.Number, v.Error, v.Next)
}

func (s *Seeding) restartFeed(ctx context.Context, l *lifecycle.Life) {
	if err := s.server.RestartFeed(ctx, l); err != nil {
		s.log.Debug("replication did not start", "err", err)
	}
}

// heal has this node's data replaced, if the leader agrees and it was not done too often; next says what holds it up
// otherwise.
func (s *Seeding) heal(ctx context.Context, l *lifecycle.Life, next *failure) {
	why := s.mayHealNow(ctx, next)
	if why == nil {
		why = s.giveUpData(l, next)
	}
	if why == nil {
		return
	}
	next.view.Next = "not healed yet: " + why.Error()
	if !next.view.Diverged && s.now() >= next.again {
		next.again = s.now() + healAgain
		s.restartFeed(ctx, l)
	}
}

// fenceDiverged takes a follower's mysqld out of service: its data does not match what is committed. HealDiverged has
// the node seeded.
func (s *Seeding) fenceDiverged(l *lifecycle.Life, v api.ApplyErrorView) {
	v.Next = "the node is seeded from another one"
	if v.Since.IsZero() { // else it was known before
		v.Since = s.time.Wall()
	}
	f := &failure{view: v}
	fenced := false
	s.server.Change(func(st *lifecycle.Status, _ uint64) bool {
		judged := st.State() == ha.ServerReady || st.State() == ha.ServerJudging
		if st.Life() != l || !judged || st.Phase() != ha.PhaseNone && st.Phase() != ha.PhasePromoting {
			return false // it leads, or is dead: what was seen says nothing any more
		}
		s.failure.Store(f)
		st.Broken(f.text())
		fenced = true
		return true
	})
	if !fenced {
		return
	}
	s.server.PauseFeed()
	if err := s.memory.Note(func(n *Notes, _ *lifecycle.State) { n.Diverged = &v }); err != nil {
		s.log.Error("that this node's data differs was not written down; a restart of mysqld may hide it", "err", err)
	}
	attrs := []any{"problem", f.text()}
	if v.Number != 0 { // what mysqld leaves out by itself is no broken rule of ours
		attrs = append(attrs, "rule", "S5")
	}
	s.log.Error("mysqld's data does not match the committed log; this node must be seeded again", attrs...)
	s.host.Record(api.Event{Kind: api.EventDivergent, Index: v.Index, Message: f.text(), GTIDs: v.GTID})
	s.host.WakeLoop()
}

// FenceKnown does so with a mysqld that holds what this node knows to differ, which a restart would hide, and says
// whether it does.
func (s *Seeding) FenceKnown(l *lifecycle.Life) bool {
	v := s.memory.Notes().Diverged
	if v != nil {
		s.fenceDiverged(l, *v)
	}
	return v != nil
}

// HealDiverged has a node seeded whose mysqld is out of service because its data differs. It says whether that is so.
func (s *Seeding) HealDiverged(ctx context.Context, l *lifecycle.Life) bool {
	known := s.failure.Load()
	if known == nil || !known.view.Diverged {
		return false
	}
	next := *known
	s.heal(ctx, l, &next)
	s.server.Change(func(st *lifecycle.Status, _ uint64) bool {
		if st.Life() != l || st.State() != ha.ServerBroken {
			return false
		}
		changed := st.Problem() != next.text()
		s.failure.Store(&next)
		st.Broken(next.text())
		return changed
	})
	return true
}

// mayHealNow says why this node cannot be seeded now; nil: it can.
func (s *Seeding) mayHealNow(ctx context.Context, f *failure) error {
	if f.view.Index == 0 {
		return errors.New("it is not known at which entry, so neither who has applied it")
	}
	if at := nextHeal(s.memory.Notes().Heals, s.time.Wall()); s.time.Wall().Before(at) {
		return fmt.Errorf(
			"it was seeded for such an error a while ago, and waits until %s; `trireme reinit %s` does it at once",
			at.Format(time.TimeOnly), s.id.Name)
	}
	f.keeps = s.roomForBoth()
	leader := s.host.Raft().Status().Leader
	switch leader {
	case 0:
		return errors.New("there is no leader to ask")
	case s.id.ID:
		return errors.New("it is raft's leader, and hands over to a node that has applied the entry as soon as there is one")
	}
	rctx, cancel := s.time.WithTimeout(ctx, healTimeout)
	defer cancel()
	_, err := ReqHeal.Ask(rctx, s.cluster, leader,
		HealRequest{Index: f.view.Index, Keeps: f.keeps, Diverged: f.view.Diverged})
	return err
}

// recentHeals are those that count. A clock that was ahead for a while must not hold healing up: what is to come does
// not count.
func recentHeals(heals []time.Time, at time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(heals), func(t time.Time) bool { return t.After(at) || at.Sub(t) > healMemory })
}

// nextHeal is when a node may be seeded for this the next time: at once, then after pauses that double.
func nextHeal(heals []time.Time, at time.Time) time.Time {
	recent := recentHeals(heals, at)
	if len(recent) == 0 {
		return at
	}
	pause := min(time.Minute<<min(len(recent)-1, 10), healLongest)
	return recent[len(recent)-1].Add(pause)
}

// roomForBoth says whether old and new data have room side by side, if the new is a quarter larger.
func (s *Seeding) roomForBoth() bool {
	free, used, err := s.server.Space()
	return err == nil && free > used*5/4+keepOldRoom
}

// giveUpData makes this node one that has to be seeded. ha.Decide does the rest.
func (s *Seeding) giveUpData(l *lifecycle.Life, f *failure) error {
	if err := s.memory.Note(func(n *Notes, _ *lifecycle.State) {
		at := s.time.Wall()
		n.Heals = append(recentHeals(n.Heals, at), at.UTC().Truncate(time.Second))
	}); err != nil {
		return err
	}
	given := false
	s.server.Change(func(st *lifecycle.Status, _ uint64) bool {
		may := st.State() == ha.ServerReady || f.view.Diverged && st.State() == ha.ServerBroken
		if st.Life() != l || !may || st.Phase() != ha.PhaseNone {
			return false
		}
		f.view.Next = "it is seeded from a node that has applied the entry"
		s.failure.Store(f)
		st.Behind(f.text())
		given = true
		return true
	})
	if !given {
		return errors.New("its mysqld is not what it was a moment ago")
	}
	s.heals.Add(1)
	s.host.Record(api.Event{Kind: api.EventApplyError, Index: f.view.Index, Message: f.text(), GTIDs: f.view.GTID})
	s.log.Warn("this node is seeded again", "why", f.view.Error, "gtid", f.view.GTID, "index", f.view.Index,
		"entry", f.view.Entry, "errno", f.view.Number, "keeps_old_data", f.keeps)
	s.host.WakeLoop()
	return nil
}

// HealRequest is what a node asks the leader when it has to be seeded.
type HealRequest struct {
	Index uint64 `json:"index"`
	Keeps bool   `json:"keeps"` // it keeps its data until the copy is complete
	// Diverged: its data is no good, so nothing is lost with it.
	Diverged bool `json:"diverged,omitempty"`
}

// grants is the leader's permission that was given last.
type grants struct {
	mu sync.Mutex // held while the next is decided
	to uint64
	at time.Duration
}

// GrantFor answers a node that wants to be seeded (raft's leader only).
func (s *Seeding) GrantFor(_ context.Context, from uint64, r HealRequest) error {
	st := s.host.Raft().Status()
	if st.Role != consensus.Leader {
		return errors.New("the node that was asked does not lead")
	}
	c, settings := s.cluster.Census(), s.cluster.Settings()
	my, applied := s.server.Now()
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if _, member := settings.MemberByID(from); !member {
		return errors.New("it is not a member")
	}
	if settings.PausedAt(s.time.Wall()) {
		return errors.New("automatic actions are paused")
	}
	holder := my.State() == ha.ServerReady && applied >= r.Index
	peers := s.cluster.Peers()
	for _, m := range settings.Members {
		p := peers[m.ID]
		if m.ID == from || !p.Fresh() {
			continue
		}
		switch {
		case p.Member.Seed != nil:
			return fmt.Errorf("%s is being seeded, and it is one node at a time", m.Name)
		case m.ID == s.grants.to && s.now() < s.grants.at+grantLife && !p.Ready:
			return fmt.Errorf("%s is about to be seeded, and it is one node at a time", m.Name)
		case m.Role != config.RoleLogger && p.Ready && p.Member.Raft.Applied >= r.Index:
			holder = true
		}
		if f := p.Member.ApplyError; f != nil && !f.Diverged {
			node := c.Nodes[m.ID]
			node.Ready = true // what it holds up to the entry is good, and the log has the rest
			c.Nodes[m.ID] = node
		}
	}
	switch {
	case !holder:
		return errNoHolder
	case !r.Keeps && !r.Diverged && !c.KeptWithout(from):
		return fmt.Errorf("there is no room to keep its data until the copy is complete, and it is needed: without it %s",
			c.WhyNotKept(from))
	}
	s.grants.to, s.grants.at = from, s.now()
	return nil
}

// errNoHolder: no node has what an entry did.
var errNoHolder = errors.New("no node that answers has applied the entry, so no node can be copied from")
