package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/ha"
)

const (
	// fencePatience is for how long a fence tries to drain mysqld before it kills it. It begins when the lease has run
	// out, 0.2 of an election timeout before another node may take writes, and has to end well before.
	fencePatience = 100 * time.Millisecond
	guardGrace    = 100 * time.Millisecond // for a step with a limit of its own to end before the guard ends mysqld
)

// BeginFence ends serving, whatever is under way, and lets the guard wait for the fence. Fence has to follow.
func (s *Lives) BeginFence() {
	var until time.Duration
	s.Change(func(st *Status) {
		st.Fence()
		until = st.now + fencePatience + guardGrace
	})
	s.Host.Guard(until)
}

// Fenced is what became of a mysqld that was fenced.
type Fenced struct {
	Term    uint64
	Outcome string // in words; empty: it was dead
	Drained bool
	Took    time.Duration
}

// Fence makes this member unable to serve, for sure: clients are cut, and unless mysqld is drained within fencePatience
// (no commit waits, all that it wrote is committed) it is killed. Then serving may end.
func (s *Lives) Fence(ctx context.Context, host LeaderHost) (f Fenced) {
	st, began := s.Status(), s.exec.Now()
	f.Term = st.term
	failpoint.Hit("fence.begin")
	host.DropAddresses()
	switch {
	case st.life != nil && st.state == ha.ServerDying:
		host.EndServer(st.life) // the one that began it may not have come that far
	case st.life != nil:
		f.Outcome, f.Drained = s.drainOrKill(ctx, st.life, host)
	}
	f.Took = s.exec.Now() - began
	return f
}

// drainOrKill returns what became of mysqld, in words, and whether it was drained.
func (s *Lives) drainOrKill(ctx context.Context, l *Life, host LeaderHost) (string, bool) {
	if mutant.S4 {
		_ = l.mysql.SetSemisync(ctx, false)
	}
	dctx, cancel := s.exec.WithTimeout(ctx, fencePatience)
	err := l.Close(dctx)
	if err == nil {
		err = s.AwaitServing(dctx)
	}
	cancel()
	if err == nil {
		host.GuardStep(0)
		if err = l.Retire(ctx); err == nil {
			return "drained: mysqld continues as a read-only follower", true
		}
	}
	failpoint.Hit("fence.before-kill")
	host.EndServer(l)
	return fmt.Sprintf("mysqld was killed (%v)", err), false
}

// AwaitServing waits for the end of a promotion or switchover that was cancelled: it must not touch a life that goes
// on.
func (s *Lives) AwaitServing(ctx context.Context) error {
	st := s.Status()
	if st.done != nil && s.exec.Wait(ctx, st.done) != nil {
		return errors.New("what was under way did not end in time")
	}
	return nil
}

// TellGuard moves ahead the moment at which the guard kills mysqld: with the lease, while writes are open (S10). A loop
// that hangs, or a daemon that is stopped, cannot do that. proven is until when no other member can lead, at most one
// election timeout after the last proof of leadership. The moment is returned; 0: there is none.
//
// As for Change, and for what else tells the guard, a member that has a lock for the status holds it meanwhile.
func (s *Lives) TellGuard(proven time.Duration) (until time.Duration) {
	st := s.Status()
	until, told := st.GuardUntil(s.exec.Now(), proven)
	if told {
		s.Host.Guard(until)
	}
	return until
}

// GuardStep gives mysqld time for one step, as long as leadership is proven: whatever mysqld does, a daemon that is
// stopped meanwhile leaves no reader once another member can lead. Limit 0: the step has ended, and mysqld serves
// nothing; nor does it where a fence has ended meanwhile. TellGuard tells the guard when that changes.
func (s *Lives) GuardStep(limit, proven time.Duration) {
	var until time.Duration
	s.Change(func(st *Status) {
		if limit == 0 || st.phase == ha.PhaseNone {
			st.BeginStep(0)
			return
		}
		st.BeginStep(st.now + limit + guardGrace)
		until = st.StepEnd(proven)
	})
	s.Host.Guard(until)
}
