package lifecycle

import (
	"context"
	"time"

	"trireme/internal/core/ha"
)

const stopPatience = 20 * time.Second

// StepDown waits until leadership has gone to another member, or cannot go: the first part of a polite stop of the
// daemon, which BeginStop has begun.
func (s *Lives) StepDown(ctx context.Context, view func() ha.View) error {
	for deadline := s.exec.Now() + stopPatience; s.exec.Now() < deadline && !ha.MayStop(view()); {
		if err := s.exec.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends mysqld: by a clean shutdown only when no commit waits for an acknowledgement (S4).
func (s *Lives) Stop(ctx context.Context, host LeaderHost) {
	var l *Life
	serving := false
	host.Change(func(st *Status) {
		if l, serving = st.life, st.phase != ha.PhaseNone; serving {
			st.Stop()
		}
	})
	if serving {
		host.GuardStep(DrainPatience)
	}
	if l == nil {
		return
	}
	host.Routes()
	ctx, cancel := s.exec.WithTimeout(ctx, stopPatience)
	defer cancel()
	var err error
	if serving {
		dctx, dcancel := s.exec.WithTimeout(ctx, DrainPatience)
		err = l.Close(dctx)
		dcancel()
	}
	if err == nil {
		host.DropAddresses()
		host.GuardStep(0)
		err = l.StopPolitely(ctx)
	}
	if err == nil {
		return
	}
	s.Logger.Warn("mysqld is killed: it did not shut down within 20 s, or has work that is not acknowledged", "err", err)
	if err := l.proc.Kill(); err != nil {
		s.Logger.Error("mysqld cannot be killed", "err", err)
	}
}
