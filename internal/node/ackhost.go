package node

import (
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/load"
)

// ackHost is what the commit path sees of this node.
type ackHost struct {
	*load.Load // times the way of a commit
	n          *Node
}

func (h ackHost) Raft() ackpath.Raft { return h.n.cons }

func (h ackHost) WhenRoom(f func()) { h.n.cons.WhenRoom(func() { h.n.engine.Do(f) }) }

func (h ackHost) Leading() (ackpath.Leading, bool) {
	s := h.n.lives.Status()
	l := s.Life()
	if l == nil || h.n.ctx.Err() != nil {
		return ackpath.Leading{}, false
	}
	src, _ := l.Stream()
	return ackpath.Leading{Incarnation: l.Incarnation, Term: s.Term(), Source: src}, true
}

func (h ackHost) Committed(e ackpath.Entry) error {
	n, m := h.n, e.Meta
	n.load.Committed(e.Index, m, e.Size, e.Body)
	if m.Flags&raftlog.FlagUnfinished != 0 {
		n.noteLarge(e.Index, m)
	}
	if m.Flags&raftlog.FlagSpecial != 0 {
		n.special.Store(true)
		n.lives.NoteSpecial(e.Index)
	}
	if m.Kind == raftlog.Settings {
		return n.members.Apply(e.Index, e.Body)
	}
	return nil
}

func (h ackHost) WhyUnmet(c ha.CommitRule, m consensus.Matches, commit uint64) string {
	return h.n.whyUnmet(c, m, commit)
}

func (h ackHost) RuleChanged(kind string, term, commit uint64, text string) {
	n := h.n
	n.log.Warn(text, "term", term, "index", commit)
	n.history.Add(n.history.Event(kind, commit, text))
	n.gossip.Publish()
}

func (h ackHost) WakeLoop() { h.n.wakeLoop() }

func (h ackHost) Fail(err error) { h.n.fail(err) }
