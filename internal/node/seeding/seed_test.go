package seeding

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
)

// TestSeedingTellsWhy: while there is nothing to copy from, a node still says why its data has to be replaced, and
// keeps it.
func TestSeedingTellsWhy(t *testing.T) {
	m := newMember(t)
	m.peers[2].Ready, m.peers[3].Up = false, false
	m.setBehind("the data is too old")
	for range 2 {
		m.s.Seed(t.Context())
		state, p := m.server()
		if strings.Count(p, "no healthy data node") != 1 || strings.Count(p, "the data is too old") != 1 ||
			state != ha.ServerBehind {
			t.Errorf("%s: %q", state, p)
		}
	}
	if s := m.lives.Status(); len(m.calls) > 0 || s.Fails() != 2 || s.Server.View().RetryAt < realTime.Now() {
		t.Errorf("%d attempts, the next one at once, or mysqld was touched: %q", s.Fails(), m.calls)
	}
}

// TestDonorIsAsked: the members are asked one after the other until one has what is needed; if none has, the reasons of
// all are told.
func TestDonorIsAsked(t *testing.T) {
	m := newMember(t)
	m.first, m.settings.CloneAt = 50, 60
	m.s.failure.Store(&failure{view: api.ApplyErrorView{Index: 70}})
	m.peers[2].OpenTerm = 4 // it leads: the last to be asked
	for _, c := range []struct {
		first  any // of db3
		asked  int
		donor  uint64
		reason string
	}{
		{Donation{Applied: 70}, 1, 3, ""},
		{Donation{Applied: 69}, 2, 2, "db3: it has applied up to entry 69, and this node could not apply entry 70"},
		{nil, 2, 2, "db3: it does not answer"},
		{map[string]any{"applied": 90, "later": true}, 2, 2, "db3: an order that this version does not understand"},
		{Donation{Applied: 90, Prepared: []string{"x"}}, 2, 2, "does not hold all of it yet: no quorum"},
	} {
		m.answers, m.asked = map[uint64]func(uint8, []byte) ([]byte, error){}, nil
		if c.first != nil {
			m.gives(3, c.first)
		}
		m.gives(2, Donation{Applied: 80, Host: "db2", Port: 3306})
		id, d, err := m.s.findDonor(t.Context())
		if err != nil || id != c.donor || len(m.asked) != c.asked || m.asked[0] != 3 || d.Applied < 70 {
			t.Errorf("%+v: db%d, %+v, %v, asked %d", c.first, id, d, err, m.asked)
		}
		m.gives(2, Donation{Applied: 69})
		if _, _, err = m.s.findDonor(t.Context()); c.reason != "" && (err == nil ||
			!strings.Contains(err.Error(), c.reason) || !strings.Contains(err.Error(), "db2: it has applied up to entry 69")) {
			t.Errorf("%+v: %v", c.first, err)
		}
	}
	m.s.failure.Store(nil)
	for applied, why := range map[uint64]string{59: "trireme_clone has its present password since entry 60",
		48: "the log here begins at 50"} {
		m.settings.CloneAt = applied/50*50 + 10 // 60, 10
		m.gives(2, Donation{Applied: applied})
		m.gives(3, Donation{Applied: applied})
		if _, _, err := m.s.findDonor(t.Context()); err == nil || strings.Count(err.Error(), why) != 2 {
			t.Errorf("donors that have applied up to %d: %v", applied, err)
		}
	}
}

// TestDonors: a node copies from a member of its own zone, even if that leads; from a follower; from one that feeds no
// other copy; and after an XA transaction was ended here from the leader. A server of another series is no donor.
func TestDonors(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*member)
		want   []uint64
	}{
		"all the same":     {func(*member) {}, []uint64{2, 3}},
		"a leader":         {func(m *member) { m.peers[2].OpenTerm = 1 }, []uint64{3, 2}},
		"one of this zone": {func(m *member) { m.zone("east", "west", "east") }, []uint64{3, 2}},
		"a leader of this zone": {func(m *member) {
			m.zone("east", "west", "east")
			m.peers[3].OpenTerm = 1
		}, []uint64{3, 2}},
		"another series": {func(m *member) { m.peers[2].Member.MySQL.Version = "8.4.9" }, []uint64{3}},
		"not ready":      {func(m *member) { m.peers[2].Ready = false }, []uint64{3}},
		"not heard of":   {func(m *member) { m.peers[2].Up = false; m.peers[3].At = realTime.Now() - time.Minute }, nil},
		"a logger":       {func(m *member) { m.settings.Members[1].Role = config.RoleLogger }, []uint64{3}},
		"leaving":        {func(m *member) { m.settings.Members[1].Removing = true }, []uint64{3}},
		"feeds another": {func(m *member) { m.peers[3].Member.Seed = &api.SeedView{From: "db2"} },
			[]uint64{3, 2}},
		"the data differs": {func(m *member) {
			m.peers[3].OpenTerm = 1
			m.s.failure.Store(&failure{view: api.ApplyErrorView{Diverged: true}})
		}, []uint64{3, 2}},
	} {
		m := newMember(t)
		c.change(m)
		got := m.s.donors()
		if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}

func (m *member) zone(zones ...string) {
	for i, z := range zones {
		m.settings.Members[i].Zone = z
	}
}

