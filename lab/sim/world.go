package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Times of the cluster that is simulated. Those of a real one are longer by the same factor.
const (
	tickInterval    = 50 * time.Millisecond
	electionTicks   = 20
	heartbeatTicks  = 2
	electionTimeout = electionTicks * tickInterval
)

// World is one cluster under one schedule. It is not safe for concurrent use.
type World struct {
	opts Options
	plan plan
	now  int64
	seq  uint64
	step uint64
	heap eventHeap
	rnd  *rand.Rand
	done bool // a violation was found

	nodes []*Node // by id, the lost ones too
	net   network
	check checks
	load  load
	sql   *sqlWorld // with SQLTop

	counts    [numCounters]int64
	extra     Counts
	violation *Violation
	// generation is the newest that an operator has made; 0: none was made
	generation uint64
	hash       uint64
	trace      []string
}

// Violation is a broken promise.
type Violation struct {
	Rule string // "S2", "election safety", ...
	Text string
	At   time.Duration // simulated
	Step uint64
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s violated at %v, step %d: %s", v.Rule, v.At, v.Step, v.Text)
}

// event is something that happens at a moment. Of two at the same moment the one that was made first comes first.
type event struct {
	at  int64
	seq uint64
	do  func()
}

// Now is true time, in nanoseconds.
func (w *World) Now() int64 { return w.now }

// Rand is the source of everything random in the run but the schedule of faults.
func (w *World) Rand() *rand.Rand { return w.rnd }

// At lets f happen after d of true time.
func (w *World) At(d time.Duration, f func()) {
	w.seq++
	w.heap.push(event{w.now + int64(d), w.seq, f})
}

// runUntil lets everything happen up to a moment, or to a violation.
func (w *World) runUntil(end int64) {
	for !w.done && len(w.heap) > 0 && w.heap[0].at <= end {
		e := w.heap.pop()
		w.now = e.at
		w.step++
		e.do()
	}
	w.now = max(w.now, end)
}

// Violate records a broken promise and ends the run; the first one counts.
func (w *World) Violate(rule, format string, a ...any) {
	if w.violation != nil {
		return
	}
	w.violation = &Violation{Rule: rule, Text: fmt.Sprintf(format, a...), At: time.Duration(w.now), Step: w.step}
	w.done = true
	w.Tracef("VIOLATION of %s: %s", rule, w.violation.Text)
}

// maxTrace is how many of its last lines a trace keeps.
const maxTrace = 2000

// Tracef adds a line to the trace, if there is one.
func (w *World) Tracef(format string, a ...any) {
	if !w.opts.Trace {
		return
	}
	if len(w.trace) == 2*maxTrace {
		w.trace = slices.Delete(w.trace, 0, maxTrace)
	}
	w.trace = append(w.trace, fmt.Sprintf("%10.3fms %s", float64(w.now)/1e6, fmt.Sprintf(format, a...)))
}

func (w *World) traceText() string {
	t := w.trace[max(0, len(w.trace)-maxTrace):]
	if len(t) == 0 {
		return ""
	}
	return strings.Join(t, "\n") + "\n"
}

// note takes numbers into the hash by which two runs are compared: FNV-1a over words.
func (w *World) note(values ...uint64) {
	for _, v := range values {
		w.hash = (w.hash ^ v) * 1099511628211
	}
}

// Node returns the node with a raft id, nil if there never was one.
func (w *World) Node(id uint64) *Node {
	if id == 0 || id > uint64(len(w.nodes)) {
		return nil
	}
	return w.nodes[id-1]
}

// Nodes returns all nodes by id, down and lost ones too.
func (w *World) Nodes() []*Node { return w.nodes }

// Leader returns the running node that leads the highest term, nil if no node leads.
func (w *World) Leader() *Node {
	var best *Node
	for _, n := range w.nodes {
		if n.up && n.leads() && !n.past() && (best == nil || n.status.Term > best.status.Term) {
			best = n
		}
	}
	return best
}

// eventHeap is a binary heap by time and sequence.
type eventHeap []event

func (h eventHeap) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.less(i, up) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	s := *h
	e, n := s[0], len(s)-1
	s[0] = s[n]
	s[n] = event{}
	s = s[:n]
	*h = s
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if s.less(c, least) {
				least = c
			}
		}
		if least == i {
			return e
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}
