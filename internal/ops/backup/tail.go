package backup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// position is where a reader of the log has come to: what follows from all entries up to index.
type position struct {
	index, term uint64
	gtids       gtid.Set
	fde         []byte // of the newest barrier
	open        uint64 // first entry of a transaction that has not ended; 0: none
	node        uint16 // of the newest entry with events, with incarnation
	incarnation uint64
}

// take takes the next entry in, as the log itself does.
func (p *position) take(e *Entry) error {
	p.index, p.term = e.Index, e.Term
	if e.Type != raftpb.EntryNormal || len(e.Data) == 0 {
		return nil
	}
	m, events, err := raftlog.DecodeMeta(e.Data)
	if err != nil {
		return undecoded(e.Index, err)
	}
	switch m.Kind {
	case raftlog.Barrier:
		if m.Node != p.node || m.Incarnation != p.incarnation {
			p.open = 0
		}
		p.fde = slices.Clone(events)
	case raftlog.Trx:
		switch {
		case m.Flags&raftlog.FlagUnfinished == 0:
			p.open = 0
		case m.Flags&raftlog.FlagContinues == 0 || p.open == 0:
			p.open = e.Index
		}
	default:
		return nil
	}
	for _, r := range m.GTIDs {
		p.gtids.AddRange(r)
	}
	p.node, p.incarnation = m.Node, m.Incarnation
	return nil
}

// undecoded is an entry of the log that this program cannot read.
func undecoded(index uint64, err error) error {
	if errors.Is(err, raftlog.ErrMetaVersion) {
		return fmt.Errorf("%w: entry %d of the log: %w: back up with the program that the daemon runs", ErrNewer, index, err)
	}
	return fmt.Errorf("%w: entry %d of the log: %w", ErrCorrupt, index, err)
}

// tail reads a node's raft log while its daemon runs, from some entry on and then what is added (docs/format/log.md).
// It must be asked only for entries that the node has applied: those are on disk and stay as they are.
type tail struct {
	dir    string
	keys   func() (*raftlog.Keys, error) // of encrypted segments, asked for at the beginning of each
	at     position
	crc    uint32 // of the chain
	f      *os.File
	sealed *raftlog.Sealed // nil: the segment is not encrypted
	off    int64
}

// Layout of our events in the log, after the event header; docs/format/log.md.
const (
	logMagic      = "TRIL"
	logEntryType  = 2
	logFillerType = 3
	logSealedType = 4
	offHeadCRC    = 48
	offHeadOpen   = 56
	offHeadNode   = 90
	offHeadInc    = 96

	offRecType   = 5
	offRaftType  = 6
	offIndex     = 8
	offTerm      = 16
	offPrefix    = 32
	offEvents    = 36
	offInline    = 40
	recordFixed  = 44
	maxHeadBytes = 64 << 20
)

// openTail begins to read at the newest segment of the log that begins at or below entry from, and not within a
// transaction; the caller skips what it does not need. The error is ErrPurged when the log begins above.
func openTail(dir string, keys func() (*raftlog.Keys, error), from uint64) (*tail, error) {
	firsts, err := logSegments(dir)
	if err != nil {
		return nil, err
	}
	for i := len(firsts) - 1; i >= 0; i-- {
		if firsts[i] > from {
			continue
		}
		t := &tail{dir: dir, keys: keys}
		err := t.begin(firsts[i])
		if err == nil && t.at.open == 0 {
			return t, nil
		}
		t.close()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just been purged
		}
		if err != nil {
			return nil, err
		}
	}
	if len(firsts) == 0 {
		return nil, fmt.Errorf("%w: %s holds no log", ErrPurged, dir)
	}
	return nil, fmt.Errorf("%w: entry %d, the log in %s begins at %d", ErrPurged, from, dir, firsts[0])
}

