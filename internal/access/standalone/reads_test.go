package standalone

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
)

// reads is what a node of a test says about what is applied.
type reads struct {
	mu       sync.Mutex
	barrier  uint64
	down     error  // of barriers and, unless it is nil, of what is applied here
	applied  uint64 // by its own server
	all      uint64 // by all
	barriers int
	asked    []api.AppliedQuery
	hold     chan struct{} // barriers wait until it is closed; nil: they do not
}

func (n *node) ReadIndex(ctx context.Context, q api.ReadIndexQuery) (api.ReadIndexView, error) {
	r := &n.reads
	if q.Live {
		r.mu.Lock()
		defer r.mu.Unlock()
		return api.ReadIndexView{Index: r.barrier, Live: []string{"n1", n.name}}, r.down
	}
	r.mu.Lock()
	r.barriers++
	index, err, hold := r.barrier, r.down, r.hold
	r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return api.ReadIndexView{Index: index}, err
}

func (n *node) Applied(ctx context.Context, q api.AppliedQuery) (api.AppliedView, error) {
	r := &n.reads
	r.mu.Lock()
	r.asked = append(r.asked, q)
	r.mu.Unlock()
	for {
		r.mu.Lock()
		at, err := r.applied, r.down
		if q.Everywhere {
			at = min(r.all, q.Index)
			if r.all < q.Index {
				at = 0
			}
		}
		r.mu.Unlock()
		switch {
		case err != nil:
			return api.AppliedView{}, err
		case at >= q.Index:
			return api.AppliedView{Index: at}, nil
		case ctx.Err() != nil:
			return api.AppliedView{}, api.Errorf(api.KindTimeout, "n7: entry %d is not applied yet", q.Index)
		}
		time.Sleep(time.Millisecond)
	}
}

func (n *node) set(f func(*reads)) {
	n.reads.mu.Lock()
	defer n.reads.mu.Unlock()
	f(&n.reads)
}

// until polls.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// reading is a follower of two nodes, of which the view of the first counts.
func reading(t *testing.T) (f *follower, n1, n2 *node) {
	t.Helper()
	ca, trust := authority(t)
	n1, n2 = newNode(t, ca, "n1", 1), newNode(t, ca, "n2", 2)
	f = newFollower(t.Context(), trust, slog.New(slog.DiscardHandler))
	t.Cleanup(f.questions.Wait)
	t.Cleanup(f.points.Wait)
	view := func(node string, rw *api.RouteTarget) api.RouteView {
		return api.RouteView{Cluster: "c", Generation: 1, Term: 4, Node: node, RW: rw}
	}
	follow(t, f, n2.server.Addr(), view("n2", nil))
	follow(t, f, n1.server.Addr(), view("n1", n1.target("1/4")))
	f.answerWait = 20 * time.Second
	return f, n1, n2
}

// limited is a time in which nothing of a test takes place twice.
func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A barrier is asked of whose view counts, and of another node if that has none; sessions that come at once share a
// question, but none that was put before.
func TestBarrier(t *testing.T) {
	f, n1, n2 := reading(t)
	hold := make(chan struct{})
	n1.set(func(r *reads) { r.barrier, r.hold = 5, hold })
	first := make(chan uint64, 1)
	ask := func(into chan<- uint64) {
		index, err := f.Barrier(limited(t, 20*time.Second))
		if err != nil {
			t.Error(err)
		}
		into <- index
	}
	go ask(first)
	until(t, "the question is put",
		func() bool { n1.reads.mu.Lock(); defer n1.reads.mu.Unlock(); return n1.reads.barriers == 1 })
	// what is answered from now on, the first question does not cover
	n1.set(func(r *reads) { r.barrier, r.hold = 6, nil })
	later := make(chan uint64, 10)
	for range 10 {
		go ask(later)
	}
	close(hold)
	if got := <-first; got != 5 {
		t.Errorf("first: %d", got)
	}
	for range 10 {
		if got := <-later; got != 6 {
			t.Errorf("one that came later: %d", got)
		}
	}
	n1.reads.mu.Lock()
	if n1.reads.barriers > 11 || n2.reads.barriers != 0 {
		t.Errorf("%d and %d questions", n1.reads.barriers, n2.reads.barriers)
	}
	n1.reads.mu.Unlock()
	n1.set(func(r *reads) { r.down = api.Errorf(api.KindNoLeader, "cut off") })
	n2.set(func(r *reads) { r.barrier = 7 })
	if got, err := f.Barrier(limited(t, 20*time.Second)); err != nil || got != 7 {
		t.Errorf("of the other node: %d, %v", got, err)
	}
	n2.set(func(r *reads) { r.down = api.Errorf(api.KindNoLeader, "no majority") })
	if _, err := f.Barrier(limited(t, time.Second)); err == nil || !strings.Contains(err.Error(), "no majority") &&
		!strings.Contains(err.Error(), "cut off") {
		t.Errorf("without a leader: %v", err)
	}
}

