package leadership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
)

// clients are those of a test's member.
type clients struct {
	m        *member
	rule     error // that keeps commits waiting
	followed bool
	noisy    int // looks at which routers have something under way
	why      gossip.Leave
	hold     uint64 // that was looked at
}

func (c *clients) WaitForRule() error { return c.rule }
func (c *clients) Hold(term uint64, why gossip.Leave) {
	c.m.done = append(c.m.done, fmt.Sprint("hold in ", term))
	c.why = why
}
func (c *clients) Followed() bool { return c.followed }
func (c *clients) Quiet(hold, term uint64) bool {
	c.hold = hold
	c.noisy--
	return c.noisy < 0
}
func (c *clients) Moved() int     { return 4 }
func (c *clients) DropAddresses() { c.m.done = append(c.m.done, "drop addresses") }

// serving is a member's mysqld; what it does is added to what the member did.
type serving struct {
	m                           *member
	open                        int // looks at which a transaction is open
	fenced                      bool
	closeErr, retireErr, opened error
	reopening                   func(ctx context.Context)
}

func (s *serving) did(what string, err error) error {
	s.m.done = append(s.m.done, what)
	return err
}

func (s *serving) OpenTransactions(context.Context) ([]mysqld.OpenTransaction, error) {
	if s.open--; s.open >= 0 {
		return []mysqld.OpenTransaction{{AgeS: 3}}, nil
	}
	return nil, nil
}
func (s *serving) Committed() uint64  { return 70 }
func (s *serving) BeginClosing() bool { return !s.fenced }
func (s *serving) Close(context.Context) (int, []mysqld.OpenTransaction, error) {
	return 2, []mysqld.OpenTransaction{{AgeS: 3}}, s.did("close", s.closeErr)
}
func (s *serving) Retire(context.Context) error { return s.did("retire", s.retireErr) }
func (s *serving) Reopen(ctx context.Context) error {
	if s.reopening != nil {
		s.reopening(ctx)
	}
	return s.did("reopen", s.opened)
}

// switching is a member whose switchover to db2 an operator has asked for.
func switching() (*member, *serving, *Request, *Attempt) {
	m := newMember()
	m.clients = &clients{m: m}
	r := m.l.Ask(2, 5, "ann", 0)
	return m, &serving{m: m}, r, m.l.Begin(ha.Action{Kind: ha.Switchover, Term: 5, To: 2})
}

// TestSwitchover: the steps that move leadership, and what becomes of an attempt that fails.
func TestSwitchover(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		name      string
		change    func(m *member, s *serving)
		did       string
		err       string // that the operator gets; empty: leadership moved
		continues bool
	}{
		{"all is well", func(*member, *serving) {}, "hold in 5, close, drop addresses, transfer to 2, retire", "", false},
		{"a rule holds commits up", func(m *member, _ *serving) { m.clients.rule = no }, "reopen", "no", true},
		{"a fence has begun", func(_ *member, s *serving) { s.fenced, s.opened = true, no }, "reopen", "db1 is fenced", false},
		{"not drained", func(_ *member, s *serving) { s.closeErr = no }, "hold in 5, close, reopen", "no", true},
		{"not drained, not opened", func(_ *member, s *serving) { s.closeErr, s.opened = no, errors.New("no lease") },
			"hold in 5, close, reopen", "no; db1 is fenced: no lease", false},
		{"it does not follow", func(_ *member, s *serving) { s.retireErr, s.opened = no, no },
			"hold in 5, close, drop addresses, transfer to 2, retire, reopen", "", false},
	} {
		m, s, r, at := switching()
		c.change(m, s)
		ctx, cancel := context.WithCancel(t.Context())
		if m.clients.rule != nil {
			cancel() // a rule is not waited for
		}
		at.Switchover(ctx, s)
		cancel()
		got, err := m.l.Await(t.Context(), r, time.Hour)
		if err != nil || (got.Err == nil) != (c.err == "") || got.Err != nil && !strings.Contains(got.Err.Error(), c.err) ||
			got.Continues != c.continues {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if did := strings.Join(m.done, ", "); did != c.did {
			t.Errorf("%s: did %q, want %q", c.name, did, c.did)
		}
		failed := c.name != "all is well"
		if (m.l.tried.fails == 1) != failed || slices.Contains(m.history, "no-switchover ") != failed || m.l.Asked() {
			t.Errorf("%s: %+v, history %q, asked %v", c.name, m.l.tried, m.history, m.l.Asked())
		}
		if closed := strings.Contains(c.did, "close"); closed != (got.Cut == 2 && got.Carried == 4 && got.Closing != 0) ||
			closed && (!m.clients.why.Planned || m.clients.why.By != "ann") {
			t.Errorf("%s: %+v, because %+v", c.name, got, m.clients.why)
		}
	}
}