// logSegments lists the first indexes of a log's segments.
func logSegments(dir string) ([]uint64, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("backup: the node's log: %w", err)
	}
	var firsts []uint64
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".log")
		if first, err := strconv.ParseUint(name, 16, 64); ok && err == nil && len(name) == 16 {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

func (t *tail) close() {
	if t.f != nil {
		_ = t.f.Close()
		t.f = nil
	}
}

// begin opens a segment and takes its header for what is known of the entries before it.
func (t *tail) begin(first uint64) error {
	f, err := os.Open(filepath.Join(t.dir, fmt.Sprintf("%016x.log", first)))
	if err != nil {
		return err
	}
	before := *t
	t.f, t.off, t.sealed = f, 0, nil
	head, err := t.head()
	if err != nil { // its key may be there the next time
		t.close()
		*t = before
		return err
	}
	before.close()
	b, err := raftlog.DecodeBoundary(head) // checks all of it
	if err != nil {
		return t.corrupt(err)
	}
	var body []byte
	for rest := head[len(binlog.Magic):]; len(rest) > 0; { // the last of FORMAT_DESCRIPTION, PREVIOUS_GTIDS, our header
		var ev []byte
		if _, ev, rest, err = binlog.Cut(rest); err != nil {
			return t.corrupt(err)
		}
		body = binlog.Body(ev)
	}
	if b.Index+1 != first {
		return t.corrupt(fmt.Errorf("it begins at entry %d", b.Index+1))
	}
	le := binary.LittleEndian
	t.crc = le.Uint32(body[offHeadCRC:])
	t.at = position{index: b.Index, term: b.Term, gtids: b.GTIDs, fde: b.Barrier.FDE, open: le.Uint64(body[offHeadOpen:]),
		node: le.Uint16(body[offHeadNode:]), incarnation: le.Uint64(body[offHeadInc:])}
	return nil
}

// head reads what the segment begins with, and moves past it.
func (t *tail) head() ([]byte, error) {
	magic := make([]byte, len(binlog.Magic))
	if _, err := t.f.ReadAt(magic, 0); err != nil {
		return nil, t.corrupt(err)
	}
	if raftlog.IsSealed(magic) {
		return t.unseal()
	}
	t.off = int64(len(magic))
	for range 3 {
		ev, err := t.event(maxHeadBytes)
		if err != nil {
			return nil, t.corrupt(err)
		}
		t.off += int64(len(ev))
	}
	head := make([]byte, t.off)
	if _, err := t.f.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("backup: read %s: %w", t.f.Name(), err)
	}
	return head, nil
}

// unseal is head for an encrypted segment.
func (t *tail) unseal() (head []byte, err error) {
	keys, err := t.keys()
	if err != nil {
		return nil, fmt.Errorf("backup: the node's log: %w", err)
	}
	st, err := t.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("backup: the node's log: %w", err)
	}
	if t.sealed, head, t.off, err = raftlog.OpenSealed(t.f, st.Size(), keys); errors.Is(err, raftlog.ErrKey) ||
		errors.Is(err, raftlog.ErrNewer) {
		return nil, fmt.Errorf("backup: the node's log, %s: %w", t.f.Name(), err)
	} else if err != nil {
		return nil, t.corrupt(err)
	}
	return head, nil
}

// errNoMore: nothing was written here yet.
var errNoMore = errors.New("no more events")

// event reads the event at t.off. The error is errNoMore after the last one.
func (t *tail) event(limit uint32) ([]byte, error) {
	var head [binlog.HeaderLen + offRaftType]byte
	if n, err := t.f.ReadAt(head[:], t.off); err != nil {
		if errors.Is(err, io.EOF) && n == 0 {
			return nil, errNoMore
		}
		return nil, err
	}
	body := head[binlog.HeaderLen:]
	if head == [len(head)]byte{} || string(body[:len(logMagic)]) == logMagic && body[offRecType] == logFillerType {
		return nil, errNoMore
	}
	h, err := binlog.ParseHeader(head[:])
	if err != nil {
		return nil, err
	}
	if h.EventSize > limit {
		return nil, fmt.Errorf("an event of %d bytes", h.EventSize)
	}
	ev := make([]byte, h.EventSize)
	if _, err := t.f.ReadAt(ev, t.off); err != nil {
		return nil, err
	}
	return ev, nil
}

