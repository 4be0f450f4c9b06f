package seeding

import (
	"context"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/node/lifecycle"
)

// TestReinit: an operator's reinit is refused where the data is needed, or nothing could be copied.
func TestReinit(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*member)
		name   string
		kind   api.Kind // empty: it is told
	}{
		"a follower":        {func(*member) {}, "db2", ""},
		"the leader itself": {func(*member) {}, "db1", api.KindNeeded},
		"no member":         {func(*member) {}, "db9", api.KindNotFound},
		"a logger":          {func(m *member) { m.settings.Members[1].Role = config.RoleLogger }, "db2", api.KindConflict},
		"it is down":        {func(m *member) { m.peers[2].Up = false }, "db2", api.KindNotReady},
		"its data is needed": {func(m *member) { m.peers[3].Ready = false },
			"db2", api.KindNeeded},
		"nothing to copy from": {func(m *member) { m.peers[2].Ready, m.peers[3].Ready, m.ill = false, false, true }, "db2",
			api.KindNotReady},
		"its data is no good": {func(m *member) { m.peers[2].Ready, m.peers[3].Ready = false, false }, "db2", ""},
		"it says no":          {func(m *member) { delete(m.answers, 2) }, "db2", api.KindNotReady},
		"another term":        {func(m *member) { m.raft.Term = 8 }, "db2", api.KindChanged},
	} {
		m := newMember(t)
		m.raft.Term = 7
		told := false
		m.answers[2] = func(kind uint8, _ []byte) ([]byte, error) {
			told = kind == ReqReinit.Number
			return nil, nil
		}
		c.change(m)
		res, err := m.s.Reinit(t.Context(), api.MemberRequest{Name: c.name, IfTerm: 7})
		if kind := api.KindOf(err); err != nil && kind != c.kind || (err == nil) != (c.kind == "") || told != (err == nil) {
			t.Errorf("%s: %+v, %v, told %t", what, res, err, told)
		}
		if (len(m.events) == 1) != (err == nil) {
			t.Errorf("%s: history %q", what, m.happened())
		}
	}
}

// TestReinitHere: the data of a follower is given up at once, of one that is just started when that is over, and that
// of a leader never.
func TestReinitHere(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*lifecycle.Status)
		leads  bool
		why    string
	}{
		"it follows":            {(*lifecycle.Status).Ready, false, ""},
		"raft's leader":         {(*lifecycle.Status).Ready, true, "it is the leader"},
		"it is promoted":        {func(s *lifecycle.Status) { s.Ready(); s.Promote(3) }, false, "it is the leader"},
		"its data differs":      {func(s *lifecycle.Status) { s.Broken("why") }, false, ""},
		"it is seeded already":  {(*lifecycle.Status).Seeding, false, "seeded already"},
		"it is about to be":     {func(s *lifecycle.Status) { s.Behind("why") }, false, "seeded already"},
		"it has just started":   {(*lifecycle.Status).Starting, false, "just starting"},
		"it is being judged":    {(*lifecycle.Status).Judging, false, "just starting"},
		"it does not start":     {(*lifecycle.Status).Off, false, ""},
		"a logger has no data":  {func(s *lifecycle.Status) { *s = lifecycle.Status{} }, false, "no mysqld"},
		"it is just ending now": {(*lifecycle.Status).Dying, false, ""},
	} {
		m := newMember(t)
		m.follows(3)
		m.lives.Change(c.change)
		if c.leads {
			m.raft.Role = consensus.Leader
		}
		before, _ := m.server()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := m.s.ReinitHere(ctx, 1, transport.None{})
		cancel()
		state, p := m.server()
		switch {
		case c.why == "" && (err != nil || state != ha.ServerBehind || !strings.Contains(p, "trireme reinit")):
			t.Errorf("%s: %v, %s, %s", what, err, state, p)
		case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why) || state != before):
			t.Errorf("%s: %v, and it is %s", what, err, state)
		}
	}
	m := newMember(t)
	m.follows(3)
	m.lives.Change((*lifecycle.Status).Judging)
	done := make(chan error)
	go func() { done <- m.s.ReinitHere(t.Context(), 1, transport.None{}) }()
	select {
	case err := <-done:
		t.Error("it does not wait for the judgement", err)
	case <-time.After(60 * time.Millisecond):
	}
	m.lives.Change((*lifecycle.Status).Ready)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
