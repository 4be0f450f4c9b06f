package verify

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
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
// call at any time. With a path the log is also a text file of lines `A|K|U|F writer seq` (attempted, acked, unknown,
// failed), in the order in which things happened to each writer.
type Log struct {
	parts []logPart

	fileMu sync.Mutex
	file   *os.File
	buf    *bufio.Writer
}

type logPart struct {
	mu  sync.Mutex
	out []Outcome // index seq-1
	_   [64]byte  // writers do not share a cache line
}

// NewLog makes an empty log for writers numbered from 0. An empty path keeps it in memory only.
func NewLog(path string, writers int) (*Log, error) {
	l := &Log{parts: make([]logPart, writers)}
	if path == "" {
		return l, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("client log: %w", err)
	}
	l.file, l.buf = f, bufio.NewWriterSize(f, 1<<16)
	return l, nil
}

// Begin records a new attempt of a writer, before anything is sent, and returns its sequence number.
func (l *Log) Begin(writer int) int64 {
	p := &l.parts[writer]
	p.mu.Lock()
	p.out = append(p.out, Pending)
	seq := int64(len(p.out))
	p.mu.Unlock()
	l.line('A', writer, seq)
	return seq
}

// Settle records the outcome of an attempt, once.
func (l *Log) Settle(writer int, seq int64, o Outcome) {
	p := &l.parts[writer]
	p.mu.Lock()
	if p.out[seq-1] != Pending {
		p.mu.Unlock()
		panic(fmt.Sprintf("verify: attempt %d/%d settled twice", writer, seq))
	}
	p.out[seq-1] = o
	p.mu.Unlock()
	l.line("?KUF"[o], writer, seq)
}

func (l *Log) line(what byte, writer int, seq int64) {
	if l.buf == nil {
		return
	}
	l.fileMu.Lock()
	fmt.Fprintf(l.buf, "%c %d %d\n", what, writer, seq)
	l.fileMu.Unlock()
}

// Writers is the number of writers that the log was made for.
func (l *Log) Writers() int { return len(l.parts) }

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

// Flush writes buffered lines to the file.
func (l *Log) Flush() error {
	if l.buf == nil {
		return nil
	}
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	return l.buf.Flush()
}

// Close flushes and closes the file. The log stays readable in memory.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return errors.Join(l.Flush(), l.file.Close())
}

// ReadLog loads a log file, for a check after the process that wrote it has ended.
func ReadLog(path string) (*Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &Log{}
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		if err := l.replay(sc.Text()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return l, sc.Err()
}

func (l *Log) replay(line string) error {
	var what byte
	var writer int
	var seq int64
	if _, err := fmt.Sscanf(line, "%c %d %d", &what, &writer, &seq); err != nil {
		return fmt.Errorf("%q is not `A|K|U|F writer seq`", line)
	}
	if writer < 0 || writer > maxWriters {
		return fmt.Errorf("writer %d out of range", writer)
	}
	for len(l.parts) <= writer {
		l.parts = append(l.parts, logPart{})
	}
	p := &l.parts[writer]
	if what == 'A' {
		if seq != int64(len(p.out))+1 {
			return fmt.Errorf("attempt %d of writer %d does not follow %d", seq, writer, len(p.out))
		}
		p.out = append(p.out, Pending)
		return nil
	}
	o := strings.IndexByte("?KUF", what)
	if o < 1 || seq < 1 || seq > int64(len(p.out)) || p.out[seq-1] != Pending {
		return fmt.Errorf("%q settles nothing", line)
	}
	p.out[seq-1] = Outcome(o)
	return nil
}

// maxWriters bounds the writers of one log.
const maxWriters = 4096
