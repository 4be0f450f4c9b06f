package lifecycle

import (
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
)

// TestProbe: what stands still is found after its limit and not before, and what only waits for something else is not.
func TestProbe(t *testing.T) {
	const begin = 1000 * time.Second
	committing := mysqld.Pulse{Committing: 3, Written: 1000}
	tests := []struct {
		name string
		// look i, ProbeInterval after the one before; at is filled in
		look func(i int) look
		// what is stuck after how long, from the first look on; 0: never within 60 s
		server, log time.Duration
		why         string
	}{
		{name: "idle", look: func(int) look { return look{answered: true, open: true} }},
		{name: "no answer", look: func(int) look { return look{} }, server: hungLimit, why: "mysqld does not answer"},
		{name: "no answer, but commits", look: func(i int) look {
			return look{progress: progress{acked: raftlog.Pos{File: 1, Off: uint64(i)}}}
		}},
		{name: "no answer, but it applies", look: func(i int) look { return look{progress: progress{applied: uint64(i)}} }},
		{name: "every fifth answer is late", look: func(i int) look { return look{answered: i%5 != 0} }},
		{name: "commits stand still", look: func(int) look { return look{answered: true, open: true, pulse: committing} },
			server: ProbeInterval + commitLimit, why: "commits do not progress in mysqld: its disk is full, or hangs"},
		{name: "commits wait for Raft",
			look: func(int) look { return look{answered: true, open: true, pulse: committing, owed: true} }},
		{name: "a large transaction is written to the binary log", look: func(i int) look {
			return look{answered: true, open: true, pulse: mysqld.Pulse{Committing: 1, Written: uint64(i)}}
		}},
		{name: "a large transaction, then its fsync", look: func(i int) look { // 1 GiB in 10 s, and 40 s at 25 MiB/s
			l := look{answered: true, open: true, pulse: mysqld.Pulse{Committing: 1, Written: uint64(min(i, 20)) << 30 / 20}}
			if i > 100 {
				l.progress.acked = raftlog.Pos{File: 1, Off: uint64(i)}
			}
			return l
		}},
		{name: "a large transaction, then nothing", look: func(i int) look { // 200 MiB in 2 s
			return look{answered: true, open: true, pulse: mysqld.Pulse{Committing: 1, Written: uint64(min(i, 4)) * 50 << 20}}
		}, server: 5*ProbeInterval + commitLimit + 10*time.Second,
			why: "commits do not progress in mysqld: its disk is full, or hangs"},
		{name: "one commit every four seconds", look: func(i int) look {
			return look{answered: true, open: true, pulse: committing,
				progress: progress{read: raftlog.Pos{File: 1, Off: uint64(i / 8)}}}
		}},
		{name: "a follower's own commits", look: func(int) look { return look{answered: true, pulse: committing} }},
		{name: "then no answer at all",
			look:   func(i int) look { return look{answered: i < 8, open: true, pulse: committing} },
			server: 4*time.Second + hungLimit, why: "mysqld does not answer"},
		{name: "the raft log hangs", look: func(int) look { return look{answered: true, appending: begin + time.Second} },
			log: time.Second + appendLimit},
		{name: "the raft log is slow", look: func(i int) look {
			return look{answered: true, appending: begin + time.Duration(i/8*8)*ProbeInterval}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p Probe
			var server, log time.Duration
			for i := range 120 {
				l := tt.look(i)
				l.at = begin + time.Duration(i)*ProbeInterval
				s, g := p.note(l)
				if s.Why != "" && server == 0 {
					server = l.at - begin
					if s.Why != tt.why || s.Since > l.at {
						t.Errorf("%q since %v", s.Why, s.Since)
					}
				}
				if g.Why != "" && log == 0 {
					log = l.at - begin
				}
			}
			if server != tt.server || log != tt.log {
				t.Errorf("mysqld counts as stuck after %v, want %v; the log after %v, want %v", server, tt.server, log, tt.log)
			}
		})
	}
}

// TestProbeOfStoppedDaemon: time in which the daemon did not run does not count as silence.
func TestProbeOfStoppedDaemon(t *testing.T) {
	var p Probe
	at := 1000 * time.Second
	for range 8 {
		at += ProbeInterval
		p.note(look{at: at, appending: at})
	}
	began := at
	at += time.Hour
	if s, g := p.note(look{at: at, appending: began}); s.Why != "" || g.Why != "" {
		t.Fatalf("stuck: %+v, %+v", s, g)
	}
	for range 20 {
		at += ProbeInterval
		if s, g := p.note(look{at: at, appending: began}); s.Why != "" && g.Why != "" {
			return
		}
	}
	t.Fatal("what goes on to be silent is not found any more")
}
