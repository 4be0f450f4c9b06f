package raftlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/failpoint"
)

// Open opens the log in opts.Dir, or creates it if the directory is empty or missing. A torn tail is cut, but only
// above what is known to have been fsynced (S2). The errors are ErrLocked, ErrGone, ErrForeign, ErrNewer, ErrKey,
// ErrCorrupt, or the file system's.
func Open(opts Options) (*Log, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	l := &Log{opts: opts, fs: opts.FS, dir: opts.Dir, log: opts.Logger.With("node", opts.NodeID), nonce: newNonce()}
	l.cache.limit = opts.CacheBytes
	if err := l.fs.MkdirAll(l.dir); err != nil {
		return nil, fmt.Errorf("raftlog: make %s: %w", l.dir, err)
	}
	lock, err := l.fs.Lock(l.path(lockName))
	if err != nil {
		return nil, fmt.Errorf("raftlog: %w", err)
	}
	l.lock = lock
	if err := l.open(); err != nil {
		l.abandon()
		if errors.Is(err, ErrGone) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrForeign) || errors.Is(err, ErrNewer) ||
			errors.Is(err, ErrKey) {
			return nil, err
		}
		return nil, fmt.Errorf("raftlog: open %s: %w", l.dir, err)
	}
	return l, nil
}

// abandon closes all files after a failed open.
func (l *Log) abandon() {
	for _, s := range l.segs {
		s.release()
	}
	if l.state != nil {
		l.state.f.Close()
	}
	l.lock.Close()
}

func (l *Log) open() error {
	names, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	l.state, err = openState(l.fs.Open, l.path(stateName))
	switch {
	case isNotExist(err):
		err = l.create(names)
	case err == nil:
		if err = checkOwner(&l.state.state, &l.opts); err == nil && l.state.resetting {
			err = l.checkPrepared(names)
		} else if err == nil {
			l.segs, err = openSegments(l.fs, l.fs.Open, l.dir, &l.state.state, l.opts.Keys)
		}
		if err == nil { // nothing has been touched before
			err = l.state.rewrite()
		}
	}
	if err != nil {
		return err
	}
	if l.state.resetting {
		if err := l.finishReset(); err != nil {
			return err
		}
		if l.segs, err = openSegments(l.fs, l.fs.Open, l.dir, &l.state.state, l.opts.Keys); err != nil {
			return err
		}
	}
	for _, s := range l.segs {
		if s.head.cluster != l.opts.Cluster || s.head.node != l.opts.NodeID {
			return fmt.Errorf("%w: %s belongs to cluster %x node %d", ErrForeign, s.path, s.head.cluster, s.head.node)
		}
	}
	if err := l.removeRemains(); err != nil {
		return err
	}
	// an earlier life may have ended before its own SyncDir: the names seen here must stay
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	for i, s := range l.segs[:len(l.segs)-1] {
		if err := l.openClosed(s, &l.segs[i+1].head); err != nil {
			return err
		}
	}
	if err := l.recoverTail(); err != nil {
		return err
	}
	return l.adoptState()
}

func checkOwner(s *state, o *Options) error {
	if s.cluster != o.Cluster {
		return fmt.Errorf("%w: %s belongs to cluster %x, not %x", ErrForeign, o.Dir, s.cluster, o.Cluster)
	}
	if s.node != o.NodeID {
		return fmt.Errorf("%w: %s belongs to node %d, not %d", ErrForeign, o.Dir, s.node, o.NodeID)
	}
	return nil
}

// create makes an empty log, in such an order that a crash leaves either nothing or a log.
func (l *Log) create(names []string) error {
	for _, n := range names {
		if _, ok := parseSegmentName(n); ok {
			return fmt.Errorf(
				"%w: %s holds segments, but no state file with term and vote: this node must rejoin under a new id", ErrCorrupt,
				l.dir)
		}
	}
	if l.opts.Made {
		return fmt.Errorf("%w: %s", ErrGone, l.dir)
	}
	head := segmentHead{cluster: l.opts.Cluster, node: l.opts.NodeID, first: 1, ledger: ledger{gtids: l.opts.Base.Clone()}}
	if err := l.makeFirst(&head); err != nil {
		return err
	}
	var err error
	s := state{cluster: l.opts.Cluster, node: l.opts.NodeID, first: 1, resetting: true}
	if l.state, err = createState(l.fs, l.dir, l.path(stateName), s); err != nil {
		return err
	}
	l.log.Info("log created", "dir", l.dir)
	return nil
}

// encodeHead returns what a segment begins with, sealed if there are keys.
func (l *Log) encodeHead(head *segmentHead) (b []byte, seal sealing, err error) {
	b = head.encode()
	if key := l.opts.Keys.current(); key != nil {
		b, seal, err = sealHead(key, &l.nonce, b)
	}
	return b, seal, err
}

// makeFirst makes the segment with which a log begins, under its temporary name.
func (l *Log) makeFirst(head *segmentHead) error {
	b, _, err := l.encodeHead(head)
	if err != nil {
		return err
	}
	return l.makeSegment(segmentName(head.first)+newSuffix, b)
}

