package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Entry is one committed entry of the raft log. Data is what raft has: meta | events for a normal one.
type Entry struct {
	Index, Term uint64
	Type        raftpb.EntryType
	Data        []byte
}

// Segment describes an archived piece of the log. It is the head of its object, sealed; the entries follow, compressed.
type Segment struct {
	Version   int    `json:"version"`
	Cluster   string `json:"cluster"`
	ClusterID uint64 `json:"cluster_id"`
	First     uint64 `json:"first"` // indexes of the entries
	Last      uint64 `json:"last"`
	PrevTerm  uint64 `json:"prev_term"` // of the entry before First
	LastTerm  uint64 `json:"last_term"`
	// Begins: no segment goes before this one. The log below was purged before it could be archived, or the archive
	// begins here.
	Begins bool `json:"begins,omitempty"`
	// Before are all GTIDs of the log below First, GTIDs those of the transactions that end in the segment.
	Before gtid.Set `json:"before"`
	GTIDs  gtid.Set `json:"gtids"`
	// FDE is the FORMAT_DESCRIPTION event in force at First; none before the first barrier.
	FDE []byte `json:"fde,omitempty"`
	// Open is the index of the first entry of a transaction that is under way at First; 0: none is.
	Open uint64 `json:"open,omitempty"`
	// Oldest and Newest are the commit times of the transactions that begin in the segment; zero when none does.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// Voids are the marks of all decisions about transactions in cluster settings in the segment (config.Void).
	Voids  []string `json:"voids,omitempty"`
	Raw    int64    `json:"raw_bytes"` // of the entries
	Bytes  int64    `json:"bytes"`     // of what follows the head
	SHA256 string   `json:"sha256"`    // of what follows the head
}

// Name of the segment's object.
func (s *Segment) Name() string {
	return fmt.Sprintf("%s%016x-%016x%s", logPrefix, s.First, s.Last, segmentSuffix)
}

// boundary is what precedes the segment.
func (s *Segment) boundary() raftlog.Boundary {
	return raftlog.Boundary{Index: s.First - 1, Term: s.PrevTerm, GTIDs: s.Before,
		Barrier: raftlog.BarrierInfo{FDE: s.FDE}, Open: s.Open}
}

const (
	logPrefix     = "log/"
	segmentSuffix = ".seg"
)

// isSegment reports whether an object is one, by its name.
func isSegment(name string) bool {
	return strings.HasPrefix(name, logPrefix) && strings.HasSuffix(name, segmentSuffix)
}

// An entry in a segment: index u64, term u64, type u8, length u32, data; little-endian.
const entryHead = 8 + 8 + 1 + 4

// segmentWriter gathers entries of one segment.
type segmentWriter struct {
	Segment
	buf   bytes.Buffer
	enc   *zstd.Encoder
	ended bool // nothing is added any more
}

// newSegmentWriter begins a segment after the entries that at knows.
func newSegmentWriter(id clusterID, at raftlog.Boundary, begins bool) (*segmentWriter, error) {
	w := &segmentWriter{Segment: Segment{Version: formatVersion, Cluster: id.Name, ClusterID: id.ID, First: at.Index + 1,
		Last: at.Index, PrevTerm: at.Term, LastTerm: at.Term, Begins: begins, Before: at.GTIDs.Clone(),
		FDE: at.Barrier.FDE, Open: at.Open}}
	var err error
	w.enc, err = zstd.NewWriter(&w.buf, zstd.WithEncoderConcurrency(1))
	return w, err
}

// add takes the next entry.
func (w *segmentWriter) add(e *Entry) error {
	if e.Index != w.Last+1 || e.Term < w.LastTerm {
		return fmt.Errorf("backup: entry %d term %d follows entry %d term %d", e.Index, e.Term, w.Last, w.LastTerm)
	}
	if e.Type == raftpb.EntryNormal && len(e.Data) > 0 {
		if err := w.describe(e.Data); err != nil {
			return logError(fmt.Errorf("%w: entry %d: %w", raftlog.ErrCorrupt, e.Index, err))
		}
	}
	var head [entryHead]byte
	le := binary.LittleEndian
	le.PutUint64(head[0:], e.Index)
	le.PutUint64(head[8:], e.Term)
	head[16] = byte(e.Type)
	le.PutUint32(head[17:], uint32(len(e.Data)))
	if _, err := w.enc.Write(head[:]); err != nil {
		return err
	}
	if _, err := w.enc.Write(e.Data); err != nil {
		return err
	}
	w.Last, w.LastTerm = e.Index, e.Term
	w.Raw += int64(entryHead + len(e.Data))
	return nil
}

// describe takes an entry into the head.
func (w *segmentWriter) describe(data []byte) error {
	m, events, err := raftlog.DecodeMeta(data)
	if err != nil {
		return err
	}
	for _, r := range m.GTIDs {
		w.GTIDs.AddRange(r)
	}
	switch m.Kind {
	case raftlog.Settings:
		return w.settings(events)
	case raftlog.Trx:
		return eachStart(events, func(_ int, g binlog.GTIDEvent) bool { w.mark(commitTime(g)); return true })
	}
	return nil
}