// TestTargetNotReady: nothing is closed for a target that has not applied everything.
func TestTargetNotReady(t *testing.T) {
	m, s, r, at := switching()
	m.refuse = errors.New("it lags")
	at.Switchover(t.Context(), s)
	got, err := m.l.Await(t.Context(), r, time.Hour)
	if err != nil || got.Err == nil || got.Err.Error() != "db2 is not ready: it lags" || !got.Continues {
		t.Errorf("%+v, %v", got, err)
	}
	m.wants(t, "not ready", "reopen")
	if m.sent[2] != `{"index":70,"patience_ns":3000000000}` {
		t.Errorf("asked %q", m.sent[2])
	}
}

// TestAnswerAfterOpening: the operator hears that the old leader continues once it does, and not before: opening its
// writes may fail.
func TestAnswerAfterOpening(t *testing.T) {
	m, s, r, at := switching()
	s.closeErr = errors.New("no")
	s.reopening = func(context.Context) {
		if !m.l.Asked() || r.answered() {
			t.Error("it is answered before writes are open")
		}
	}
	at.Switchover(t.Context(), s)
	if !r.answered() {
		t.Error("it is not answered")
	}
}

// TestReopenEndsWithAFence: opening writes again waits for a lease, which a fence ends at once; the time that the
// switchover has had does not count.
func TestReopenEndsWithAFence(t *testing.T) {
	m, s, _, at := switching()
	at.wait = -Patience // it is over
	ctx, fence := context.WithCancel(t.Context())
	s.closeErr = errors.New("no")
	s.reopening = func(ctx context.Context) {
		if ctx.Err() != nil {
			t.Error("it has no time left")
		}
		fence()
		if ctx.Err() == nil {
			t.Error("it goes on in spite of a fence")
		}
	}
	at.Switchover(ctx, s)
	if !slices.Contains(m.done, "reopen") {
		t.Errorf("%q", m.done)
	}
}

// TestCloseWaits: open transactions and routers are waited for, each for a bounded time; a daemon that stops waits for
// no transaction. The end of the cluster closes writes with it, too.
func TestCloseWaits(t *testing.T) {
	why := gossip.Leave{Cause: "the cluster is left"}
	m, s, _, _ := switching()
	m.clients.followed, m.clients.noisy, s.open = true, 3, 2
	if got := m.l.Close(t.Context(), s, 5, why, time.Hour); got.Err != nil || m.clients.noisy >= 0 || s.open >= 0 {
		t.Errorf("%+v, %d looks at routers and %d at transactions are left", got, m.clients.noisy, s.open)
	}
	m.wants(t, "waited", "hold in 5", "close", "drop addresses")
	if m.clients.hold != 1 || m.l.Held() != 1 || m.clients.why.Cause != why.Cause {
		t.Errorf("hold %d, %d; because %+v", m.clients.hold, m.l.Held(), m.clients.why)
	}

	m.clients.noisy, s.open = 1<<30, 1<<30
	const bound = 20 * time.Millisecond
	began := clock.Now()
	if got := m.l.Close(t.Context(), s, 5, why, bound); got.Err != nil || clock.Now() < began+2*bound || m.clients.hold != 2 {
		t.Errorf("%+v after %v, hold %d", got, clock.Now()-began, m.clients.hold)
	}
	m.stopping, m.clients.followed = true, false
	if got := m.l.Close(t.Context(), s, 5, why, api.MaxTrxWait); got.Err != nil {
		t.Errorf("%+v", got)
	}
}

// TestCause: who is told to have moved leadership.
func TestCause(t *testing.T) {
	m, _, _, at := switching()
	if got := at.cause(); got.By != "ann" || got.Cause != "an operator asked for it" {
		t.Errorf("%+v", got)
	}
	at = m.l.Begin(ha.Action{Kind: ha.Switchover, Term: 5, To: 3, Reason: "db3 has a higher weight"})
	if got := at.cause(); got != (gossip.Leave{Cause: "db3 has a higher weight"}) {
		t.Errorf("%+v", got)
	}
	m.stopping = true
	if got := at.cause(); got != (gossip.Leave{Cause: "its daemon is stopping"}) {
		t.Errorf("%+v", got)
	}
}
