package seeding

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/lifecycle"
)

// A node that is seeded again and again for what it could not apply waits longer each time, and begins afresh after
// some hours.
func TestNextHeal(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	var heals []time.Time
	if got := nextHeal(heals, at); !got.Equal(at) {
		t.Errorf("the first: %v", got)
	}
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
		healLongest, healLongest} {
		heals = append(heals, at)
		if got := nextHeal(heals, at).Sub(at); got != want {
			t.Errorf("after %d: %v, want %v", i+1, got, want)
		}
	}
	if got := nextHeal([]time.Time{at.Add(time.Hour)}, at); !got.Equal(at) {
		t.Errorf("by a clock that was ahead: %v", got)
	}
	later := at.Add(healMemory + time.Second)
	if got := nextHeal(heals, later); !got.Equal(later) {
		t.Errorf("after hours: %v", got)
	}
}

// grants has db2 lead, and answer what a node asks that has to be seeded.
func (m *member) grants(err error, asked *HealRequest) {
	m.raft.Leader = 2
	m.answers[2] = func(kind uint8, body []byte) ([]byte, error) {
		if kind != ReqHeal.Number {
			return nil, errors.New("another request")
		}
		return nil, errors.Join(err, json.Unmarshal(body, asked))
	}
}

// TestHeal: a follower whose data differs is taken out of service at once, and that is known over a restart. Its data
// is given up once the leader agrees: not while no node could donate, and not again at once.
func TestHeal(t *testing.T) {
	m := newMember(t)
	l := m.follows(3)
	var asked HealRequest
	m.grants(errNoHolder, &asked)
	m.s.LostXA(l, lifecycle.LostXA{XID: "x"}, 60, gtid.Set{})
	if state, p := m.server(); state != ha.ServerBroken || !strings.Contains(p, "the data differs") ||
		m.notes.Diverged == nil || !m.s.ApplyError().Diverged {
		t.Fatalf("%s: %s, %+v", state, p, m.notes)
	}
	equal(t, "done", m.calls, []string{"pause feed"})

	if !m.s.HealDiverged(t.Context(), l) {
		t.Error("it does not differ")
	}
	if state, p := m.server(); state != ha.ServerBroken || !strings.Contains(p, errNoHolder.Error()) ||
		len(m.notes.Heals) != 0 || m.s.Heals() != 0 {
		t.Errorf("%s: %s: no node has what it needs, and it gives its data up", state, p)
	}
	if !asked.Diverged || !asked.Keeps || asked.Index != 60 {
		t.Errorf("asked for %+v", asked)
	}
	m.free = 100 << 30
	m.grants(nil, &asked)
	m.s.HealDiverged(t.Context(), l)
	if state, p := m.server(); state != ha.ServerBehind || strings.Contains(p, "not healed yet") || asked.Keeps ||
		len(m.notes.Heals) != 1 || m.s.Heals() != 1 {
		t.Errorf("%s: %s, %+v", state, p, m.notes)
	}
	equal(t, "history", m.happened(), []string{api.EventDivergent, api.EventApplyError})
	equal(t, "done", m.calls, []string{"pause feed"})

	m.s.clear()
	l = m.follows(4)
	if m.s.HealDiverged(t.Context(), l) {
		t.Error("nothing is known of the new data")
	}
	m.lives.Change((*lifecycle.Status).Judging)
	if !m.s.FenceKnown(l) {
		t.Error("a restart hides that the data differs")
	}
	m.s.HealDiverged(t.Context(), l)
	if state, p := m.server(); state != ha.ServerBroken || !strings.Contains(p, "seeded for such an error a while ago") {
		t.Errorf("%s: %s", state, p)
	}
	m.notes = Notes{}
	if m.s.FenceKnown(l) {
		t.Error("of data without a note")
	}
}

// TestHealIsNotAllowed: who must not throw its data away says why, keeps it, and has mysqld try again now and then.
func TestHealIsNotAllowed(t *testing.T) {
	var asked HealRequest
	for what, c := range map[string]struct {
		change func(*member)
		index  uint64
		why    string
	}{
		"the leader refuses": {func(m *member) { m.grants(errNoHolder, &asked) }, 60, errNoHolder.Error()},
		"no leader":          {func(m *member) { m.raft.Leader = 0 }, 60, "no leader"},
		"it leads raft":      {func(m *member) { m.raft.Leader = 1 }, 60, "it is raft's leader"},
		"an unknown entry":   {func(*member) {}, 0, "not known at which entry"},
		"a full disk":        {func(m *member) { m.full = errors.New("disk full") }, 60, "disk full"},
		"another life":       {func(m *member) { m.follows(9) }, 60, "not what it was"},
		"it was promoted": {func(m *member) { m.lives.Change(func(s *lifecycle.Status) { s.Promote(4) }) }, 60,
			"not what it was"},
	} {
		m := newMember(t)
		l := m.follows(3)
		m.grants(nil, &asked)
		c.change(m)
		f := failure{view: api.ApplyErrorView{Number: 1062, Index: c.index}}
		m.s.heal(t.Context(), l, &f)
		if state, _ := m.server(); state == ha.ServerBehind || !strings.Contains(f.text(), "not healed yet: ") ||
			!strings.Contains(f.text(), c.why) || m.s.Heals() != 0 {
			t.Errorf("%s: %s, %s", what, state, f.text())
		}
		m.s.heal(t.Context(), l, &f)
		equal(t, what, m.calls, []string{"restart feed"}) // once in a while
	}
}