// makeSegment writes a segment without entries, under a temporary name, and makes it durable.
func (l *Log) makeSegment(name string, head []byte) (err error) {
	f, err := l.fs.Create(l.path(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Allocate(l.opts.SegmentBytes); err != nil {
		return err
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		return err
	}
	if err := f.Fdatasync(); err != nil {
		return err
	}
	return l.fs.SyncDir(l.dir)
}

// checkPrepared reads the header of the segment that an interrupted reset prepared, so that a missing key is noticed
// before all other segments are removed.
func (l *Log) checkPrepared(names []string) error {
	name := segmentName(l.state.first)
	if slices.Contains(names, name+newSuffix) {
		name += newSuffix
	}
	f, err := l.fs.OpenRead(l.path(name))
	if err != nil {
		return nil // the next step reports it
	}
	defer f.Close()
	if _, _, _, err := readHead(f, l.opts.Keys); errors.Is(err, ErrKey) {
		return fmt.Errorf("%s: %w", l.path(name), err)
	}
	return nil
}

// SetKeys replaces the log's keys. The new ones must include the keys of all its segments. If the current segment is
// not encrypted with the last key, it is closed before the next entry. The error is ErrKey, and then nothing has
// changed.
func (l *Log) SetKeys(keys *Keys) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	for _, s := range l.segs {
		if s.keyID == "" {
			continue
		}
		if have, old := keys.find(s.keyID), l.opts.Keys.find(s.keyID); have == nil || *have != *old {
			return fmt.Errorf("%w: %s was written with the key %q, and that is not among the %v", ErrKey, s.path, s.keyID, keys)
		}
	}
	if id := keys.CurrentID(); id != l.opts.Keys.CurrentID() {
		l.log.Info("the log's key changes with the next entry", "key", id)
	}
	l.opts.Keys = keys
	return nil
}

// finishReset makes the segment that a reset prepared the only one.
func (l *Log) finishReset() error {
	names, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	name := segmentName(l.state.first)
	prepared := slices.Contains(names, name+newSuffix)
	for _, n := range names {
		_, isSegment := parseSegmentName(n)
		if strings.HasSuffix(n, indexSuffix) || (isSegment && (prepared || n != name)) {
			if err := l.removeFile(n); err != nil { // a purge may be removing it
				return err
			}
		}
	}
	failpoint.Hit("reset.before-rename")
	if prepared {
		if err := l.fs.Rename(l.path(name+newSuffix), l.path(name)); err != nil {
			return err
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	failpoint.Hit("reset.before-done")
	l.state.resetting = false
	return l.state.write(true)
}

// openSegments opens the segments that st says the log has, and reads their headers.
func openSegments(fsys FS, open openFunc, dir string, st *state, keys *Keys) (segs []*segment, err error) {
	firsts, err := segmentsFrom(fsys, dir, st.first)
	if err != nil {
		return nil, err
	}
	if len(firsts) == 0 || firsts[0] != st.first {
		return nil, fmt.Errorf("%w: %s is missing: this node must rejoin under a new id", ErrCorrupt,
			filepath.Join(dir, segmentName(st.first)))
	}
	defer func() {
		if err != nil {
			for _, s := range segs {
				s.release()
			}
			segs = nil
		}
	}()
	for _, first := range firsts {
		f, err := open(filepath.Join(dir, segmentName(first)))
		if err != nil {
			return segs, err
		}
		s, err := openSegment(dir, first, f, keys)
		if err != nil {
			f.Close()
			return segs, err
		}
		segs = append(segs, s)
	}
	return segs, nil
}

// segmentsFrom lists the first indexes of a log's segments from one on, in order.
func segmentsFrom(fsys FS, dir string, from uint64) (firsts []uint64, err error) {
	names, err := fsys.ReadDir(dir)
	for _, n := range names {
		if first, ok := parseSegmentName(n); ok && first >= from {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, err
}

// openSegment reads the header of the segment that f is.
func openSegment(dir string, first uint64, f File, keys *Keys) (*segment, error) {
	head, seal, size, err := readHead(f, keys)
	if err == nil && head.first != first {
		err = fmt.Errorf("%w: it begins at index %d", errBadHead, head.first)
	}
	if errors.Is(err, errBadHead) {
		err = fmt.Errorf("%w: %s: %w: this node must rejoin under a new id", ErrCorrupt,
			filepath.Join(dir, segmentName(first)), err)
	} else if errors.Is(err, ErrKey) {
		err = fmt.Errorf("%s: %w", filepath.Join(dir, segmentName(first)), err)
	}
	if err != nil {
		return nil, err
	}
	return newSegment(dir, f, head, seal, size), nil
}

// removeRemains deletes the files that interrupted purges, rotations and resets have left.
func (l *Log) removeRemains() error {
	names, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		first, isSegment := parseSegmentName(strings.Replace(n, indexSuffix, segmentSuffix, 1))
		isNew := strings.HasSuffix(n, newSuffix)
		stale := isSegment && (first < l.first() || (strings.HasSuffix(n, indexSuffix) && first >= l.active().first()))
		if isNew || stale {
			if err := l.fs.Remove(l.path(n)); err != nil {
				return err
			}
			l.log.Info("remains removed", "file", n)
		}
	}
	return nil
}

// openClosed finds out what a closed segment holds: from its index file, else by reading it through.
func (l *Log) openClosed(s *segment, next *segmentHead) error {
	size, err := s.f.Size()
	if err != nil {
		return err
	}
	s.indexed = true
	c, noIndex := loadIndex(l.fs, s, next, false)
	if s.content = c; noIndex == nil && s.end == size {
		return nil
	}
	if s.content, err = scanClosed(s, next); err != nil {
		return err
	}
	if s.end < size { // a power loss has brought back what was cut when it was closed
		if err := s.f.Truncate(s.end); err != nil { // readers stop where the next segment begins
			l.log.Warn("a closed segment keeps bytes beyond its records", "file", s.name, "error", err)
		}
	}
	if noIndex != nil {
		l.log.Info("segment index rebuilt", "file", s.name, "cause", noIndex)
	}
	if err := writeIndex(l.fs, s, &s.content); err != nil {
		l.log.Warn("segment index not written", "file", s.name, "error", err)
	}
	s.slots = nil
	return nil
}

// recoverTail reads the last segment through, cuts what was written but never fsynced, and makes the rest durable.
func (l *Log) recoverTail() error {
	s := l.active()
	l.ledger = s.head.ledger.clone()
	var m Meta
	sc, err := s.read(nil, l.state.durable, func(rec *record, at int64) error {
		s.add(rec, at)
		_, _ = l.ledger.take(&m, rec) // what cannot be decoded is left out
		return nil
	})
	if err != nil {
		return err
	}
	if sc.torn != nil {
		l.log.Warn("torn tail cut", "file", s.name, "offset", sc.off, "index", s.last+1, "bytes", sc.size-sc.off, "cause",
			sc.torn)
	}
	l.chain, l.last = sc.prev, s.last
	if sc.synced < s.last {
		if err := rewrite(s.f, int64(s.slots[sc.synced+1-s.first()].off), s.end); err != nil {
			return err
		}
	}
	return l.cutFile(s)
}

// rewrite writes again what a file shows between two offsets. The previous daemon may have ended because an fsync
// failed. Then the page cache shows as clean what the disk does not hold, and an fsync alone would report it durable
// (S2).
func rewrite(f File, from, to int64) error {
	buf := make([]byte, min(to-from, readAhead))
	for from < to {
		b := buf[:min(to-from, int64(len(buf)))]
		if err := readFull(f, b, from); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, from); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return nil
}

// take takes a record's entry into g. Without a meta it has no kind and no events.
func (g *ledger) take(m *Meta, rec *record) (events []byte, err error) {
	m.Kind = 0
	if len(rec.inline) == 0 || rec.raftType != raftpb.EntryNormal {
		return nil, nil
	}
	if events, err = m.Decode(rec.inline); err != nil {
		return nil, err
	}
	if len(rec.events) > 0 {
		events = rec.events
	}
	g.apply(rec.index, rec.term, m, events)
	return events, nil
}

// cutFile ends the segment's file where its records end, durably, and reserves the blocks of the rest again. A log
// opens without that reservation too, but then the disk may run full later.
func (l *Log) cutFile(s *segment) error {
	if err := s.f.Truncate(s.end); err != nil {
		return err
	}
	if err := s.f.Fdatasync(); err != nil {
		return err
	}
	l.fileEnd = s.end
	if err := s.f.Allocate(l.opts.SegmentBytes); err != nil {
		l.log.Warn("no room reserved for the segment", "file", s.name, "error", err)
	}
	return nil
}

// adoptState checks the state file against the log and takes it over.
func (l *Log) adoptState() error {
	st := &l.state.state
	if l.chain.term > st.term && l.last >= l.first() {
		return fmt.Errorf(
			"%w: the log ends in term %d, the state file knows term %d only: this node must rejoin under a new id",
			ErrCorrupt, l.chain.term, st.term)
	}
	if _, err := st.confState(); err != nil {
		return err
	}
	// The commit index may have been known before its entries were durable here; a configuration is known once it is
	// committed.
	st.commit = max(min(max(st.commit, st.confIndex), l.last), l.first()-1)
	l.durable.Store(l.last)
	l.log.Info("log opened", "dir", l.dir, "first", l.first(), "last", l.last, "term", l.chain.term, "segments",
		len(l.segs))
	if id := l.opts.Keys.CurrentID(); id != "" {
		l.log.Info("log encrypted", "key", id)
	}
	if st.durable == l.last {
		return nil
	}
	st.durable = l.last
	return l.state.write(true) // from here on, data missing at the end is damage and not a torn write
}
