package node

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
)

// told gives a node a status of another one that came some time ago.
func told(n *Node, id uint64, role string, term uint64, ago time.Duration) {
	lag := 0.25
	m, _ := n.Settings().MemberByID(id)
	p := &gossip.Peer{Up: true, At: now() - ago}
	p.Status = gossip.Status{Ready: true, Member: api.MemberView{Name: m.Name, Role: role, State: api.StateHealthy,
		DiskFull: "/srv",
		Raft:     api.RaftView{Term: term}, MySQL: &api.MySQLView{PID: 7, Epoch: "3", LagSeconds: &lag}}}
	if role == api.RoleLeader {
		p.OpenTerm = term
	}
	n.gossip.Peers()[id] = p
}

func viewOf(t *testing.T, n *Node) (api.ClusterView, map[string]api.MemberView) {
	t.Helper()
	v, members, leaders := n.View(t.Context()), map[string]api.MemberView{}, 0
	for _, m := range v.Members {
		members[m.Name] = m
		if m.Role == api.RoleLeader {
			leaders++
			if m.Name != v.Leader {
				t.Errorf("%s is shown as leader, and %q leads", m.Name, v.Leader)
			}
		}
	}
	if leaders > 1 {
		t.Errorf("%d leaders", leaders)
	}
	return v, members
}

// TestSilentMembersAreUnknown: what a node does not know it shows as unknown at once, however well it was a moment
// ago; and with it who leads, and who could.
func TestSilentMembersAreUnknown(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil, raft.Peer{ID: 1}, raft.Peer{ID: 2}, raft.Peer{ID: 3})
	eventually(t, func() bool { return len(n.cons.Status().Voters) == 3 })
	term := n.cons.Status().Term
	told(n, 2, api.RoleLeader, term+1, time.Second)
	told(n, 3, api.RoleFollower, term+1, 0)
	if v, m := viewOf(t, n); v.Leader != "db2" || v.Doubt != "" || v.SeenBy != "db1" ||
		m["db2"].State != api.StateHealthy || m["db1"].AgeSeconds != nil ||
		m["db2"].AgeSeconds == nil || *m["db2"].AgeSeconds < 1 || *m["db2"].AgeSeconds > 30 {
		t.Errorf("all are heard of: %+v", v)
	}
	told(n, 2, api.RoleLeader, term+1, 2*time.Second)
	v, m := viewOf(t, n)
	if x := m["db2"]; v.Leader != "" || v.Doubt != "" || x.State != api.StateUnknown || x.ReasonCode != ha.Unreachable ||
		x.MySQL.LagSeconds != nil ||
		x.DiskFull != "" || x.MySQL.PID != 7 {
		t.Errorf("db2 is silent: %+v", v)
	}
	n.gossip.Peers()[3].Leader = 2
	if v, _ := viewOf(t, n); !strings.Contains(v.Doubt, "db2") || !strings.Contains(v.Doubt, "db3 follows") {
		t.Errorf("db3 still hears db2: %q", v.Doubt)
	}
	n.gossip.Peers()[3].Leader = 0
	if p := n.viewForPeople().Peers[0]; p.ID != 2 || p.Live {
		t.Errorf("a silent member could take over: %+v", p)
	}
	told(n, 3, api.RoleFollower, term+1, 2*gossip.Lifetime)
	if v, m := viewOf(t, n); v.Doubt == "" || !strings.Contains(v.Doubt, "1 of 3") || m["db3"].State != api.StateDown ||
		*m["db3"].AgeSeconds < 7 {
		t.Errorf("neither is heard of: %+v", v)
	}
	// A leader that was cut off says so for a while, and another one leads a newer term.
	told(n, 2, api.RoleLeader, term+1, time.Second)
	told(n, 3, api.RoleLeader, term+2, 0)
	if v, _ := viewOf(t, n); v.Leader != "db3" {
		t.Errorf("two say that they lead: %q", v.Leader)
	}
}

// TestNothingHeardYet: a node that has joined and has not heard from the cluster knows of no voters, so not that
// writes are refused either.
func TestNothingHeardYet(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	v, _ := viewOf(t, n)
	if text := v.WritesWait(); !strings.Contains(v.Doubt, "db1 has not heard") || strings.Contains(text, "refused") ||
		strings.Contains(text, "0 of 0") {
		t.Errorf("doubt %q; writes: %q", v.Doubt, text)
	}
}

// TestHealthyMoves: a follower is healthy while its applier moves, and one whose disk is full says where.
func TestHealthyMoves(t *testing.T) {
	var usual config.Bytes
	n := newTestNode(t, func(d *testDir) { usual, d.cfg.Raft.LogSegment = d.cfg.Raft.LogSegment, 1<<60 })
	n.cfg.Raft.LogSegment = usual // its room is still for a segment that no disk takes
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	n.lives.Change((*lifecycle.Status).Ready)
	n.stateName, n.why = api.StateHealthy, "following db2"
	since := time.Now().Add(-time.Minute)
	n.noteBacklogLocked(ledger.Backlog{Applied: 4, Since: since, Bytes: 5 << 20})
	n.srv.movedAt -= stallLimit / 2
	n.noteBacklogLocked(ledger.Backlog{Applied: 5, Since: since, Bytes: 5 << 20})
	if h := n.Local(); h.State != api.StateHealthy {
		t.Errorf("it moved: %s", h.State)
	}
	n.srv.movedAt -= stallLimit + time.Second
	n.noteBacklogLocked(ledger.Backlog{Applied: 5, Since: since, Bytes: 5 << 20})
	if h, m := n.Local(), n.Self(t.Context()); h.State != api.StateCatchingUp || m.State != api.StateCatchingUp ||
		!strings.Contains(m.Reason, "5.0 MiB") {
		t.Errorf("it stands still: %s, %s: %s", h.State, m.State, m.Reason)
	}
	if full, stalled := n.outOfSpace(); full != "" || !stalled {
		t.Errorf("it has space: %q, %v", full, stalled)
	}
	n.room.WatchSpace(t.Context())
	dir := n.cfg.RaftDir()
	full, stalled := n.outOfSpace()
	if m := n.Self(t.Context()); m.DiskFull != dir || !stalled || !strings.Contains(full, dir) {
		t.Errorf("%q; %q", m.DiskFull, full)
	}
	n.srv.heavy = time.Minute
	if h := n.Local(); h.State != api.StateHealthy {
		t.Errorf("it is at a large transaction: %s", h.State)
	}
	n.noteBacklogLocked(ledger.Backlog{Applied: 9})
	n.srv.heavy, n.srv.movedAt = 0, n.srv.movedAt-time.Hour
	if h := n.Local(); h.State != api.StateHealthy {
		t.Errorf("it has nothing to do: %s", h.State)
	}
}