// TestCopyIsBegunAgain: a copy that ends half way leaves a node that has to be seeded and of whose data nothing counts
// any more; the next attempt takes what the donor says of its data.
func TestCopyIsBegunAgain(t *testing.T) {
	m := newMember(t)
	m.follows(3)
	m.state.Durable, m.notes = 40, Notes{Diverged: &api.ApplyErrorView{}, Voids: []string{"old"}}
	m.s.failure.Store(&failure{view: api.ApplyErrorView{Index: 60}, keeps: true})
	m.gives(2, Donation{Incarnation: 5, Applied: 70, Host: "h2", Port: 3306, Own: "x:1-2", Voids: []string{"new"}})
	m.setBehind("it cannot go on")
	m.copy = func(_ context.Context, from mysqld.Seeding) error {
		if !from.KeepOld || from.CAFile != "protected" {
			t.Errorf("%+v", from)
		}
		from.Progress(mysqld.SeedProgress{Stage: "FILE COPY", Done: 10, Total: 100})
		if v := m.s.View(); v == nil || v.From != "db2" || v.Stage != "file copy" || v.DoneBytes != 10 {
			t.Errorf("shown: %+v", v)
		}
		return errors.New("the link broke")
	}
	m.s.Seed(t.Context())
	equal(t, "done", m.calls, []string{"give up", "copy from h2:3306"})
	if state, p := m.server(); state != ha.ServerBehind || !strings.Contains(p, "the link broke") ||
		!strings.Contains(p, "it cannot go on") {
		t.Errorf("%s: %s", state, p)
	}
	if m.state.Durable != 0 || m.notes.Diverged == nil || m.s.View() != nil || m.s.ApplyError() == nil {
		t.Errorf("%+v, %+v: of data that is gone nothing is durable, and why it goes stays known", m.state, m.notes)
	}
	m.copy = nil
	m.s.Seed(t.Context())
	if state, p := m.server(); state != ha.ServerOff || p != "" || m.s.ApplyError() != nil || m.s.View() != nil {
		t.Errorf("%s: %s", state, p)
	}
	if m.state.Durable != 70 || m.state.Inherited != "x:1-2" || m.notes.Diverged != nil || len(m.notes.Voids) != 1 ||
		m.notes.Voids[0] != "new" {
		t.Errorf("%+v, %+v", m.state, m.notes)
	}
	equal(t, "history", m.happened(), []string{"seed", "seed", "seeded"})
}

// TestCopyDoesNotCount: a complete copy is thrown away if the donor's mysqld was another one at its end, or the log
// here does not follow it any more.
func TestCopyDoesNotCount(t *testing.T) {
	begun := Donation{Incarnation: 5, Applied: 70}
	for what, c := range map[string]struct {
		during func(*member)
		why    string // empty: it counts
	}{
		"as it began": {func(*member) {}, ""},
		"the donor restarted": {func(m *member) { m.gives(2, Donation{Incarnation: 6, Applied: 80}) },
			"restarted meanwhile"},
		"the donor is gone":    {func(m *member) { delete(m.answers, 2) }, "asking the donor about its data"},
		"the log begins later": {func(m *member) { m.first = 72 }, "the log here was started again at 72"},
		"just so late":         {func(m *member) { m.first = 71 }, ""},
		"later, something prepared": {func(m *member) {
			m.first = 71
			m.gives(2, Donation{Incarnation: 5, Applied: 80, Prepared: []string{"x"}})
		}, "prepared XA transactions"},
	} {
		m := newMember(t)
		m.gives(2, begun)
		m.copy = func(ctx context.Context, from mysqld.Seeding) error {
			c.during(m)
			return complete(ctx, from)
		}
		m.setBehind("why")
		m.s.Seed(t.Context())
		state, p := m.server()
		if counts := state == ha.ServerOff; counts != (c.why == "") || !counts && !strings.Contains(p, c.why) ||
			counts != (m.state.Durable == 70) {
			t.Errorf("%s: %s, %s, durable %d", what, state, p, m.state.Durable)
		}
	}
	// Between the look and the moment at which it counts.
	m := newMember(t)
	m.gives(2, begun)
	m.copy = func(ctx context.Context, from mysqld.Seeding) error {
		if err := from.Check(ctx); err != nil {
			return err
		}
		m.first = 60
		return from.Confirm(ctx)
	}
	m.setBehind("why")
	m.s.Seed(t.Context())
	if _, p := m.server(); !strings.Contains(p, "begins at 60 now") || m.state.Durable != 0 {
		t.Errorf("%s", p)
	}
}

// TestDonorLost: a copy ends when its donor is gone, has another mysqld, or gives nothing any more.
func TestDonorLost(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*member)
		why    string
	}{
		"it is well":  {func(*member) {}, ""},
		"silent":      {func(m *member) { m.peers[2].At -= donorSilence + time.Second }, "not been heard of"},
		"gone":        {func(m *member) { m.peers[2].Gone = true }, "daemon has ended"},
		"unknown":     {func(m *member) { delete(m.peers, 2) }, "daemon has ended"},
		"its mysqld":  {func(m *member) { m.peers[2].Epoch = "6" }, "mysqld has ended"},
		"it is stuck": {func(m *member) { m.s.copying.moved -= seedStall + time.Second }, "nothing was copied"},
	} {
		m := newMember(t)
		m.s.setCopying(copying{donor: "db2", moved: realTime.Now()})
		c.change(m)
		err := m.s.donorLost(2, 5)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := newMember(t)
	m.gives(2, Donation{Incarnation: 5, Applied: 70})
	m.peers[2].Gone = true
	m.copy = func(ctx context.Context, _ mysqld.Seeding) error {
		<-ctx.Done()
		return ctx.Err()
	}
	m.setBehind("why")
	m.s.Seed(t.Context())
	if _, p := m.server(); !strings.Contains(p, "from db2: the donor's daemon has ended") {
		t.Error(p)
	}
}