// TestAppliedAfterAll: what is applied after all is no failure any more; that data differs stays one. Why replication
// does not run is told by the life of which that is so.
func TestAppliedAfterAll(t *testing.T) {
	m := newMember(t)
	l := m.follows(3)
	for _, diverged := range []bool{false, true} {
		fails := func() { m.s.failure.Store(&failure{view: api.ApplyErrorView{Index: 60, Diverged: diverged}}) }
		fails()
		m.s.Applied(59)
		if m.s.ApplyError() == nil {
			t.Error("it has not come so far")
		}
		m.s.Applied(60)
		if gone := m.s.ApplyError() == nil; gone == diverged {
			t.Errorf("diverged %t, gone %t", diverged, gone)
		}
		fails()
		m.applied = 60
		m.s.NoteApplier(l, "it waits")
		if m.s.ApplyError() == nil || m.s.Applier() != "it waits" {
			t.Error("it does not run yet")
		}
		m.s.NoteApplier(l, "")
		if gone := m.s.ApplyError() == nil; gone == diverged || m.s.Applier() != "" {
			t.Errorf("diverged %t, gone %t: %s", diverged, gone, m.s.Applier())
		}
	}
	if !m.s.NoteApplier(l, "new") || m.s.NoteApplier(l, "new") || m.s.NoteApplier(new(lifecycle.Life), "of another life") {
		t.Error("what is new")
	}
	if m.s.Started(); m.s.Applier() != "" || m.s.ApplyError() != nil {
		t.Error("a new life begins with the troubles of the last")
	}
}

// TestWorseStays: that the data differs, found while the leader was asked about an entry that could not be applied, is
// not forgotten for that.
func TestWorseStays(t *testing.T) {
	m := newMember(t)
	l := m.follows(3)
	stopped := &failure{view: api.ApplyErrorView{Number: 1062, Index: 60}}
	if m.s.keepFailure(l, stopped); m.s.ApplyError() != &stopped.view {
		t.Error("what it has stopped at is not shown")
	}
	m.s.LostXA(l, lifecycle.LostXA{XID: "x"}, 60, gtid.Set{})
	m.s.keepFailure(l, stopped)
	var asked HealRequest
	m.grants(nil, &asked)
	if !m.s.HealDiverged(t.Context(), l) {
		t.Errorf("it is out of service and not healed: %+v", m.s.ApplyError())
	}
	m.s.keepFailure(new(lifecycle.Life), stopped)
	if !m.s.ApplyError().Diverged {
		t.Error("of another life")
	}
}

// TestGrant: the leader lets one node at a time throw its data away, if some node has what that one cannot apply, and
// if the data that is left is enough until the copy is complete.
func TestGrant(t *testing.T) {
	want := HealRequest{Index: 60, Keeps: true}
	for what, c := range map[string]struct {
		change func(*member)
		r      HealRequest
		why    string
	}{
		"this node has applied it": {func(*member) {}, want, ""},
		"another one has": {func(m *member) {
			m.lives.Change((*lifecycle.Status).Off)
			m.peers[3].Member.Raft.Applied = 60
		}, want, ""},
		"none has":          {func(m *member) { m.applied = 59 }, want, errNoHolder.Error()},
		"none that is well": {func(m *member) { m.lives.Change((*lifecycle.Status).Off) }, want, errNoHolder.Error()},
		"it does not lead":  {func(m *member) { m.raft.Role = consensus.Follower }, want, "does not lead"},
		"no member":         {func(m *member) { m.settings.Members[1].ID = 9 }, want, "not a member"},
		"a pause": {func(m *member) { m.settings.Pause = &config.Pause{Until: time.Now().Add(time.Hour)} }, want,
			"are paused"},
		"another one is seeded": {func(m *member) { m.peers[3].Member.Seed = new(api.SeedView) }, want,
			"db3 is being seeded"},
		"it is itself":                 {func(m *member) { m.peers[2].Member.Seed = new(api.SeedView) }, want, ""},
		"another one has a permission": {func(m *member) { m.permitted(3, false) }, want, "db3 is about to be seeded"},
		"which has made no use of it":  {func(m *member) { m.permitted(3, true) }, want, ""},
		"the permission is an old one": {func(m *member) { m.permitted(3, false); m.s.grants.at -= grantLife }, want, ""},
		"no room, data enough":         {func(*member) {}, HealRequest{Index: 60}, ""},
		"no room, its data is needed": {func(m *member) { m.peers[3].Ready = false }, HealRequest{Index: 60},
			"no room to keep its data"},
		"the same, its data is no good": {func(m *member) { m.peers[3].Ready = false },
			HealRequest{Index: 60, Diverged: true}, ""},
		"no room, the other stopped at an entry, too": {func(m *member) {
			m.peers[3].Ready, m.peers[3].Member.ApplyError = false, &api.ApplyErrorView{Index: 60}
		}, HealRequest{Index: 60}, ""},
	} {
		m := newMember(t)
		m.raft.Role, m.applied = consensus.Leader, 60
		m.follows(3)
		c.change(m)
		err := m.s.GrantFor(t.Context(), 2, c.r)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", what, err, c.why)
		}
		if (err == nil) != (m.s.grants.to == 2) {
			t.Errorf("%s: %v, and the permission is db%d's", what, err, m.s.grants.to)
		}
	}
}

// permitted gave a member permission just now.
func (m *member) permitted(id uint64, ready bool) {
	m.s.grants.to, m.s.grants.at, m.peers[id].Ready = id, realTime.Now(), ready
}
