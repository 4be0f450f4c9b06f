package raftlog

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/mysql/gtid"
)

// Report is what Verify found. It is as complete as the log was readable.
type Report struct {
	Dir               string          `json:"dir"`
	Cluster           uint64          `json:"cluster"`
	Node              uint64          `json:"node"`
	Term              uint64          `json:"term"`
	Vote              uint64          `json:"vote"`
	Commit            uint64          `json:"commit"`  // as last written, which is lazily
	Durable           uint64          `json:"durable"` // the watermark: nothing at or below it may be missing
	First             uint64          `json:"first"`
	Last              uint64          `json:"last"`
	LastTerm          uint64          `json:"last_term"`
	Entries           uint64          `json:"entries"`
	GTIDs             gtid.Set        `json:"gtids"`
	ConfStateIndex    uint64          `json:"conf_state_index"`
	Voters            []uint64        `json:"voters"`
	Learners          []uint64        `json:"learners"`
	OpenTransactionAt uint64          `json:"open_transaction_at"` // 0: the log ends between transactions
	Segments          []SegmentReport `json:"segments"`
}

// SegmentReport describes one segment.
type SegmentReport struct {
	File  string `json:"file"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Bytes int64  `json:"bytes"`
	// TornBytes come after the last whole entry of the last segment, were never fsynced, and are cut at the next start.
	TornBytes int64 `json:"torn_bytes"`
	// Key is the id of the key that it is encrypted with; "": it is not.
	Key string `json:"key,omitempty"`
}

// EntryInfo is one entry as Walk found it. Events and Data live until the function it is given to returns.
type EntryInfo struct {
	File                 string
	Offset               int64 // of the entry's header event in File
	Index, Term, Durable uint64
	Type                 raftpb.EntryType
	CRC                  uint32
	Meta                 *Meta // nil when the entry has none
	Events               []byte
	// Data is what an entry without Meta holds.
	Data []byte
	// Aborts: the segment ends an unfinished transaction in front of this Barrier.
	Aborts bool
	Bytes  int // in the segment
}

// Verify reads a whole log, every byte of it, and makes all checks of Open and of readers. It changes nothing and needs
// neither mysqld nor a stopped node; of a running node it sees the state at some moment. fsys is the operating system's
// when nil. keys are those of encrypted segments. The error is ErrCorrupt, ErrNewer, ErrKey or the file system's.
func Verify(fsys FS, dir string, keys *Keys) (*Report, error) {
	r := &Report{Dir: dir}
	err := walk(fsys, dir, keys, r, func(*EntryInfo) error { return nil })
	return r, err
}

// Walk calls fn for every entry of a log, like Verify, until fn fails; it returns fn's error.
func Walk(fsys FS, dir string, keys *Keys, fn func(*EntryInfo) error) error {
	return walk(fsys, dir, keys, &Report{Dir: dir}, fn)
}

func walk(fsys FS, dir string, keys *Keys, r *Report, fn func(*EntryInfo) error) error {
	if fsys == nil {
		fsys = OSFS{}
	}
	sf, err := openState(fsys.OpenRead, dir+"/"+stateName)
	if err != nil {
		return fmt.Errorf("raftlog: %s holds no log: %w", dir, err)
	}
	defer sf.f.Close()
	st := &sf.state
	r.Cluster, r.Node, r.Term, r.Vote, r.Commit, r.Durable = st.cluster, st.node, st.term, st.vote, st.commit, st.durable
	r.ConfStateIndex, r.First, r.Last = st.confIndex, st.first, st.first-1
	conf, err := st.confState()
	if err != nil {
		return err
	}
	r.Voters, r.Learners = conf.GetVoters(), conf.GetLearners()
	if st.resetting {
		return fmt.Errorf("raftlog: %s was left in the middle of a reset to a snapshot, which the next start completes", dir)
	}
	segs, err := openSegments(fsys, fsys.OpenRead, dir, st, keys)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range segs {
			s.release()
		}
	}()
	r.GTIDs = segs[0].head.ledger.gtids.Clone()
	for i, s := range segs {
		var next *segmentHead
		if i+1 < len(segs) {
			next = &segs[i+1].head
		}
		if err := r.walkSegment(s, next, fn); err != nil {
			return err
		}
		if next != nil && !r.GTIDs.Equal(next.ledger.gtids) {
			return fmt.Errorf("%w: the GTIDs of all entries up to index %d are not those in the header of the segment after it",
				ErrCorrupt, r.Last)
		}
	}
	return nil
}

// walkSegment reads one segment and adds it to the report. next is the header of the following segment, nil if there is
// none.
func (r *Report) walkSegment(s *segment, next *segmentHead, fn func(*EntryInfo) error) error {
	led := s.head.ledger.clone()
	sc, err := s.read(next, r.Durable, func(rec *record, at int64) error {
		info := EntryInfo{
			File: s.name, Offset: at, Index: rec.index, Term: rec.term, Durable: rec.durable, Type: rec.raftType, CRC: rec.crc,
			Aborts: len(rec.prefix) > 0, Bytes: rec.size, Data: rec.inline,
		}
		var m Meta
		if events, err := led.take(&m, rec); err == nil && m.Kind != 0 {
			info.Meta, info.Events, info.Data = &m, events, nil
		}
		err := fn(&info)
		if err == nil {
			r.Entries++
		}
		return err
	})
	rep := SegmentReport{File: s.name, First: s.first(), Last: sc.prev.index, Bytes: sc.off, Key: s.keyID}
	if sc.torn != nil {
		rep.TornBytes = sc.size - sc.off
	}
	r.Segments = append(r.Segments, rep)
	r.Last, r.LastTerm, r.Durable = sc.prev.index, sc.prev.term, sc.synced
	r.GTIDs, r.OpenTransactionAt = led.gtids, led.open
	return err
}
