package lifecycle

import (
	"context"
	"time"

	"trireme/internal/core/ha"
)

// Serving is what a member's mysqld serves: whether it takes writes, in which term, and what becomes of it. The zero
// value serves nothing. The lock of Lives guards it. Only its methods change the phase:
//
//	none -Promote-> promoting -Open-> open -HandOver-> handover -End-> none
//	                    |               ^------Open------' |
//	                    +-----------------Fence------------+--> fencing -End-> none
type Serving struct {
	phase   ha.Phase
	term    uint64
	closing bool               // of a handover: writes are closed or closing
	drained bool               // writes are closed and all that was written is committed
	cancel  context.CancelFunc // ends the promotion or switchover under way
	done    chan struct{}      // closed when that has ended; nil: none was begun
	until   time.Duration      // when the step under way has ended at the latest; 0: no step
}

// Phase is where it is.
func (s *Serving) Phase() ha.Phase { return s.phase }

// Term is the one in which it serves, or is to.
func (s *Serving) Term() uint64 { return s.term }

// Closing says whether a handover closes writes or has closed them.
func (s *Serving) Closing() bool { return s.closing }

// Drained says whether writes are closed and all that was written is committed.
func (s *Serving) Drained() bool { return s.drained }

// View is what the policy sees of it.
func (s *Serving) View() ha.Serving {
	return ha.Serving{Phase: s.phase, Term: s.term, Drained: s.drained}
}

// SteppingDown says whether mysqld has stopped taking writes, by a switchover or a fence, and is being made a follower.
// leads: this member is the leader still.
func (s *Serving) SteppingDown(leads bool) bool {
	return s.phase == ha.PhaseFencing || s.phase == ha.PhaseHandover && s.drained && !leads
}

// TakesWrites says whether mysqld is open for writes: a switchover that is under way may not have closed them yet.
func (s *Serving) TakesWrites() bool {
	return s.phase == ha.PhaseOpen || s.phase == ha.PhaseHandover && !s.closing
}

// Promote begins to serve.
func (s *Serving) Promote(term uint64) { *s = Serving{phase: ha.PhasePromoting, term: term} }

// Open: writes are open, for the first time or again. No step is under way any more.
func (s *Serving) Open() { s.phase, s.until = ha.PhaseOpen, 0 }

// HandOver begins to give leadership away; writes go on.
func (s *Serving) HandOver() { s.phase, s.closing, s.drained = ha.PhaseHandover, false, false }

// BeginClosing notes that a handover is about to close writes. It says whether there still is one.
func (s *Serving) BeginClosing() bool {
	s.closing = s.phase == ha.PhaseHandover
	return s.closing
}

// NoteDrained: the handover of a term, if there still is one, has drained mysqld.
func (s *Serving) NoteDrained(term uint64) {
	if s.phase == ha.PhaseHandover && s.term == term {
		s.drained = true
	}
}

// TakeBack: the handover, if there still is one, has failed, and mysqld may be written to again.
func (s *Serving) TakeBack() {
	if s.phase == ha.PhaseHandover {
		s.drained = false
	}
}

// Fence ends serving whatever is under way; a step that has failed gives the guard no moment any more.
func (s *Serving) Fence() {
	if s.cancel != nil {
		s.cancel()
	}
	s.phase, s.until = ha.PhaseFencing, 0
}

// Stop ends serving as the daemon stops; what is under way is not cut short.
func (s *Serving) Stop() { s.phase = ha.PhaseFencing }

// End: nothing is served any more.
func (s *Serving) End() { *s = Serving{} }

// Run notes the promotion or switchover under way: what cancels it, for a fence, and what is closed when it has ended.
// A promotion whose writes are open may still start events when a switchover begins: a fence cancels both, and before
// is closed when the promotion has ended, which must be before done is closed; nil: no promotion goes on.
func (s *Serving) Run(cancel context.CancelFunc, done chan struct{}) (before <-chan struct{}) {
	if last, ended := s.cancel, s.done; ended != nil {
		select {
		case <-ended:
		default:
			before = ended
			own := cancel
			cancel = func() { last(); own() }
		}
	}
	s.cancel, s.done = cancel, done
	return before
}

// Done is closed when what Run has noted has ended; nil: there is nothing.
func (s *Serving) Done() <-chan struct{} { return s.done }

// BeginStep notes a step that has a limit of its own: when it has ended at the latest; 0: it is over.
func (s *Serving) BeginStep(until time.Duration) { s.until = until }

// StepEnd is when the guard ends mysqld in the middle of a step. proven is until when no other node can lead.
func (s *Serving) StepEnd(proven time.Duration) time.Duration { return min(proven, s.until) }

// GuardUntil is when the guard ends mysqld unless it is told again (S10); 0: never, it serves nothing. It says nothing
// during a fence, which has told the guard when it began, nor of a moment that has passed: the guard has acted, or this
// member fences a mysqld that was drained, which need not die. proven is until when no other node can lead.
func (s *Serving) GuardUntil(now, proven time.Duration) (until time.Duration, told bool) {
	switch {
	case s.phase == ha.PhaseNone, s.phase == ha.PhaseHandover && s.drained:
		return 0, true
	case s.phase == ha.PhaseOpen, s.phase == ha.PhaseHandover:
		until = proven
	case s.until != 0:
		until = s.StepEnd(proven)
	}
	return until, until > now
}
