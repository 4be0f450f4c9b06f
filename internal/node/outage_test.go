package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ledger"
	"trireme/internal/node/gossip"
	"trireme/internal/node/history"
)

// TestOutagesHaveALength: a leader whose daemon did not see the outage begin tells how long it was and why, from what
// its life before and the others know.
func TestOutagesHaveALength(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	if at := n.history.Started(); at > now() || at == 0 {
		t.Fatalf("started at %v", at)
	}
	var seen gossip.OpenSeen
	report := func(term uint64) api.Event {
		t.Helper()
		n.routing.Leads(99)
		takeOver(t, n, term)
		all := n.history.All()
		return all[len(all)-1]
	}
	if e := report(7); e.Kind != history.EventElection || e.GapMS != 0 ||
		!strings.Contains(e.Cause, "no leader was known") {
		t.Errorf("it is not known: %+v", e)
	}
	// db3 has seen db2 take writes in term 7, 40 s ago by its own clock, which is an hour ahead.
	clock := time.Now().Add(time.Hour)
	n.gossip.Peers()[3] = &gossip.Peer{Up: true, At: now(),
		Status: gossip.Status{Clock: clock,
			Known: gossip.Known{Seen: gossip.OpenSeen{Term: 7, At: clock.Add(-40 * time.Second)}}, Routed: 99}}
	if e := report(7); e.Kind != history.EventFailover || e.From != "db2" || e.GapMS < 39_000 || e.GapMS > 70_000 ||
		!strings.Contains(e.Cause, "by db3") {
		t.Errorf("db3 knows: %+v", e)
	}
	// This node has seen more: db2 told it so a moment ago. Its next life knows that still.
	n.gossip.Peers()[3].Clock = time.Time{}
	told(n, 2, api.RoleLeader, 8, 0)
	n.watchOpen(t.Context())
	dir, file := t.TempDir(), filepath.Join(n.cfg.Dir, "open.json")
	b, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(b, &seen) != nil || seen.Term != 8 || time.Since(seen.At) > time.Minute {
		t.Fatalf("the next life knows of %s: %v", b, err)
	}
	seen.At = seen.At.Add(-20 * time.Second)
	if b, err = json.Marshal(seen); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "open.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	next := newTestNode(t, func(d *testDir) { d.cfg.Dir = dir })
	openTestLog(t, next)
	startTestRaft(t, next, nil)
	n = next
	e := report(8)
	if e.Kind != history.EventFailover || e.GapMS < 19_000 || !strings.Contains(e.Cause, "by db1") ||
		!strings.Contains(e.Cause, "daemon of db1 was started") {
		t.Errorf("a daemon that was started again: %+v", e)
	}
}

// takeOver lets a node tell that it leads in term 99, after db2 in another one.
func takeOver(t *testing.T, n *Node, before uint64) {
	t.Helper()
	at := now()
	to := n.history.Begin(history.Takeover{Term: 99, Elected: at,
		Before: ledger.Barrier{Index: 5, Term: before, Node: 2, Incarnation: 3}})
	to.Opened(at)
	n.history.Report(t.Context(), to)
}