// Who counts as live is asked of whose view counts, or of another node that knows the leader.
func TestLive(t *testing.T) {
	f, n1, n2 := reading(t)
	n1.set(func(r *reads) { r.barrier = 5 })
	n2.set(func(r *reads) { r.barrier = 6 })
	if l, err := f.Live(limited(t, 20*time.Second)); err != nil || l.Index != 5 ||
		!slices.Equal(l.Live, []string{"n1", "n1"}) {
		t.Errorf("%+v, %v", l, err)
	}
	n1.set(func(r *reads) { r.down = api.Errorf(api.KindNoLeader, "no leader is known here") })
	if l, err := f.Live(limited(t, 20*time.Second)); err != nil || l.Index != 6 ||
		!slices.Equal(l.Live, []string{"n1", "n2"}) {
		t.Errorf("%+v, %v", l, err)
	}
	n2.set(func(r *reads) { r.down = api.Errorf(api.KindNoLeader, "no leader is known here") })
	if l, err := f.Live(limited(t, 20*time.Second)); err == nil {
		t.Errorf("no node knows, and %+v", l)
	}
}

// A node that a force-quorum has removed is asked for nothing: what it says belongs to another log.
func TestLeftBehind(t *testing.T) {
	f, n1, n2 := reading(t)
	n1.set(func(r *reads) { r.barrier, r.applied = 99, 99 })
	n2.set(func(r *reads) { r.barrier, r.applied = 5, 5 })
	if got := f.Log(); got != "c/1" {
		t.Errorf("log %q", got)
	}
	follow(t, f, n2.server.Addr(), api.RouteView{Cluster: "c", Generation: 2, Term: 4, Node: "n2"})
	if got, err := f.Barrier(limited(t, 20*time.Second)); err != nil || got != 5 {
		t.Errorf("%d, %v", got, err)
	}
	n2.set(func(r *reads) { r.down = api.Errorf(api.KindNoLeader, "no majority") })
	if got, err := f.Barrier(limited(t, time.Second)); err == nil {
		t.Errorf("n1 was asked, and said %d", got)
	}
	if err := f.Applied(limited(t, 20*time.Second), "n1", 7); err == nil ||
		!strings.Contains(err.Error(), "not followed") {
		t.Errorf("what n1 has applied is of another log: %v", err)
	}
	if got := f.Log(); got != "c/2" {
		t.Errorf("log %q", got)
	}
}

