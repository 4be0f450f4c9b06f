package gossip

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// How long no node took writes, and since when, must be known after an outage in which every daemon that saw its begin
// has ended. So each node keeps the last moment at which it knew somebody to take writes: in its status, for those
// who saw less, and in a file, for its next life. The file is not fsynced: a power loss makes the outage a little
// longer than it was, and nothing rests on it.

// openInterval is how old that moment may be in the file.
const openInterval = 5 * time.Second

// past is who took writes, as far as this node knows.
type past struct {
	open struct {
		id, term uint64 // who took writes last, and in which term; 0: none since this daemon started
		cause    string // of its loss, when that was seen to happen
	}
	loss   Loss // of open
	seen   OpenSeen
	saved  time.Time // of seen, in the file
	left   Leave     // when this node last stopped taking writes
	leftAt time.Duration
}

// Loss is what a node saw of the end of a leadership, by CLOCK_BOOTTIME; 0: it did not happen or is not known.
type Loss struct {
	Sign    time.Duration // last sign of life of the leader
	Noticed time.Duration // it is not the leader any more, for this node
	Asked   time.Duration // somebody handed leadership to this node
}

// Opened notes that this node takes writes in a term. If it had stopped in that term, it goes on: a switchover did not
// take place, or its mysqld was started again. The next end of it is reported again.
func (g *Gossip) Opened(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened(g.id.ID, term)
	if g.past.left.Term == term {
		g.past.left = Leave{}
	}
}

// opened notes that a node takes writes in a term. mu is held.
func (g *Gossip) opened(id, term uint64) {
	switch p := &g.past; {
	case term > p.open.term:
		p.open.id, p.open.term, p.open.cause = id, term, ""
		p.loss = Loss{}
	case term == p.open.term && g.leader == id:
		p.loss = Loss{} // it was lost from sight for a moment only
	}
}

// Follows notes whom this node follows, and the moment in which that is not who took writes any more.
func (g *Gossip) Follows(leader uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader = leader
	o, l := &g.past.open, &g.past.loss
	if o.id == 0 || l.Noticed != 0 || leader == o.id {
		return
	}
	l.Noticed, l.Sign = g.now(), g.RaftHeard()
	if p := g.Peers()[o.id]; p != nil {
		l.Sign = max(l.Sign, p.At)
	}
}

// Asked notes that somebody hands leadership to this node.
func (g *Gossip) Asked() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.past.loss.Asked == 0 {
		g.past.loss.Asked = g.now()
	}
}

// HearRaft notes a raft message of the leader.
func (g *Gossip) HearRaft() { g.raft.Store(int64(g.now())) }

// RaftHeard is when the last one came, by CLOCK_BOOTTIME; 0: none has.
func (g *Gossip) RaftHeard() time.Duration { return time.Duration(g.raft.Load()) }

// LossOf is what is known of the end of a leadership, and its cause if that was seen; zero: nothing.
func (g *Gossip) LossOf(id, term uint64) (l Loss, cause string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.past.open; o.id == id && o.term == term {
		l, cause = g.past.loss, o.cause
	}
	return l, cause
}

// Leave notes that this node's mysqld stops taking writes of a term.
func (g *Gossip) Leave(term uint64, l Leave) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.past.left.Term != term {
		l.Term = term
		g.past.left, g.past.leftAt = l, g.now()
	}
}

// LeaveOf is what the leader of a term has said of its end, and when that was; zero when it has said nothing.
func (g *Gossip) LeaveOf(id, term uint64) (l Leave, at time.Duration) {
	if id == g.id.ID {
		g.mu.Lock()
		l, at = g.past.left, g.past.leftAt
		g.mu.Unlock()
	} else if p := g.Peers()[id]; p != nil {
		l, at = p.Left, p.LeftAt
	}
	if l.Term != term {
		return Leave{}, 0
	}
	return l, at
}

// Past is what the status tells of who took writes.
func (g *Gossip) Past() (Leave, OpenSeen) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.past.left
	if l.Term != 0 {
		l.Ago = g.now() - g.past.leftAt
	}
	return l, g.past.seen
}

func (g *Gossip) openFile() string { return filepath.Join(g.cfg.Dir, "open.json") }

// loadOpen reads what the life before knew.
func (g *Gossip) loadOpen() {
	var s OpenSeen
	if b, err := os.ReadFile(g.openFile()); err == nil && json.Unmarshal(b, &s) == nil && !s.At.After(g.clock.Wall()) {
		g.past.seen = s
	}
}

// SeeOpen notes that somebody takes writes. own is the term in which this node does; 0: it does not.
func (g *Gossip) SeeOpen(own uint64) error {
	var told []OpenSeen
	for id := range g.Peers() {
		if p := g.Hears(id); p != nil && p.OpenTerm != 0 {
			told = append(told, OpenSeen{p.OpenTerm, g.clock.Wall().Add(p.At - g.now())})
		}
	}
	g.mu.Lock()
	s := g.past.seen
	if own != 0 {
		s = OpenSeen{own, g.clock.Wall()}
	}
	for _, t := range told {
		if t.Term >= s.Term {
			s = t
		}
	}
	due := s.Term != 0 && (s.At.Sub(g.past.saved) >= openInterval || s.At.Before(g.past.saved))
	g.past.seen = s
	if due {
		g.past.saved = s.At
	}
	g.mu.Unlock()
	if !due {
		return nil
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(g.openFile()+".tmp", b, 0o600)
	}
	if err == nil {
		err = os.Rename(g.openFile()+".tmp", g.openFile())
	}
	return err
}

// LastOpen is when the leader of a term was last known to take writes, by any node that this one hears, and who knows
// that; empty: no node does. It has to be asked before this node takes writes itself.
func (g *Gossip) LastOpen(term uint64) (at time.Duration, by string) {
	if _, seen := g.Past(); seen.Term == term {
		at, by = g.now()-g.clock.Wall().Sub(seen.At), g.id.Name
	}
	peers := g.Peers()
	for _, m := range g.host.Settings().Members {
		p := peers[m.ID]
		if !p.Fresh() || p.Seen.Term != term || p.Clock.IsZero() {
			continue
		}
		if seen := p.At - p.Clock.Sub(p.Seen.At); seen <= g.now() && (by == "" || seen > at) {
			at, by = seen, m.Name
		}
	}
	return at, by
}
