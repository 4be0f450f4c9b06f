package node

import (
	"context"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/node/leadership"
)

// leadershipHost is what leadership sees of this node.
type leadershipHost struct{ host }

func (h leadershipHost) Raft() leadership.Raft { return h.n.cons }

func (h leadershipHost) Member(name string) (config.Member, error) { return h.n.findMember(name) }

func (h leadershipHost) View() ha.View { return h.n.view() }

func (h leadershipHost) CheckTerm(want uint64) error { return h.n.members.CheckTerm(want) }

func (h leadershipHost) Phase() ha.Phase {
	s := h.n.lives.Status()
	return s.Phase()
}

func (h leadershipHost) LeastTimeout() time.Duration { return h.n.gossip.LeastTimeout() }

func (h leadershipHost) Go(f func(ctx context.Context)) { h.n.task(f) }
