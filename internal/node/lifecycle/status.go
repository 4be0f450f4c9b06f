package lifecycle

import (
	"errors"

	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
)

// Status is this member's mysqld at one moment: how far recovery has come, and what it serves.
type Status struct {
	Server
	Serving
	stopping bool
}

// Stopping says whether the daemon was asked to stop, or has another reason to bring mysqld to its end.
func (s *Status) Stopping() bool { return s.stopping }

// BeginStop: mysqld is not to begin anything any more. What is under way goes on, but writes do not open.
func (s *Status) BeginStop() { s.stopping = true }

// errStopping refuses to open writes.
var errStopping = errors.New("the daemon is stopping")

// MayOpen fails unless l may take writes in a term still, from the phase in which it was to (S7).
func (s *Status) MayOpen(l *Life, term uint64, from ha.Phase) error {
	switch {
	case s.life != l || s.phase != from || s.term != term:
		return consensus.ErrNotLeader
	case s.stopping:
		return errStopping
	}
	return nil
}

// Follows says whether it is judged and fed, and serves nothing.
func (s *Status) Follows() bool { return s.state == ha.ServerReady && s.phase == ha.PhaseNone }

// Opens says whether l takes writes, and no switchover is under way.
func (s *Status) Opens(l *Life) bool { return s.life == l && s.phase == ha.PhaseOpen }

// HandsOver says whether a switchover of l is under way.
func (s *Status) HandsOver(l *Life) bool { return s.life == l && s.phase == ha.PhaseHandover }

// LeadsIn says whether it serves, or is to, in a term of which this member is the leader.
func (s *Status) LeadsIn(term uint64) bool {
	return s.term == term && s.phase != ha.PhaseFencing && s.phase != ha.PhaseNone
}

// FeedFailed: what ends the feed permanently has happened. It says whether a fence has to follow, of a promotion that
// waits for what never comes. The log may have been purged below what mysqld needs: how far it lags is for a new
// judgement to say. Or it has rotted, and this member is out of service as long as it has.
func (s *Status) FeedFailed(err error) (fences bool) {
	switch {
	case s.Follows():
		s.Unjudged(err.Error())
	case s.phase == ha.PhasePromoting:
		s.PromotionFailed()
		return true
	}
	return false
}

// Status is mysqld as it is now.
func (s *Lives) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Life is the one that runs; nil: none.
func (s *Lives) Life() *Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.life
}

// Change changes the status in one step. A member that keeps other facts in step with it holds its own lock
// meanwhile, so that a holder of that lock never sees one without the other.
func (s *Lives) Change(f func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.now = s.exec.Now()
	f(&s.status)
}

// Begin takes up an action of the policy, if it still stands, and returns the life that it is about. A fence is begun
// by Fence: it is never dropped (S7).
func (s *Lives) Begin(a ha.Action, term uint64) (l *Life, stands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.status
	if !ha.Stands(a, term, st.state, st.Serving.View(), st.stopping) || a.Kind == ha.Restart && st.life == nil {
		return nil, false
	}
	switch a.Kind {
	case ha.StartServer:
		st.Starting()
	case ha.Judge:
		st.Judging()
	case ha.Seed:
		st.Seeding()
	case ha.Promote:
		st.Promote(a.Term)
	case ha.Restart:
		st.Restarting()
	case ha.Switchover:
		st.HandOver()
	}
	return st.life, true
}

// BeginRestart takes up a restart of l, if it follows still: it may have been promoted since somebody looked.
func (s *Lives) BeginRestart(l *Life) (stands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.life != l || !s.status.Follows() {
		return false
	}
	s.status.Restarting()
	return true
}
