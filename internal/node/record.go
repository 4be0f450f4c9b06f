package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/control/recorder"
	"trireme/internal/core/ha"
)

// Pace of the recorder: docs/ops/report.md says what it costs.
const (
	lookInterval  = time.Second // between two looks at the active sessions
	looksPerFrame = 10          // and all counters are read
	framesPerTurn = 6           // and the statements' and files' counters are read
	samplesDir    = "samples"
)

// samples are what a node has recorded.
type samples struct {
	cfg   config.Node
	store *recorder.Store // nil: nothing is recorded
}

// openSamples begins to record what this node does, unless that is switched off. It is no part of the node's work: what
// fails is missing in reports.
func (n *Node) openSamples() samples {
	if n.cfg.Recorder.Keep == 0 {
		return samples{cfg: n.cfg}
	}
	store, err := recorder.Open(filepath.Join(n.cfg.Dir, samplesDir), int64(n.cfg.Recorder.Keep))
	if err != nil {
		n.log.Warn("nothing is recorded for reports", "err", err)
		return samples{cfg: n.cfg}
	}
	n.every(lookInterval, n.record(recorder.New(store)))
	return samples{n.cfg, store}
}

// record makes the recorder's turn of each second.
func (n *Node) record(r *recorder.Recorder) func(context.Context) {
	turn, failed, last := 0, "", now()
	var known, seen string // the life of mysqld that was looked at last, and LAST_SEEN of the newest statement read of it
	return func(ctx context.Context) {
		n.mu.Lock()
		s, full := n.lives.Status(), n.room.State().FullDir != ""
		n.mu.Unlock()
		l, leads := s.Life(), s.TakesWrites()
		if s.State() == ha.ServerStarting {
			l = nil
		}
		turn++
		var errs []error
		note := func(err error) {
			if err != nil && ctx.Err() == nil {
				errs = append(errs, err)
			}
		}
		life := ""
		if l != nil && failed == "" {
			life = strconv.FormatUint(l.Incarnation, 10)
			active, err := l.Admin().ActiveSessions(ctx)
			note(err)
			if err == nil {
				r.Look(active)
			}
			if err == nil && life != known {
				known, seen = life, ""
				note(l.Admin().LeaveOut(ctx))
			}
		}
		if turn%looksPerFrame != 0 {
			n.noteRecording(&failed, errs)
			return
		}
		in := recorder.Reading{At: time.Now(), Took: now() - last, Load: n.Load(), Self: n.Self(ctx), Leads: leads}
		last = now()
		if l != nil {
			failed = "" // once in ten seconds it is tried again
			life = strconv.FormatUint(l.Incarnation, 10)
			counters, err := l.Admin().StatusCounters(ctx, recorder.Status)
			note(err)
			if err == nil {
				in.Life, in.Counters = life, counters
			}
			if err == nil && turn%(looksPerFrame*framesPerTurn) == 0 {
				if life != known {
					known, seen = life, ""
				}
				note(l.Admin().LeaveOut(ctx)) // a session may have logged in again
				statements, latest, err := l.Admin().Statements(ctx, seen)
				note(err)
				if err == nil {
					seen = latest
					r.Statements(life, statements)
				}
				files, err := l.Admin().FileCounts(ctx)
				note(err)
				r.Files(life, files)
				texts, err := l.Admin().StatementTexts(ctx, r.Lacks())
				note(err)
				r.Texts(texts)
			}
		}
		if !full { // the space that is left is the log's
			note(r.Write(in))
		}
		n.noteRecording(&failed, errs)
	}
}

// noteRecording remembers why something could not be read: mysqld is left alone until the next frame.
func (n *Node) noteRecording(failed *string, errs []error) {
	if len(errs) == 0 {
		return
	}
	*failed = errs[0].Error()
	n.log.Debug("recording for reports", "err", errs[0])
}

// Period implements api.Backend.
func (s samples) Period(ctx context.Context, from, to time.Time) (api.PeriodView, error) {
	if s.store == nil {
		why := "its disk refused when the daemon started"
		if s.cfg.Recorder.Keep == 0 {
			why = "recorder.keep = 0B in its settings"
		}
		return api.PeriodView{Node: s.cfg.Name, From: from, To: to, StepS: recorder.Step(from, to).Seconds(),
			Problem: fmt.Sprintf("nothing is recorded: %s", why)}, nil
	}
	return s.store.Period(ctx, s.cfg.Name, from, to)
}
