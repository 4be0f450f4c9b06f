// Package trips reads from a trace of emulated links (wan.Segment) what commits cost: messages, answers, round trips.
// It is for tests. It looks at order alone, and the order of a trace is cause and effect, so what it finds does not
// depend on the machine's load.
//
//	w := trips.Wire{Leader: "n1", Followers: …, Client: 3306, Peer: …}
//	w.ReadLong(trace)                // of 20 commits one after the other, of rows as long as Row
//	told, problems := w.Judge(20)
package trips

import (
	"fmt"
	"strings"

	"trireme/lab/wan"
)

// Lengths of what nodes say to each other, TLS included (docs/format/peer.md). A message of raft without entries and
// context has 99 bytes.
const (
	ping  = 35  // and pong: they carry nothing
	Entry = 150 // less than a message with any entry has
	// Row is how long a row must be at least, so that its entry is told from everything else on its connection. Rows a
	// little longer than that fit into one segment.
	Row = 800
)

// Wire is what crossed between nodes, and between the leader and a client on the observer, in the order in which it
// did.
type Wire struct {
	Leader    string
	Followers []string
	Client    uint16            // port on which the leader takes statements
	Peer      map[string]uint16 // port of each node's peer links

	bulk     map[string]uint16 // to each follower: the leader's port of the connection that carries entries
	segments []wan.Segment
}

// Commit of a session that is alone.
type Commit struct {
	Entries map[string]int // times that its row was sent to each follower
	Trips   int            // round trips that its OK may have waited for, at most; 0: it cannot have waited for any answer
	Bare    bool           // it can have waited for nothing but that row, and what came back
}

// ReadLong takes a trace of commits with long rows, and finds by them the connections that carry entries.
func (w *Wire) ReadLong(trace []wan.Segment) {
	w.Read(trace)
	w.bulk = map[string]uint16{}
	for _, f := range w.Followers {
		long := map[uint16]int{}
		for _, s := range w.segments {
			if !s.Arrived && s.From == w.Leader && s.To == f && s.ToPort == w.Peer[f] && s.Bytes >= Row {
				long[s.FromPort]++
				if long[s.FromPort] > long[w.bulk[f]] {
					w.bulk[f] = s.FromPort
				}
			}
		}
	}
}

// Read takes another trace of the same connections.
func (w *Wire) Read(trace []wan.Segment) { w.segments = firstSent(trace) }

// firstSent leaves out what TCP sent again.
func firstSent(trace []wan.Segment) []wan.Segment {
	type flow struct {
		from, to         string
		fromPort, toPort uint16
		arrived          bool
	}
	end := map[flow]uint32{}
	var out []wan.Segment
	for _, s := range trace {
		f := flow{s.From, s.To, s.FromPort, s.ToPort, s.Arrived}
		e := s.Sequence + uint32(s.Bytes)
		if last, ok := end[f]; ok && s.Bytes > 0 && int32(e-last) <= 0 {
			continue
		}
		if s.Bytes > 0 {
			end[f] = e
		}
		out = append(out, s)
	}
	return out
}

