package raftlog

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"

	"trireme/internal/mysql/binlog"
)

const (
	segmentSuffix = ".log"
	indexSuffix   = ".idx"
	newSuffix     = ".new"
	stateName     = "state"
	lockName      = "lock"
)

func segmentName(first uint64) string { return fmt.Sprintf("%016x%s", first, segmentSuffix) }

// parseSegmentName returns the first index in a segment's name.
func parseSegmentName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	first, err := strconv.ParseUint(hex, 16, 64)
	return first, err == nil && first > 0 && segmentName(first) == name
}

// slot is where an entry's record begins in its segment, and the record's chain CRC.
type slot struct{ off, crc uint32 }

// termRun says that entries from index on have this term.
type termRun struct{ index, term uint64 }

// content is what the records of a segment are found by. slots is nil in a closed segment whose index is not loaded.
type content struct {
	last  uint64 // first-1 when empty
	end   int64  // bytes up to the end of the last record
	terms []termRun
	slots []slot
}

// add takes the next record, which is at an offset.
func (c *content) add(rec *record, at int64) {
	c.addTerm(rec.index, rec.term)
	c.slots = append(c.slots, slot{uint32(at), rec.crc})
	c.last, c.end = rec.index, at+int64(rec.size)
}

func (c *content) addTerm(index, term uint64) {
	if n := len(c.terms); n == 0 || c.terms[n-1].term != term {
		c.terms = append(c.terms, termRun{index, term})
	}
}

// segment is one file of the log. Its content changes only in the last segment, or when it is closed, under Log.mu.
type segment struct {
	name     string // file name in the directory
	path     string
	f        File
	head     segmentHead
	headSize int64
	sealing
	refs atomic.Int32 // 1 for being in the log, 1 for each reader

	content
	used    uint64 // Log.idxClock at the last use of slots
	indexed bool   // closed, and its index file has been written
}

func newSegment(dir string, f File, head segmentHead, seal sealing, headSize int) *segment {
	name := segmentName(head.first)
	s := &segment{name: name, path: filepath.Join(dir, name), f: f, head: head, headSize: int64(headSize), sealing: seal,
		content: content{last: head.first - 1, end: int64(headSize)}}
	s.refs.Store(1)
	return s
}

func (s *segment) acquire() { s.refs.Add(1) }

// release gives back a reference; the last one closes the file.
func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		s.f.Close()
	}
}

func (s *segment) first() uint64 { return s.head.first }

// term returns the term of an entry of the segment.
func (s *segment) term(index uint64) uint64 {
	return s.terms[sort.Search(len(s.terms), func(i int) bool { return s.terms[i].index > index })-1].term
}

// readHead reads a segment's header and returns its size. An error other than ErrNewer, ErrKey and errBadHead is the
// file system's.
func readHead(f File, keys *Keys) (h segmentHead, seal sealing, used int, err error) {
	size, err := f.Size()
	if err != nil {
		return h, seal, 0, err
	}
	for want := int64(64 << 10); ; want *= 4 {
		b := make([]byte, min(want, size))
		if _, err := f.ReadAt(b, 0); err != nil {
			return h, seal, 0, err
		}
		if isSealed(b) {
			h, seal, used, err = openHead(b, keys)
		} else {
			h, used, err = parseHead(b)
		}
		if err != errShortRecord {
			return h, seal, used, err
		}
		if n := int64(len(b)); n == size || n >= maxHeadBytes {
			return h, seal, 0, fmt.Errorf("%w: it does not end within %d bytes", errBadHead, n)
		}
	}
}

// scanner reads the records of a segment one after the other, verifying the chain.
type scanner struct {
	f    File
	aead cipher.AEAD // nil: the segment is not encrypted
	prev chain
	off  int64 // of the record that next returns
	size int64 // of the file when the scan began
	buf  []byte
	lo   int // buf[lo:] is what lies at off

	synced uint64 // an index that is known to have been fsynced
	torn   error  // why what read found at off, never fsynced, is no record
}

const scanBlock = 1 << 20

// scan reads s up to size.
func (s *segment) scan(size int64) *scanner {
	return &scanner{f: s.f, aead: s.aead, prev: s.head.prev(), off: s.headSize, size: size}
}

