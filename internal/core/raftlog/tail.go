package raftlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// Tail reads a log that another process may be writing, from some entry on and then what is added. It must be asked only
// for entries that the node has applied: those are on disk and stay as they are.
type Tail struct {
	dir  string
	keys func() (*Keys, error)
	seg  *segment
	sc   *scanner
	led  ledger
	upTo uint64 // what sc holds was read when entries up to this one were on disk
}

// OpenTail begins at the newest segment that begins at or below entry from, and not within a transaction; the caller
// skips what it does not need. keys is asked at the beginning of each encrypted segment. The errors are ErrPurged when
// the log begins above, those of Next, and that of keys.
func OpenTail(dir string, keys func() (*Keys, error), from uint64) (*Tail, error) {
	t := &Tail{dir: dir, keys: keys}
	firsts, err := segmentsFrom(OSFS{}, dir, 0)
	if err != nil {
		return nil, err
	}
	for _, first := range slices.Backward(firsts) {
		if first > from {
			continue
		}
		err := t.begin(first)
		if err == nil && t.led.open == 0 {
			return t, nil
		}
		if err != nil && !isNotExist(err) { // else it has just been purged
			t.Close()
			return nil, err
		}
	}
	t.Close()
	return nil, fmt.Errorf("%w: entry %d, the segments in %s begin at %d", ErrPurged, from, dir, firsts)
}

// begin opens a segment, whose header tells what is known of the entries before it. After an error t is what it was.
func (t *Tail) begin(first uint64) error {
	f, err := OSFS{}.OpenRead(filepath.Join(t.dir, segmentName(first)))
	if err != nil {
		return err
	}
	s, err := openSegment(t.dir, first, f, nil)
	if errors.Is(err, ErrKey) {
		var keys *Keys
		if keys, err = t.keys(); err == nil {
			s, err = openSegment(t.dir, first, f, keys)
		}
	}
	if err != nil {
		f.Close()
		return err
	}
	t.Close()
	t.seg, t.sc, t.led, t.upTo = s, s.scan(0), s.head.ledger.clone(), 0
	return nil
}

// At returns what follows from all entries that were read. Its GTIDs change with the following call of Next.
func (t *Tail) At() Boundary {
	return Boundary{t.sc.prev.index, t.sc.prev.term, t.led.gtids, t.led.barrier, t.led.open}
}

// Next returns the next entry, whose data live until the following call; nil when it lies above upTo. The errors are
// ErrPurged, ErrCorrupt, ErrNewer, ErrKey, ErrMeta, ErrMetaVersion, and the file system's.
func (t *Tail) Next(upTo uint64) (*raftpb.Entry, error) {
	index := t.sc.prev.index + 1
	if index > upTo {
		return nil, nil
	}
	rec, err := t.record(upTo)
	if err == io.EOF {
		if err := t.begin(index); err != nil {
			return nil, t.lost(index, err)
		}
		rec, err = t.record(upTo)
	}
	if err == io.EOF || errors.Is(err, errBadRecord) {
		return nil, corruptAt(t.seg, t.sc.off, index, err)
	}
	if err == nil {
		_, err = t.led.take(&Meta{}, &rec)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, index %d: %w", t.seg.path, index, err)
	}
	e := &raftpb.Entry{Index: &rec.index, Term: &rec.term, Data: rec.data()}
	if rec.raftType != raftpb.EntryNormal {
		e.Type = rec.raftType.Enum()
	}
	return e, nil
}

// record reads the next record of the segment. What was read ahead may have been written only after that.
func (t *Tail) record(upTo uint64) (rec record, err error) {
	if t.upTo != upTo {
		if t.sc.size, err = t.seg.f.Size(); err != nil {
			return rec, err
		}
		t.sc.buf, t.sc.lo, t.upTo = nil, 0, upTo
	}
	rec, _, err = t.sc.next()
	return rec, err
}

// lost tells a log that was purged, or begun again, from one that is damaged.
func (t *Tail) lost(index uint64, err error) error {
	if !isNotExist(err) {
		return err
	}
	firsts, lerr := segmentsFrom(OSFS{}, t.dir, 0)
	if lerr != nil {
		return lerr
	}
	if len(firsts) > 0 && firsts[0] > index {
		return fmt.Errorf("%w: entry %d, the log in %s begins at %d", ErrPurged, index, t.dir, firsts[0])
	}
	return fmt.Errorf("%w: entry %d is not there: %w", ErrCorrupt, index, err)
}

// Close releases what t holds.
func (t *Tail) Close() {
	if t.seg != nil {
		t.seg.release()
		t.seg = nil
	}
}