// What a server has applied its own node says; one that is not in service, or does not answer, ends the wait, one that
// lags does not.
func TestApplied(t *testing.T) {
	f, _, n2 := reading(t)
	n2.set(func(r *reads) { r.applied = 5 })
	if err := f.Applied(limited(t, 20*time.Second), "n2", 5); err != nil {
		t.Error(err)
	}
	done := make(chan error, 3)
	patient, leave := context.WithCancel(t.Context())
	go func() { done <- f.Applied(patient, "n2", 6) }()
	until(t, "it is asked again, so it has been said to lag",
		func() bool { n2.reads.mu.Lock(); defer n2.reads.mu.Unlock(); return len(n2.reads.asked) > 2 })
	leave()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "entry 6 is not applied yet") {
		t.Errorf("one that lags: %v", err)
	}
	for index := range uint64(3) {
		go func() { done <- f.Applied(limited(t, 20*time.Second), "n2", 7+index) }()
	}
	n2.set(func(r *reads) { r.applied = 8 })
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	n2.set(func(r *reads) { r.down = api.Errorf(api.KindConflict, "its mysqld is dead") })
	if err := <-done; err == nil || !strings.Contains(err.Error(), "its mysqld is dead") {
		t.Errorf("not in service: %v", err)
	}
	n2.stop(t)
	if err := f.Applied(limited(t, 20*time.Second), "n2", 7); err == nil {
		t.Error("a node that is not there has applied something")
	}
	if err := f.Applied(limited(t, 20*time.Second), "n9", 7); err == nil {
		t.Error("something counts as applied that no node has applied")
	}
}

// Sessions that wait for all servers share questions, and one whose entry all have is not kept waiting for another's.
// The error says who is late.
func TestEverywhere(t *testing.T) {
	f, n1, n2 := reading(t)
	f.patience = 50 * time.Millisecond
	for _, n := range []*node{n1, n2} {
		n.set(func(r *reads) { r.all = 5 })
	}
	late := make(chan error, 1)
	patient, leave := context.WithCancel(t.Context())
	defer leave()
	go func() { late <- f.Everywhere(patient, 9) }()
	until(t, "it is asked for",
		func() bool { n1.reads.mu.Lock(); defer n1.reads.mu.Unlock(); return len(n1.reads.asked) > 0 })
	for _, index := range []uint64{3, 5, 4} {
		if err := f.Everywhere(limited(t, 20*time.Second), index); err != nil {
			t.Errorf("%d: %v", index, err)
		}
	}
	leave()
	if err := <-late; err == nil || !strings.Contains(err.Error(), "n7: entry 9") {
		t.Errorf("the error does not name who is late: %v", err)
	}
	n2.reads.mu.Lock()
	if len(n2.reads.asked) > 0 {
		t.Errorf("n1 has answered, and n2 was asked: %+v", n2.reads.asked)
	}
	n2.reads.mu.Unlock()
	// A node that does not know does not ask another node to give up.
	n1.set(func(r *reads) { r.down = api.Errorf(api.KindConflict, "ends"); r.asked = nil })
	go func() { late <- f.Everywhere(limited(t, 20*time.Second), 9) }()
	until(t, "n2 is asked", func() bool { n2.reads.mu.Lock(); defer n2.reads.mu.Unlock(); return len(n2.reads.asked) > 0 })
	n2.set(func(r *reads) { r.all = 9 })
	if err := <-late; err != nil {
		t.Error(err)
	}
}

// A lag grows until more is heard. A node that does not report its lag counts as lagging far.
func TestLags(t *testing.T) {
	now := time.Now()
	v := api.RouteView{RO: []api.RouteTarget{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}},
		Lags: map[string]float64{"n1": 0.1, "n2": 1.5, "n4": 0}}
	for age, want := range map[time.Duration][]time.Duration{
		100 * time.Millisecond: {100 * time.Millisecond, 1600 * time.Millisecond, math.MaxInt64},
		time.Second:            {1100 * time.Millisecond, 2500 * time.Millisecond, math.MaxInt64},
	} {
		got := lags(heard{v, now.Add(-age)}, now)
		if all := []time.Duration{got["n1"], got["n2"], got["n3"]}; !slices.Equal(all, want) || len(got) != 3 {
			t.Errorf("after %v: %v", age, got)
		}
	}
}
