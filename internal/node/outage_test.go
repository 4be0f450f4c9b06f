package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ledger"
)

// TestOutagesHaveALength: a leader whose daemon did not see the outage begin tells how long it was and why, from what
// its life before and the others know.
func TestOutagesHaveALength(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	if n.started > now() || n.started == 0 {
		t.Fatalf("started at %v", n.started)
	}
	report := func(term uint64) api.Event {
		t.Helper()
		n.mu.Lock()
		seen, by := n.lastOpenLocked(term)
		n.mu.Unlock()
		at := now()
		n.routed = 99
		n.reportTakeover(t.Context(), &takeover{timeline: timeline{elected: at, applied: at, opened: at}, term: 99, began: at, seen: seen, seenBy: by,
			before: ledger.Barrier{Index: 5, Term: term, Node: 2, Incarnation: 3}})
		all := n.history.all()
		return all[len(all)-1]
	}
	if e := report(7); e.Kind != eventElection || e.GapMS != 0 || !strings.Contains(e.Cause, "no leader was known") {
		t.Errorf("nobody knows: %+v", e)
	}
	// db3 has seen db2 take writes in term 7, 40 s ago by its own clock, which is an hour ahead.
	clock := time.Now().Add(time.Hour)
	n.peers[3] = &peer{up: true, at: now(), status: status{Clock: clock, Seen: openSeen{7, clock.Add(-40 * time.Second)}, Routed: 99}}
	if e := report(7); e.Kind != eventFailover || e.From != "db2" || e.GapMS < 39_000 || e.GapMS > 70_000 || !strings.Contains(e.Cause, "by db3") {
		t.Errorf("db3 knows: %+v", e)
	}
	// This node has seen more: db2 told it so a moment ago. Its next life knows that still.
	n.peers[3].status.Clock = time.Time{}
	told(n, 2, api.RoleLeader, 8, 0)
	watch := n.watchOpen()
	watch(t.Context())
	dir := t.TempDir()
	if err := os.Rename(n.openFile(), filepath.Join(dir, "open.json")); err != nil {
		t.Fatal(err)
	}
	next := newTestNode(t, func(d *testDir) { d.cfg.Dir = dir })
	if next.openSeen.Term != 8 || time.Since(next.openSeen.At) > time.Minute {
		t.Fatalf("the next life knows of %+v", next.openSeen)
	}
	next.openSeen.At = next.openSeen.At.Add(-20 * time.Second)
	openTestLog(t, next)
	startTestRaft(t, next, nil)
	n = next
	e := report(8)
	if e.Kind != eventFailover || e.GapMS < 19_000 || !strings.Contains(e.Cause, "by db1") || !strings.Contains(e.Cause, "daemon of db1 was started") {
		t.Errorf("a daemon that was started again: %+v", e)
	}
}
