package consensus

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func app(to, term, index, commit uint64, entries ...uint64) *raftpb.Message {
	m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), To: new(to), Term: new(term), Index: new(index), Commit: new(commit)}
	for _, i := range entries {
		m.Entries = append(m.Entries, &raftpb.Entry{Index: new(i), Term: new(term)})
	}
	return m
}

func TestNotices(t *testing.T) {
	n := newCommitOnlyAppends()
	leader := State{Role: Leader, Term: 5}
	send := func(want int, what string, msgs ...*raftpb.Message) {
		t.Helper()
		if got := len(n.filter(msgs)); got != want {
			t.Fatalf("%s: %d messages go at once, want %d", what, got, want)
		}
	}
	send(2, "entries go at once", app(2, 5, 10, 9, 11), app(3, 5, 10, 9, 11))
	send(0, "a notice waits", app(2, 5, 11, 11), app(3, 5, 11, 11))
	send(1, "entries take the notice along", app(2, 5, 11, 11, 12))
	if got := n.flush(leader); len(got) != 1 || got[0].GetTo() != 3 || got[0].GetCommit() != 11 {
		t.Fatalf("flush gave %v, want the notice for 3", got)
	}
	send(1, "a message after the last entry that says nothing new is a probe", app(3, 5, 11, 11))
	send(1, "a message about an older place is a probe", app(3, 5, 7, 12))
	send(1, "a heartbeat goes at once", &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(2)),
		Term: new(uint64(5))})
	send(0, "a notice waits again", app(2, 5, 12, 12))
	send(0, "a newer one replaces it", app(2, 5, 12, 13))
	if got := n.flush(State{Role: Follower, Term: 6}); len(got) != 0 || len(n.held) != 0 {
		t.Fatalf("after the leadership: flush gave %v, held %v", got, n.held)
	}
	send(1, "another term", app(2, 7, 12, 14))
}
