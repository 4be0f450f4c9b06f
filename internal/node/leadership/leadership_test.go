package leadership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
)

var clock = run.Real{Boottime: consensus.Boottime}

// member is a member of a test: db1 of db1, db2 and db3, in term 5 of the leader db2 unless the test says otherwise.
type member struct {
	l        *Leadership
	settings *config.Cluster
	status   consensus.Status
	view     ha.View
	phase    ha.Phase
	least    time.Duration
	lease    bool
	stopping bool
	clients  *clients
	refuse   error // what a peer, and a transfer of leadership, say
	done     []string
	sent     map[uint64]string // first
	history  []string
}

func newMember() *member {
	m := &member{settings: &config.Cluster{}, sent: map[uint64]string{}, least: time.Second,
		view: ha.View{Self: 1, Name: "db1"}}
	for id := uint64(1); id <= 3; id++ {
		m.settings.Members = append(m.settings.Members, config.Member{ID: id, Name: fmt.Sprint("db", id)})
	}
	m.status.Term, m.status.Leader = 5, 2
	m.l = New(config.Identity{ID: 1, Name: "db1"}, time.Millisecond, clock, m, slog.New(slog.DiscardHandler))
	return m
}

func (m *member) Raft() Raft                   { return m }
func (m *member) Status() consensus.Status     { return m.status }
func (m *member) HoldsLease() bool             { return m.lease }
func (m *member) Settings() *config.Cluster    { return m.settings }
func (m *member) View() ha.View                { return m.view }
func (m *member) Phase() ha.Phase              { return m.phase }
func (m *member) Stopping() bool               { return m.stopping }
func (m *member) Clients() Clients             { return m.clients }
func (m *member) LeastTimeout() time.Duration  { return m.least }
func (m *member) WakeLoop()                    { m.done = append(m.done, "wake") }
func (m *member) Campaign()                    { m.done = append(m.done, "campaign") }
func (m *member) Go(f func(context.Context))   { f(context.Background()) }
func (m *member) Record(kind, by, text string) { m.history = append(m.history, kind+" "+by) }
func (m *member) CheckTerm(want uint64) (err error) {
	if want != 0 && want != m.status.Term {
		err = api.Errorf(api.KindChanged, "another term")
	}
	return err
}

func (m *member) Member(name string) (config.Member, error) {
	if m, ok := m.settings.Member(name); ok {
		return m, nil
	}
	return config.Member{}, api.Errorf(api.KindNotFound, "no member")
}

func (m *member) Depose(leader, term uint64, campaign bool) {
	m.done = append(m.done, fmt.Sprintf("depose %d of %d, campaign %t", leader, term, campaign))
}

func (m *member) TransferLeadership(_ context.Context, to uint64) error {
	m.done = append(m.done, fmt.Sprint("transfer to ", to))
	return m.refuse
}

func (m *member) Request(_ context.Context, to uint64, kind uint8, body []byte) ([]byte, error) {
	if m.sent[to] == "" {
		m.sent[to] = string(body)
	}
	return nil, m.refuse
}

// wants fails unless it did just that.
func (m *member) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	if !slices.Equal(m.done, want) {
		t.Errorf("%s: did %q, want %q", what, m.done, want)
	}
	m.done = nil
}

// What is added to a lease that has run out ends before another node can lead, whatever the election timeout (S10).
func TestLeaseGrace(t *testing.T) {
	for _, timeout := range []time.Duration{15, 300, 500, 1000, 10_000} {
		m := newMember()
		m.least = timeout * time.Millisecond
		lease := clock.Now() - time.Millisecond
		proof := lease - m.least*8/10
		fence := m.l.Lease(lease)
		if fence <= lease || fence+m.l.Grace() > proof+m.least {
			t.Errorf("election timeout %v: fenced after %v, by the guard after %v", m.least, fence-proof,
				fence+m.l.Grace()-proof)
		}
	}
}

