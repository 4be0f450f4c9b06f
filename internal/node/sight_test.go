package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
)

// TestWatchMembers: the leader records once that it has lost a member, and once that it hears of it again, no matter
// who told it before; a node that does not lead tells nothing, nor does one that has just been elected.
func TestWatchMembers(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	kinds := func() (out []string) {
		for _, e := range n.history.All() {
			out = append(out, e.Kind+" "+e.Member)
		}
		return out
	}
	look := func(want ...string) {
		t.Helper()
		n.history.WatchMembers(t.Context())
		n.history.WatchMembers(t.Context())
		got := kinds()
		if len(got) != len(want) {
			t.Fatalf("%q, not %q", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%q, not %q", got, want)
			}
		}
	}
	n.gossip.Peers()[2], n.gossip.Peers()[3] = &gossip.Peer{Up: true, At: now()}, &gossip.Peer{Up: true, At: now()}
	lead := func(since time.Duration) {
		n.control.SoftState(consensus.State{})
		n.control.Time = earlier{realTime, since}
		n.control.SoftState(consensus.State{Role: consensus.Leader, Term: 3, Leader: 1})
	}
	lead(2 * gossip.Grace)
	look()
	n.gossip.Peers()[2].At = now() - 2*gossip.Grace
	n.control.SoftState(consensus.State{Role: consensus.Follower, Term: 3})
	look()
	lead(0)
	look()
	lead(2 * gossip.Grace)
	cannotReach(n, 2, 3*time.Second)
	look("down db2")
	if text := n.history.All()[0].Message; text == "" || n.links.Silence(2) == n.gossip.Peers()[2].Silence() {
		t.Errorf("%q, %q: the address is not named", text, n.links.Silence(2))
	}
	n.gossip.Peers()[2].At = now()
	look("down db2", "up db2")

	// It is heard of, and nothing gets to it.
	cannotReach(n, 2, 2*gossip.Grace)
	look("down db2", "up db2")
	cannotReach(n, 2, 2*gossip.Grace+1)
	look("down db2", "up db2", "down db2")
	text := n.history.All()[2].Message
	if !strings.Contains(text, "db1 cannot reach it at 10.0.0.2:7306: no route to host") {
		t.Errorf("%q: the address is not named", text)
	}
	cannotReach(n, 0, 0)
	look("down db2", "up db2", "down db2", "up db2")
}

// cannotReach has a node find that it has tried for so long to reach one member, at 10.0.0.2.
func cannotReach(n *Node, id uint64, since time.Duration) {
	n.links.Measure(brokenLink{id, since})(context.Background())
}

type brokenLink struct {
	id    uint64
	since time.Duration
}

func (b brokenLink) RTT(uint64) transport.RTT { return transport.RTT{} }

func (b brokenLink) Trouble(id uint64) (t transport.Trouble) {
	if id == b.id {
		t.For = b.since
		t.Tried = []transport.Attempt{{Address: "10.0.0.2:7306", Err: errors.New("no route to host")}}
	}
	return t
}

// earlier is a clock that shows less than the real one, by a fixed difference.
type earlier struct {
	run.Real
	by time.Duration
}

func (e earlier) Now() time.Duration { return e.Real.Now() - e.by }

// TestUnreachedIsAWarning: who is heard of and cannot be reached gets a warning that names the address, in the view and
// in why-not.
func TestUnreachedIsAWarning(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	theirs := []string{"its clock is wrong"}
	n.gossip.Peers()[2] = &gossip.Peer{Up: true, At: now(),
		Status: gossip.Status{Member: api.MemberView{Name: "db2", State: api.StateRecovering, Warnings: theirs}}}
	cannotReach(n, 2, 3*time.Second)
	const want = "db1 cannot reach it at 10.0.0.2:7306: no route to host"
	for range 2 {
		if m := n.View(t.Context()).Members[1]; len(m.Warnings) != 2 || m.Warnings[1] != want ||
			strings.Contains(m.Reason, want) {
			t.Errorf("%+v", m)
		}
		why, err := n.WhyNot(t.Context(), "db2")
		if err != nil || !slices.ContainsFunc(why.Reasons, func(r ha.Reason) bool { return r.Text == want && !r.Bars }) {
			t.Errorf("%+v, %v", why.Reasons, err)
		}
	}
}