// read calls fn for each record of s, verifying the chain. next is the header of the segment that follows, nil for the
// last one, which may end in a torn write above what is known to have been fsynced: synced, and what the segment says.
// The scanner stands where the records end, or where the error is: ErrCorrupt, ErrNewer, fn's or the file system's.
func (s *segment) read(next *segmentHead, synced uint64, fn func(rec *record, at int64) error) (*scanner, error) {
	size, err := s.f.Size()
	sc := s.scan(size)
	sc.synced = max(synced, s.head.durable, s.first()-1)
	for err == nil && (next == nil || sc.prev.index+1 < next.first) { // what comes after it was cut once
		var rec record
		var at int64
		if rec, at, err = sc.next(); err == io.EOF {
			err = nil
			break
		}
		if errors.Is(err, errBadRecord) {
			index := sc.prev.index + 1
			if next == nil {
				durable, later := sc.later(index)
				if later != nil {
					return sc, later
				}
				if max(sc.synced, durable) < index {
					sc.torn, err = err, nil
					break
				}
			}
			return sc, corruptAt(s, at, index, err)
		}
		if err != nil {
			return sc, fmt.Errorf("%s, offset %d: %w", s.path, at, err)
		}
		sc.synced = max(sc.synced, rec.durable)
		err = fn(&rec, at)
	}
	switch {
	case err != nil:
		return sc, err
	case next != nil && sc.prev != next.prev():
		return sc, fmt.Errorf(
			"%w: %s ends at index %d term %d, the segment after it begins after index %d term %d: a segment is missing or "+
				"damaged; this node must rejoin under a new id", ErrCorrupt, s.path, sc.prev.index, sc.prev.term, next.first-1,
			next.prevTerm)
	case next == nil && sc.prev.index < sc.synced:
		return sc, fmt.Errorf(
			"%w: %s ends at index %d, but index %d had been fsynced: this node must rejoin under a new id", ErrCorrupt,
			s.path, sc.prev.index, sc.synced)
	}
	return sc, nil
}

// next returns the next record, whose slices live until the following call, and its offset. At the end of what was
// written the error is io.EOF; when the bytes there are no good record it wraps errBadRecord, or ErrNewer, and s.off
// says where.
func (s *scanner) next() (record, int64, error) {
	for {
		rec, err := decodeRecord(s.buf[s.lo:], s.prev)
		if err == nil {
			err = rec.open(s.aead)
		}
		switch {
		case err == nil:
			at := s.off
			s.prev = rec.chain()
			s.off += int64(rec.size)
			s.lo += rec.size
			return rec, at, nil
		case errors.Is(err, errBadRecord), errors.Is(err, ErrNewer):
			return record{}, s.off, err
		case err == errNoRecord && len(s.buf)-s.lo >= fillerHead:
			return record{}, s.off, io.EOF
		}
		if s.off+int64(len(s.buf)-s.lo) >= s.size {
			if err == errNoRecord {
				return record{}, s.off, io.EOF
			}
			return record{}, s.off, fmt.Errorf("%w: the file ends in the middle of it", errBadRecord)
		}
		if err := s.fill(rec.size); err != nil {
			return record{}, s.off, err
		}
	}
}

// fill reads more after what is buffered, so that at least need bytes or a whole block more are there.
func (s *scanner) fill(need int) error {
	have := len(s.buf) - s.lo
	from := s.off + int64(have)
	want := int64(max(have+scanBlock, need))
	want = min(want, s.size-s.off)
	buf := make([]byte, want)
	copy(buf, s.buf[s.lo:])
	n, err := s.f.ReadAt(buf[have:], from)
	if err == io.EOF { // a running node has cut the file since
		s.size = from + int64(n)
		buf, err = buf[:have+n], nil
	}
	if err != nil {
		return fmt.Errorf("read at %d: %w", from, err)
	}
	s.buf, s.lo = buf, 0
	return nil
}

// later looks after a bad record for well-formed records with an index above the given one, and returns the highest
// durable index that they name. It does not verify their data: the event checksum and the position in the header are
// enough to trust the header.
func (s *scanner) later(above uint64) (durable uint64, err error) {
	const overlap = 1 << 20 // an entry's header event is smaller than that unless it holds data, which has no place here
	buf := make([]byte, 2*overlap)
	for at := s.off + 1; at < s.size; at += overlap {
		n := min(int64(len(buf)), s.size-at)
		if _, err := s.f.ReadAt(buf[:n], at); err != nil {
			return 0, fmt.Errorf("read at %d: %w", at, err)
		}
		for b, off := buf[:n], at; ; {
			i := indexRecord(b)
			if i < 0 {
				break
			}
			var rec record
			size, err := recordHead(b[i:], &rec)
			if err == nil && rec.index > above && logPosOf(b[i:]) == uint32(off+int64(i+size)) {
				durable = max(durable, rec.durable)
			}
			b, off = b[i+1:], off+int64(i+1)
		}
	}
	return durable, nil
}

// indexRecord returns where in b the next record's event seems to begin, or -1.
func indexRecord(b []byte) int {
	mark := append([]byte(recordMagic), recordVersion)
	if len(b) < binlog.HeaderLen {
		return -1
	}
	return bytes.Index(b[binlog.HeaderLen:], mark)
}

func logPosOf(ev []byte) uint32 { return binary.LittleEndian.Uint32(ev[13:]) }