// settings takes cluster settings. Of a newer version only what is needed has to be readable.
func (w *segmentWriter) settings(data []byte) error {
	var c struct {
		Voids []config.Void `json:"voids"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	for _, v := range c.Voids {
		if !slices.Contains(w.Voids, v.Mark()) {
			w.Voids = append(w.Voids, v.Mark())
		}
	}
	return nil
}

func (w *segmentWriter) mark(t time.Time) {
	if w.Oldest.IsZero() || t.Before(w.Oldest) {
		w.Oldest = t
	}
	if t.After(w.Newest) {
		w.Newest = t
	}
}

// put ends the segment and stores it. After an error it can be tried again.
func (w *segmentWriter) put(s Store) error {
	if !w.ended {
		if err := w.enc.Close(); err != nil {
			return err
		}
		w.ended = true
	}
	w.Bytes = int64(w.buf.Len())
	sum := sha256.Sum256(w.buf.Bytes())
	w.SHA256 = hex.EncodeToString(sum[:])
	head, err := seal(&w.Segment)
	if err != nil {
		return err
	}
	return s.Put(w.Name(), func(to io.Writer) error {
		if _, err := to.Write(head); err != nil {
			return err
		}
		_, err := to.Write(w.buf.Bytes())
		return err
	})
}

// commitTime is when the transaction was committed where it was written.
func commitTime(g binlog.GTIDEvent) time.Time { return time.UnixMicro(int64(g.ImmediateCommit)).UTC() }

// eachStart calls f with the offset of each GTID event among events, until f returns false.
func eachStart(events []byte, f func(offset int, g binlog.GTIDEvent) bool) error {
	for off := 0; off < len(events); {
		h, ev, _, err := binlog.Cut(events[off:])
		if err != nil {
			return fmt.Errorf("event at offset %d: %w", off, err)
		}
		if h.Type.StartsTransaction() {
			g, err := binlog.ParseGTID(ev)
			if err != nil {
				return fmt.Errorf("event at offset %d: %w", off, err)
			}
			if !f(off, g) {
				return nil
			}
		}
		off += len(ev)
	}
	return nil
}

// readHead reads the head of a segment's object.
func readHead(s Store, name string) (Segment, error) {
	f, err := s.Open(name)
	if err != nil {
		return Segment{}, err
	}
	defer func() { _ = f.Close() }()
	return headOf(bufio.NewReader(f), name)
}

func headOf(r *bufio.Reader, name string) (Segment, error) {
	var seg Segment
	if err := unseal(r, name, &seg); err != nil {
		return seg, err
	}
	if seg.First == 0 || seg.Last < seg.First || seg.Name() != name || seg.Bytes < 0 || seg.Bytes > maxSegment {
		return seg, fmt.Errorf("%w: %s says that it is %s with %d bytes", ErrCorrupt, name, seg.Name(), seg.Bytes)
	}
	return seg, nil
}

// maxSegment bounds a segment: one entry of the largest size that a log takes, and what is gathered before it.
const maxSegment = 2 << 30

// readSegment reads a segment, checks every byte of it, and gives its entries to f, until that fails. Data lives as
// long as the caller keeps it.
func readSegment(s Store, name string, f func(Entry) error) (Segment, error) {
	file, err := s.Open(name)
	if err != nil {
		return Segment{}, err
	}
	defer func() { _ = file.Close() }()
	r := bufio.NewReaderSize(file, 1<<20)
	seg, err := headOf(r, name)
	if err != nil {
		return seg, err
	}
	packed, err := io.ReadAll(io.LimitReader(r, seg.Bytes+1))
	if err != nil {
		return seg, fmt.Errorf("backup: read %s: %w", name, err)
	}
	if sum := sha256.Sum256(packed); int64(len(packed)) != seg.Bytes || hex.EncodeToString(sum[:]) != seg.SHA256 {
		return seg,
			fmt.Errorf("%w: %s: the checksum of its %d bytes does not fit, or they are not the %d that it should have",
				ErrCorrupt, name,
				len(packed), seg.Bytes)
	}
	dec, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return seg, err
	}
	defer dec.Close()
	return seg, seg.entries(name, bufio.NewReaderSize(dec, 64<<10), f)
}

// readN reads n bytes; memory is taken as they come, whatever n says.
func readN(r io.Reader, n int64) ([]byte, error) {
	const atOnce = 1 << 20
	if n <= atOnce {
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r, n)
	return b.Bytes(), err
}

// maxWindow bounds what a decompressor remembers; ours writes windows of 8 MiB.
const maxWindow = 64 << 20

// entries decodes what follows the head.
func (s *Segment) entries(name string, r io.Reader, f func(Entry) error) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrCorrupt, name, fmt.Sprintf(format, args...))
	}
	le := binary.LittleEndian
	left, term := s.Raw, s.PrevTerm
	for index := s.First; index <= s.Last; index++ {
		var head [entryHead]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return bad("it ends before entry %d: %v", index, err)
		}
		e := Entry{Index: le.Uint64(head[0:]), Term: le.Uint64(head[8:]), Type: raftpb.EntryType(head[16])}
		n := int64(le.Uint32(head[17:]))
		if left -= entryHead + n; e.Index != index || e.Term < term || left < 0 {
			return bad("entry %d term %d of %d bytes where entry %d was expected", e.Index, e.Term, n, index)
		}
		term = e.Term
		var err error
		if e.Data, err = readN(r, n); err != nil {
			return bad("it ends within entry %d: %v", index, err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || left != 0 || term != s.LastTerm {
		return bad("its entries are not what its head says")
	}
	return nil
}
