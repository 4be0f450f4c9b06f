package trips

import (
	"slices"
	"testing"
	"time"

	"trireme/lab/wan"
)

// TestCommits reads traces that are written down here: what a commit may and may not look like.
func TestCommits(t *testing.T) {
	const peer, sql = 7306, 3306
	statement := []wan.Segment{{From: wan.Observer, To: "a", FromPort: 9, ToPort: sql, Bytes: 1100}}
	ok := []wan.Segment{{From: "a", To: wan.Observer, FromPort: sql, ToPort: 9, Bytes: 11}}
	row := func(to string) wan.Segment {
		return wan.Segment{From: "a", To: to, FromPort: 100, ToPort: peer, Bytes: Row + 300}
	}
	answer := func(from string) wan.Segment {
		return wan.Segment{From: from, To: "a", FromPort: 200, ToPort: peer, Bytes: 99}
	}
	beat := func(to string) wan.Segment {
		return wan.Segment{From: "a", To: to, FromPort: 101, ToPort: peer, Bytes: 120}
	}
	pinged := wan.Segment{From: "a", To: "b", FromPort: 101, ToPort: peer, Bytes: ping}
	both := []wan.Segment{row("b"), row("c")}
	for _, test := range []struct {
		what  string
		steps [][]wan.Segment // of segments that leave together and arrive before the next ones leave
		want  Commit
		sent  int // times that the row went to b
	}{
		{"one round trip", [][]wan.Segment{statement, both, {answer("b"), answer("c")}, ok}, Commit{Trips: 1, Bare: true}, 1},
		{"one follower is silent", [][]wan.Segment{statement, both, {answer("c")}, ok}, Commit{Trips: 1, Bare: true}, 1},
		{"a ping in between", [][]wan.Segment{statement, both, {pinged}, {answer("b")}, ok}, Commit{Trips: 1, Bare: true}, 1},
		{"a heartbeat was on its way", [][]wan.Segment{statement, {beat("b")}, both, {answer("b")}, ok},
			Commit{Trips: 1, Bare: true}, 1},
		{"the answer waits for a heartbeat", [][]wan.Segment{statement, both, {beat("b")}, {answer("b")}, ok},
			Commit{Trips: 1}, 1},
		{"the leader asks once more", [][]wan.Segment{statement, both, {answer("b")}, {beat("b")}, {answer("b")}, ok},
			Commit{Trips: 2}, 1},
		{"two answers", [][]wan.Segment{statement, both, {answer("b")}, {answer("b")}, ok}, Commit{Trips: 1, Bare: true}, 1},
		{"sent twice", [][]wan.Segment{statement, both, {row("b")}, {answer("b")}, ok}, Commit{Trips: 1}, 2},
		{"no answer", [][]wan.Segment{statement, both, ok}, Commit{}, 1},
		{"not sent", [][]wan.Segment{statement, ok}, Commit{}, 0},
	} {
		w := &Wire{Leader: "a", Followers: []string{"b", "c"}, Client: sql, Peer: map[string]uint16{"a": peer, "b": peer,
			"c": peer}}
		var trace []wan.Segment
		next := uint32(0)
		for _, step := range slices.Concat(test.steps, [][]wan.Segment{statement, both, {answer("b")}, ok}) {
			for _, arrived := range []bool{false, true} {
				for i, s := range step {
					s.Sequence, s.Arrived, s.At = next+uint32(i)*5000, arrived, time.Duration(len(trace))
					trace = append(trace, s)
				}
			}
			next += 50000
		}
		w.ReadLong(append(trace, trace[2])) // and TCP sends something again
		got := w.Commits()
		if len(got) != 2 {
			t.Errorf("%s: %d commits are found, want 2", test.what, len(got))
			continue
		}
		if c := got[0]; c.Trips != test.want.Trips || c.Bare != test.want.Bare || c.Entries["b"] != test.sent {
			t.Errorf("%s: %+v, want %+v and the row sent to b %d times", test.what, c, test.want, test.sent)
		}
		if n := w.Sent("b", Entry); n != test.sent+1 {
			t.Errorf("%s: %d segments with entries to b, want %d", test.what, n, test.sent+1)
		}
	}
}

// TestJudge: commits that are what they should be pass, each kind of others does not.
func TestJudge(t *testing.T) {
	const peer, sql = 7306, 3306
	var trace []wan.Segment
	say := func(from, to string, fromPort, toPort uint16, bytes int) {
		s := wan.Segment{From: from, To: to, FromPort: fromPort, ToPort: toPort, Bytes: bytes,
			Sequence: uint32(len(trace)) * 5000}
		trace = append(trace, s)
		s.Arrived = true
		trace = append(trace, s)
	}
	good := func() {
		say(wan.Observer, "a", 9, sql, 1100)
		say("a", "b", 100, peer, 1100)
		say("b", "a", 200, peer, 99)
		say("a", wan.Observer, sql, 9, 11)
	}
	early := func() {
		say(wan.Observer, "a", 9, sql, 1100)
		say("a", "b", 100, peer, 1100)
		say("a", wan.Observer, sql, 9, 11)
	}
	slow := func() {
		say(wan.Observer, "a", 9, sql, 1100)
		say("a", "b", 100, peer, 1100)
		for range 2 {
			say("b", "a", 200, peer, 99)
			say("a", "b", 101, peer, 120)
		}
		say("b", "a", 200, peer, 99)
		say("a", wan.Observer, sql, 9, 11)
	}
	for _, test := range []struct {
		what     string
		commits  []func()
		want     int
		problems int
	}{
		{"good", []func(){good, good, good}, 3, 0},
		{"one had to wait", []func(){good, good, slow}, 3, 0},
		{"most had to wait", []func(){good, slow, slow}, 3, 1},
		{"all had to wait", []func(){slow, slow, slow}, 3, 2},
		{"one without an answer", []func(){good, good, early}, 3, 1},
		{"one is missing", []func(){good, good}, 3, 1},
	} {
		trace = nil
		for _, f := range test.commits {
			f()
		}
		w := &Wire{Leader: "a", Followers: []string{"b"}, Client: sql, Peer: map[string]uint16{"a": peer, "b": peer}}
		w.ReadLong(trace)
		if told, problems := w.Judge(test.want); len(problems) != test.problems {
			t.Errorf("%s: %s: %q, want %d problems", test.what, told, problems, test.problems)
		}
	}
}