// TestLease: a lease that runs is what raft says; of one that is gone, when the loop first saw that counts, until it
// runs again.
func TestLease(t *testing.T) {
	m := newMember()
	if ahead := clock.Now() + time.Hour; m.l.Lease(ahead) != ahead {
		t.Error("a lease that runs is another one")
	}
	m.l.NoteLease(7)
	m.l.NoteLease(0)
	m.l.NoteLease(9)
	if got := m.l.Lease(0); got != 7+m.l.Grace() {
		t.Errorf("it ends at %v", got)
	}
	m.l.NoteLease(clock.Now() + time.Hour)
	if got := m.l.Lease(9); got != 9+m.l.Grace() {
		t.Errorf("after it ran again it ends at %v", got)
	}
	if m.l.AwaitLease(t.Context(), 5*time.Millisecond) == nil {
		t.Error("leadership is proven without a lease")
	}
	m.lease = true
	if err := m.l.AwaitLease(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
}

// TestTried: the policy sees what was tried in a term, and who was told to lead.
func TestTried(t *testing.T) {
	m := newMember()
	show := func(term uint64) ha.View {
		v := ha.View{Raft: ha.Raft{Term: term}}
		m.l.Show(&v)
		return v
	}
	if v := show(1); v.Raft.Asked || v.HandoverTriedTerm != 0 || v.Request != nil {
		t.Errorf("%+v", v)
	}
	m.l.Told(5)
	if show(5).Raft.Asked || !show(6).Raft.Asked || show(7).Raft.Asked {
		t.Error("it was told to lead in another term")
	}
	m.l.Begin(ha.Action{Term: 6, To: 3})
	m.l.tried.fails++
	if v := show(6); v.HandoverTriedTerm != 6 || v.HandoverTo != 3 || v.HandoverAt == 0 || v.HandoverFails != 1 {
		t.Errorf("%+v", v)
	}
	if m.l.Begin(ha.Action{Term: 6, To: 2}); show(6).HandoverFails != 1 {
		t.Error("a failure in this term is forgotten")
	}
	if m.l.Begin(ha.Action{Term: 8, To: 2}); show(8).HandoverFails != 0 {
		t.Error("a failure of another term counts")
	}
	m.l.Begin(ha.Action{Term: 8, To: 2}).HandOver(t.Context())
	m.wants(t, "handing over", "transfer to 2")
}

// answered says whether the operator has got an answer.
func (r *Request) answered() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// A request is carried out in the term in which it was made, by a switchover to the node that it names, or not at all
// (S7). Its answer says so, and does not call undone what goes on.
func TestRequest(t *testing.T) {
	var m *member
	begin := func() (*Leadership, *Request) {
		m = newMember()
		return m.l, m.l.Ask(2, 5, "ann", 7*time.Second)
	}
	seen := func(l *Leadership) bool {
		v := ha.View{Raft: ha.Raft{Term: 5}}
		l.Show(&v)
		return v.Request != nil && v.Request.To == 2
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	l, r := begin()
	if l.Ask(3, 5, "bob", 0) != nil || !l.Asked() {
		t.Error("two at a time")
	}
	if l.InTerm(5); !l.Asked() {
		t.Error("dropped in its own term")
	}
	if l.InTerm(6); l.Asked() || !r.answered() || r.moved.Err == nil {
		t.Error("not dropped when the term moved on")
	}

	l, r = begin()
	for _, a := range []ha.Action{{Kind: ha.Switchover, Term: 5, To: 3}, {Kind: ha.Switchover, Term: 6, To: 2},
		{Kind: ha.HandOver, Term: 5, To: 2}} {
		if at := l.Begin(a); at.request != nil || at.wait != api.DefaultTrxWait || r.begun {
			t.Errorf("%v is taken for the request", a)
		}
		m.stopping = true
		if at := l.Begin(a); at.wait != 0 {
			t.Errorf("a daemon that stops waits %v", at.wait)
		}
		m.stopping = false
	}
	if m, err := l.Await(gone, r, time.Hour); err != nil || m.Err == nil || !m.Continues || l.Asked() {
		t.Errorf("not taken back: %+v, %v", m, err)
	}

	l, r = begin()
	m.stopping = true
	moves := ha.Action{Kind: ha.Switchover, Term: 5, To: 2}
	if !seen(l) {
		t.Error("the policy does not see the request")
	}
	if at := l.Begin(moves); at.request != r || at.wait != 7*time.Second {
		t.Error("the request was not taken")
	}
	if seen(l) || l.Begin(moves).request != nil {
		t.Error("the request is taken twice")
	}
	l.InTerm(6) // the switchover itself does that
	if _, err := l.Await(gone, r, time.Hour); api.KindOf(err) != api.KindTimeout || !l.Asked() {
		t.Errorf("a switchover that goes on: %v", err)
	}
	l.end(r, Moved{Cut: 3})
	if m, err := l.Await(gone, r, time.Hour); err != nil || m.Cut != 3 || l.Asked() {
		t.Errorf("the outcome: %+v, %v", m, err)
	}
}

// TestOrders: an order of a forced failover is carried out in its term, as the role of the member demands; another one
// of the same term, by somebody else, is refused (S7).
func TestOrders(t *testing.T) {
	leads := func(m *member) { m.status.Role, m.status.Leader = consensus.Leader, 1 }
	open := func(m *member) { leads(m); m.phase = ha.PhaseOpen }
	none := func(m *member) { m.status.Leader = 0 }
	as := func(*member) {}
	for what, c := range map[string]struct {
		change func(*member)
		o      Order
		did    string // empty: nothing
		err    bool
	}{
		"another term":             {as, Order{Term: 4, Leader: 2, To: 1, By: 3}, "", true},
		"the target":               {as, Order{Term: 5, Leader: 2, To: 1, By: 3}, "depose 2 of 5, campaign true", false},
		"another follower":         {as, Order{Term: 5, Leader: 2, To: 3, By: 3}, "depose 2 of 5, campaign false", false},
		"a follower, politely":     {as, Order{Term: 5, Leader: 2, To: 1, By: 3, Hand: true}, "", false},
		"no leader":                {none, Order{Term: 5, To: 1, By: 3}, "campaign", false},
		"the leader is the target": {leads, Order{Term: 5, Leader: 1, To: 1, By: 3}, "wake", false},
		"the leader hands over":    {leads, Order{Term: 5, Leader: 1, To: 3, By: 3, Hand: true}, "transfer to 3", false},
		"a leader that is not to":  {leads, Order{Term: 5, Leader: 1, To: 3, By: 3}, "", true},
		"a leader with clients":    {open, Order{Term: 5, Leader: 1, To: 3, By: 3, Hand: true}, "", true},
	} {
		m := newMember()
		c.change(m)
		if err := m.l.TakeOrder(t.Context(), c.o.By, c.o); (err != nil) != c.err {
			t.Errorf("%s: %v", what, err)
		}
		if did := strings.Join(m.done, ", "); did != c.did {
			t.Errorf("%s: did %q, want %q", what, did, c.did)
		}
	}

	m := newMember()
	first := Order{Term: 5, Leader: 2, To: 1, By: 3}
	other := Order{Term: 5, Leader: 2, To: 3, By: 2}
	if err := errors.Join(m.l.TakeOrder(t.Context(), 3, first), m.l.TakeOrder(t.Context(), 3, first)); err != nil {
		t.Error(err)
	}
	if m.l.TakeOrder(t.Context(), 2, other) == nil {
		t.Error("two failovers at a time")
	}
	if m.l.orderedAt -= forcePatience; m.l.TakeOrder(t.Context(), 2, other) != nil {
		t.Error("one that is over holds up the next")
	}
}

// TestForced: an election that an order brings is what the operator asked for, for a while; another one is not.
func TestForced(t *testing.T) {
	asked := func(l *Leadership, term uint64) bool {
		v := ha.View{Raft: ha.Raft{Term: term}}
		l.Show(&v)
		return v.Raft.Asked
	}
	m := newMember()
	if m.l.Elected(6); m.l.Forced(6) || asked(m.l, 6) {
		t.Error("no operator asked for it")
	}
	o := Order{Term: 5, Leader: 2, To: 1, By: 3}
	if err := m.l.TakeOrder(t.Context(), 3, o); err != nil {
		t.Fatal(err)
	}
	if m.l.Elected(5); m.l.Forced(5) || asked(m.l, 5) {
		t.Error("it was elected before that")
	}
	if m.l.Elected(7); !m.l.Forced(7) || !asked(m.l, 7) || m.l.Forced(8) {
		t.Error("it is not what the operator asked for")
	}
	if m.l.Elected(8); m.l.Forced(8) {
		t.Error("one order brings two elections")
	}
	m = newMember()
	if err := m.l.TakeOrder(t.Context(), 3, o); err != nil {
		t.Fatal(err)
	}
	m.l.forced.until = clock.Now()
	if m.l.Elected(6); m.l.Forced(6) {
		t.Error("after a long time")
	}
}

// TestFailover: a majority is made deaf to the leader, the target first; nothing is done in view of another term, twice
// at a time, or at a dry run.
func TestFailover(t *testing.T) {
	begin := func() *member {
		m := newMember()
		m.view.Raft = ha.Raft{Term: 5, Leader: 2, Voters: 3}
		m.view.Voter = true
		m.view.Peers = []ha.Peer{{ID: 2, Name: "db2", Voter: true, Data: true}, {ID: 3, Name: "db3", Voter: true, Data: true,
			Live: true, Ready: true, Heard: true, Weight: 1}}
		return m
	}
	m := begin()
	if _, err := m.l.Failover(t.Context(), api.FailoverRequest{To: "db3", IfTerm: 4}); api.KindOf(err) != api.KindChanged {
		t.Error(err)
	}
	if _, err := m.l.Failover(t.Context(), api.FailoverRequest{To: "db9"}); api.KindOf(err) != api.KindNotFound {
		t.Error(err)
	}
	res, err := m.l.Failover(t.Context(), api.FailoverRequest{To: "db3", DryRun: true})
	if err != nil || res.To != "db3" || len(m.sent)+len(m.done)+len(m.history) != 0 {
		t.Errorf("%+v, %v, sent %v, did %v", res, err, m.sent, m.done)
	}
	m.refuse = errors.New("no")
	if _, err = m.l.Failover(t.Context(), api.FailoverRequest{To: "db3"}); api.KindOf(err) != api.KindCannotLead {
		t.Error(err)
	}
	m.wants(t, "the target refuses")

	m = begin()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // it is never elected
	defer cancel()
	if _, err = m.l.Failover(ctx, api.FailoverRequest{To: "db3"}); api.KindOf(err) != api.KindTimeout {
		t.Error(err)
	}
	if m.sent[3] != `{"term":5,"leader":2,"to":3,"by":1,"hand":true}` || m.sent[2] != "" || len(m.history) != 1 {
		t.Errorf("sent %v, history %q", m.sent, m.history)
	}
	m.l.forcing.Lock()
	if _, err = m.l.Failover(t.Context(), api.FailoverRequest{}); api.KindOf(err) != api.KindBusy {
		t.Error(err)
	}
}