// Commits finds them: each from the arrival of a statement at the leader until that of the next one.
func (w *Wire) Commits() []Commit {
	var asked, done []int // where in the trace
	for i, s := range w.segments {
		switch {
		case s.Bytes == 0:
		case len(asked) == len(done) && s.Arrived && s.From == wan.Observer && s.To == w.Leader && s.ToPort == w.Client:
			asked = append(asked, i)
		case len(asked) > len(done) && !s.Arrived && s.From == w.Leader && s.To == wan.Observer && s.FromPort == w.Client:
			done = append(done, i)
		}
	}
	var out []Commit
	for i, end := range done {
		next := len(w.segments)
		if i+1 < len(asked) {
			next = asked[i+1]
		}
		c := Commit{Entries: map[string]int{}, Trips: w.trips(asked[i], end), Bare: w.isBare(asked[i], end)}
		for _, f := range w.Followers {
			c.Entries[f] = 0
			for _, s := range w.segments[asked[i]:next] {
				if !s.Arrived && w.isRow(f, s) {
					c.Entries[f]++
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// Judge the commits of one session, of which there must be so many: it says in words what they did, and what is wrong.
// Each sends its row to each follower once, and no OK leaves before an answer is there. A machine that stands still for
// longer than a round trip lets heartbeats in between, so not all have to show that nothing else was waited for: most
// must have had one round trip, and one nothing but that.
func (w *Wire) Judge(commits int) (told string, problems []string) {
	all := w.Commits()
	single, bare := 0, 0
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i, c := range all {
		for f, n := range c.Entries {
			if n != 1 {
				problem("commit %d: its row was sent to %s %d times, want once", i, f, n)
			}
		}
		if c.Trips == 0 {
			problem("commit %d: its OK left %s before any answer of a follower was there", i, w.Leader)
		}
		if c.Trips == 1 {
			single++
		}
		if c.Bare {
			bare++
		}
	}
	if len(all) != commits {
		problem("the trace has %d statements with their answers, want %d", len(all), commits)
	}
	if 2*single <= len(all) {
		problem("%d of %d OKs left %s when one round trip was over, the others may have waited for another one", single,
			len(all), w.Leader)
	}
	if bare == 0 {
		problem("none of %d commits completed without another message of the leader after its row", len(all))
	}
	return fmt.Sprintf("of %d commits %d had their OK after one round trip, %d with nothing sent after the row; %s",
		len(all), single, bare, w), problems
}

// isRow: a segment with a long row on its way to a follower.
func (w *Wire) isRow(f string, s wan.Segment) bool {
	return s.From == w.Leader && s.To == f && s.FromPort == w.bulk[f] && s.ToPort == w.Peer[f] && s.Bytes >= Row
}

// isMessage: a segment between nodes that says something.
func (w *Wire) isMessage(s wan.Segment) bool {
	return s.Bytes > 0 && s.Bytes != ping && (s.ToPort == w.Peer[s.To] || s.FromPort == w.Peer[s.From])
}

// trips is the longest chain of cause and effect between nodes that begins when a statement is at the leader and ends
// when its OK leaves: each segment that arrives can have caused all that its receiver sends later. Two segments are a
// round trip. Acknowledgements of TCP's count, too: a sender may wait for them.
func (w *Wire) trips(asked, done int) int {
	type key struct {
		from, to         string
		fromPort, toPort uint16
		sequence         uint32
		bytes            int
	}
	chain := map[string]int{w.Leader: 0}
	under := map[key][]int{} // way: the chains of those that have left and not arrived, the oldest first
	for _, s := range w.segments[asked+1 : done] {
		if s.From == wan.Observer || s.To == wan.Observer {
			continue
		}
		k := key{s.From, s.To, s.FromPort, s.ToPort, s.Sequence, s.Bytes}
		if n, ok := chain[s.From]; ok && !s.Arrived {
			under[k] = append(under[k], n)
		}
		if s.Arrived && len(under[k]) > 0 {
			chain[s.To] = max(chain[s.To], under[k][0]+1)
			under[k] = under[k][1:]
		}
	}
	return chain[w.Leader] / 2
}

// isBare reports that after the row the leader sends nothing more to any follower before the OK leaves, and that a
// follower has answered since it got the row.
func (w *Wire) isBare(asked, done int) bool {
	answered := false
	for _, f := range w.Followers {
		sent, arrived, said := false, false, false
		for _, s := range w.segments[asked:done] {
			switch {
			case w.isRow(f, s) && (s.Arrived || !sent):
				sent, arrived = true, s.Arrived
			case sent && !s.Arrived && s.From == w.Leader && s.To == f && w.isMessage(s):
				return false
			case arrived && !s.Arrived && s.From == f && s.To == w.Leader && w.isMessage(s):
				said = true
			case said && s.Arrived && s.From == f && s.To == w.Leader && w.isMessage(s):
				answered = true
			}
		}
	}
	return answered
}

// Sent counts the segments of so many bytes at least that went to a follower on the connection that carries entries.
func (w *Wire) Sent(f string, bytes int) (n int) {
	for _, s := range w.segments {
		if !s.Arrived && s.From == w.Leader && s.To == f && s.FromPort == w.bulk[f] && s.Bytes >= bytes {
			n++
		}
	}
	return n
}

// String tells how much was said.
func (w *Wire) String() string {
	var out []string
	for _, f := range w.Followers {
		back := 0
		for _, s := range w.segments {
			if !s.Arrived && s.From == f && s.To == w.Leader && w.isMessage(s) {
				back++
			}
		}
		entries := w.Sent(f, Entry)
		out = append(out, fmt.Sprintf("to %s %d segments with entries and %d without, from it %d", f, entries,
			w.Sent(f, ping+1)-entries, back))
	}
	return strings.Join(out, "; ")
}