func (t *tail) corrupt(err error) error {
	return fmt.Errorf("%w: the node's log, %s at %d: %w; see `trireme log verify`", ErrCorrupt, t.f.Name(), t.off, err)
}

// next returns the entry after t.at; nil when it is not there. upTo is the highest index that may be read.
func (t *tail) next(upTo uint64) (*Entry, error) {
	if t.at.index >= upTo {
		return nil, nil
	}
	e, err := t.record()
	if errors.Is(err, errNoMore) {
		if err := t.begin(t.at.index + 1); err != nil {
			return nil, t.lost(err)
		}
		e, err = t.record()
	}
	if errors.Is(err, errNoMore) {
		return nil, t.corrupt(fmt.Errorf("entry %d was applied and is not there", t.at.index+1))
	}
	if err != nil {
		return nil, err
	}
	if err := t.at.take(e); err != nil {
		return nil, err
	}
	return e, nil
}

// lost tells a log that was purged, or begun again, from one that is damaged.
func (t *tail) lost(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	firsts, lerr := logSegments(t.dir)
	if lerr != nil {
		return lerr
	}
	if len(firsts) > 0 && firsts[0] > t.at.index+1 {
		return fmt.Errorf("%w: entry %d, the log in %s begins at %d", ErrPurged, t.at.index+1, t.dir, firsts[0])
	}
	return t.corrupt(fmt.Errorf("entry %d is not there", t.at.index+1))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record reads the record at t.off, which must be the next one after t.at.
func (t *tail) record() (*Entry, error) {
	ev, err := t.event(binlog.MaxEventSize)
	if err != nil {
		if errors.Is(err, errNoMore) {
			return nil, err
		}
		return nil, t.corrupt(err)
	}
	le := binary.LittleEndian
	body, typ := binlog.Body(ev), byte(logEntryType)
	if t.sealed != nil {
		typ = logSealedType
	}
	if binlog.EventType(ev[4]) != binlog.TypeIgnorable || len(body) < recordFixed+4 || string(body[:4]) != logMagic ||
		body[offRecType] != typ {
		return nil, t.corrupt(errors.New("no record"))
	}
	if err := binlog.VerifyChecksum(ev); err != nil {
		return nil, t.corrupt(err)
	}
	n := len(body) - recordFixed - 4
	if int(le.Uint32(body[offInline:])) != n {
		return nil, t.corrupt(fmt.Errorf("a record of %d bytes", len(body)))
	}
	prefix, events := int64(le.Uint32(body[offPrefix:])), int64(le.Uint32(body[offEvents:]))
	rest := make([]byte, prefix+events)
	if _, err := t.f.ReadAt(rest, t.off+int64(len(ev))); err != nil {
		return nil, t.corrupt(err)
	}
	crc := crc32.Update(crc32.Update(t.crc, castagnoli, body[:recordFixed+n]), castagnoli, rest)
	e := &Entry{Index: le.Uint64(body[offIndex:]), Term: le.Uint64(body[offTerm:]),
		Type: raftpb.EntryType(body[offRaftType])}
	if crc != le.Uint32(body[recordFixed+n:]) || e.Index != t.at.index+1 || e.Term < t.at.term {
		return nil, t.corrupt(fmt.Errorf("entry %d term %d does not follow entry %d term %d", e.Index, e.Term, t.at.index,
			t.at.term))
	}
	if t.sealed == nil {
		e.Data = slices.Concat(body[recordFixed:recordFixed+n], rest[prefix:])
	} else if e.Data, err = t.sealed.Data(body[:recordFixed+n], rest); err != nil {
		return nil, t.corrupt(err)
	}
	t.crc, t.off = crc, t.off+int64(len(ev))+int64(len(rest))
	return e, nil
}
