package verify

import (
	"cmp"
	"fmt"
	"sync"
)

// Outcome is what the client knows about one attempt.
type Outcome uint8

const (
	// Pending: sent or about to be sent, no answer yet. Judged like Unknown.
	Pending Outcome = iota
	// Acked: the server said OK.
	Acked
	// Unknown: the connection died, or time ran out, while the commit was under way.
	Unknown
	// Failed: certainly not committed: refused by the server, or the commit was never sent.
	Failed
)

func (o Outcome) String() string {
	return [...]string{"pending", "acked", "unknown", "failed"}[o]
}

// Attempt names one write. Seq counts from 1 within a writer, without gaps.
type Attempt struct {
	Writer int   `json:"writer"`
	Seq    int64 `json:"seq"`
}

func compareAttempts(a, b Attempt) int {
	return cmp.Or(cmp.Compare(a.Writer, b.Writer), cmp.Compare(a.Seq, b.Seq))
}

// Counts is the sum of a log.
type Counts struct {
	Attempts int64 `json:"attempts"`
	Acked    int64 `json:"acked"`
	Unknown  int64 `json:"unknown"`
	Failed   int64 `json:"failed"`
}

// Log is the client's record of every attempt. Each writer appends to its own part, from one goroutine; readers may
// call at any time.
type Log struct{ parts []logPart }

type logPart struct {
	mu  sync.Mutex
	out []Outcome // index seq-1
	_   [64]byte  // writers do not share a cache line
}

// NewLog makes an empty log for writers numbered from 0.
func NewLog(writers int) *Log { return &Log{make([]logPart, writers)} }

// Begin records a new attempt of a writer, before anything is sent, and returns its sequence number.
func (l *Log) Begin(writer int) int64 {
	p := &l.parts[writer]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, Pending)
	return int64(len(p.out))
}

// Settle records the outcome of an attempt, once.
func (l *Log) Settle(writer int, seq int64, o Outcome) {
	p := &l.parts[writer]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out[seq-1] != Pending {
		panic(fmt.Sprintf("verify: attempt %d/%d settled twice", writer, seq))
	}
	p.out[seq-1] = o
}

// Outcome returns what is known of an attempt; ok is false if it was never made.
func (l *Log) Outcome(a Attempt) (o Outcome, ok bool) {
	if a.Writer < 0 || a.Writer >= len(l.parts) || a.Seq < 1 {
		return 0, false
	}
	p := &l.parts[a.Writer]
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Seq > int64(len(p.out)) {
		return 0, false
	}
	return p.out[a.Seq-1], true
}

// Each calls f for every attempt, writer by writer in order of sequence.
func (l *Log) Each(f func(Attempt, Outcome)) {
	for w := range l.parts {
		p := &l.parts[w]
		p.mu.Lock()
		out := p.out
		p.mu.Unlock()
		for i := range out {
			p.mu.Lock()
			o := p.out[i]
			p.mu.Unlock()
			f(Attempt{w, int64(i + 1)}, o)
		}
	}
}

// Counts sums the log up. Pending attempts count as unknown.
func (l *Log) Counts() Counts {
	var c Counts
	l.Each(func(_ Attempt, o Outcome) { c = c.with(o) })
	return c
}

// maxWriters bounds the writers of one log.
const maxWriters = 4096
