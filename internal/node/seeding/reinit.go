package seeding

import (
	"context"
	"errors"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
)

const reinitTimeout = 10 * time.Second

// Reinit implements api.Backend (leader only): the member's data is thrown away and copied from another node.
func (s *Seeding) Reinit(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	if err := s.cluster.CheckTerm(req.IfTerm); err != nil {
		return api.MemberResult{}, err
	}
	c := s.cluster.Settings()
	m, err := membership.Of(c, req.Name)
	if err != nil {
		return api.MemberResult{}, err
	}
	if err := s.mayReinit(m); err != nil {
		return api.MemberResult{}, err
	}
	rctx, cancel := s.time.WithTimeout(ctx, reinitTimeout)
	defer cancel()
	if _, err := ReqReinit.Ask(rctx, s.cluster, m.ID, transport.None{}); err != nil {
		return api.MemberResult{}, api.Errorf(api.KindNotReady, "%s did not begin: %v", m.Name, err).
			With("its data is as it was; see `trireme status`")
	}
	s.host.Record(api.Event{Kind: "reinit", By: api.WhoAsked(ctx),
		Message: m.Name + " throws its data away and is seeded again, on an operator's request"})
	return s.cluster.Result(c.Version, m.Name,
		m.Name+" throws its data away and is seeded from another node; `trireme status --watch` shows how far it is"), nil
}

// mayReinit says why a member's data must be kept.
func (s *Seeding) mayReinit(m config.Member) error {
	switch {
	case m.Role == config.RoleLogger:
		return api.Errorf(api.KindConflict, "%s is a logger: it has no data but its log", m.Name).
			With("a logger that lost its log is removed and joined again")
	case m.ID == s.id.ID:
		return api.Errorf(api.KindNeeded, "%s is the leader: its data is the newest there is", m.Name).
			With("move leadership first: trireme switchover")
	}
	c := s.cluster.Census()
	node, known := c.Nodes[m.ID]
	switch {
	case !known || !node.Live:
		return api.Errorf(api.KindNotReady, "%s does not answer, so it cannot be told", m.Name).
			With("start its daemon, or remove it and join it again under a new directory")
	case c.Without(m.ID).Donors == 0:
		return api.Errorf(api.KindNotReady, "no other data node is healthy: there is nothing to copy from").
			With("see `trireme status`")
	case node.Ready && node.Voter && !c.KeptWithout(m.ID):
		return api.Errorf(api.KindNeeded, "%s's data is needed: without it %s", m.Name, c.WhyNotKept(m.ID)).
			With("add a data node first, or bring back those that are down")
	}
	return nil
}

// ReinitHere gives this node's data up (S5: an operator's decision). Decide then seeds it.
func (s *Seeding) ReinitHere(ctx context.Context, _ uint64, _ transport.None) error {
	for {
		done, err := s.tryReinit()
		if done || err != nil {
			return err
		}
		if s.time.Sleep(ctx, 50*time.Millisecond) != nil {
			return errors.New("its mysqld is just starting; try again in a moment")
		}
	}
}

// tryReinit: done is false while mysqld is in the hands of a task.
func (s *Seeding) tryReinit() (done bool, err error) {
	leads := s.host.Raft().Status().Role == consensus.Leader
	s.server.Change(func(st *lifecycle.Status, _ uint64) bool {
		switch st.State() {
		case ha.ServerAbsent:
			err = errors.New("it has no mysqld")
			return false
		case ha.ServerSeeding, ha.ServerBehind:
			err = errors.New("it is being seeded already")
			return false
		case ha.ServerStarting, ha.ServerJudging:
			return false
		}
		if leads || st.Phase() != ha.PhaseNone {
			err = errors.New("it is the leader")
			return false
		}
		st.Behind("its data was given up by `trireme reinit`")
		done = true
		return true
	})
	if done {
		s.host.WakeLoop()
	}
	return done, err
}
