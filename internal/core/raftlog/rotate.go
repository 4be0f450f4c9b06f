package raftlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"trireme/internal/base/failpoint"
)

// spareName is the file that becomes the next segment: zeros, with room for a whole segment, made while the last
// segment fills. Open removes it, like every file that ends in newSuffix.
const spareName = "spare" + newSuffix

// The states of the spare file, in Log.spare. Only the writer leaves spareNone, spareReady and spareTaken, and
// spareFailed; only upkeep leaves spareWanted.
const (
	spareNone   = iota // it has not been asked for
	spareWanted        // upkeep is to make it, or does so
	spareReady         // it is durable
	spareTaken         // it becomes a segment
	spareFailed        // it could not be made; it is asked for again in the next segment
)

// spareLeaves is how much room the spare file leaves to others on its disk: it can be done without, they may not.
const spareLeaves = 32 << 20

// wantSpare asks for the spare file once a quarter of the last segment is full: a log that hardly grows needs none.
func (l *Log) wantSpare() {
	if l.active().end >= l.opts.SegmentBytes/4 && l.spare.CompareAndSwap(spareNone, spareWanted) {
		l.opts.Later(l.upkeep)
	}
}

// upkeep does what no writer waits for. It runs concurrently with writers and readers, one call at a time.
func (l *Log) upkeep() {
	l.side.Lock()
	defer l.side.Unlock()
	if l.sideClosed || l.failed.Load() != nil {
		return
	}
	l.writeIndexes()
	if l.spare.Load() != spareWanted {
		return
	}
	if err := l.makeSpare(); err != nil {
		l.log.Warn("the next segment's file could not be made ahead: it is made when it is needed", "error", err)
		l.spare.Store(spareFailed)
		return
	}
	l.spare.Store(spareReady)
}

// endUpkeep waits for upkeep that is under way, and lets none begin. Of a log that is closed in order no index file
// is missing and no spare file is left.
func (l *Log) endUpkeep(inOrder bool) {
	l.side.Lock()
	defer l.side.Unlock()
	l.sideClosed = true
	if !inOrder {
		return
	}
	l.writeIndexes()
	if l.spare.Load() == spareReady {
		if err := l.removeFile(spareName); err != nil {
			l.log.Warn("spare file not removed", "error", err)
		}
	}
}

// makeSpare makes the spare file, durably. What an attempt leaves that failed is removed: it may take the disk's last
// room.
func (l *Log) makeSpare() error {
	free, err := l.fs.Free(l.dir)
	if err != nil {
		return err
	}
	if free < uint64(l.opts.SegmentBytes)+spareLeaves {
		return fmt.Errorf("%d MiB are free: %w", free>>20, syscall.ENOSPC)
	}
	f, err := l.fs.Create(l.path(spareName))
	if err != nil {
		return err
	}
	err = f.Allocate(l.opts.SegmentBytes)
	if err == nil {
		err = zero(f, 0, l.opts.ZeroAheadBytes)
	}
	if err == nil {
		failpoint.Hit("spare.before-sync")
		err = f.Fdatasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, l.removeFile(spareName))
	}
	failpoint.Hit("spare.after-sync")
	return nil
}

// writeIndexes writes the index files that closed segments lack. Call it with side held.
func (l *Log) writeIndexes() {
	for {
		s, closed := l.unindexed()
		if s == nil {
			return
		}
		failpoint.Hit("index.before-write")
		if err := writeIndex(l.fs, s, &closed); err != nil {
			l.log.Warn("segment index not written", "file", s.name, "error", err)
		}
		failpoint.Hit("index.after-write")
		l.mu.Lock()
		s.indexed = true // if it failed, a reader or the next start writes it again
		l.mu.Unlock()
	}
}

// unindexed returns a closed segment that has no index file and whose offsets are in memory, and a copy of what goes
// into the file.
func (l *Log) unindexed() (s *segment, closed content) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.segs[:len(l.segs)-1] {
		if !s.indexed && s.slots != nil {
			return s, s.content
		}
	}
	return nil, closed
}

// seal ends the last segment's file where its records end and makes it durable.
func (l *Log) seal() error {
	s := l.active()
	if err := s.f.Truncate(s.end); err != nil {
		return l.fail("truncate "+s.path, err)
	}
	l.fileEnd, l.dirty = s.end, true
	return l.sync()
}

// rotate closes the last segment and begins a new one.
func (l *Log) rotate() error {
	s := l.active()
	if s.last < s.first() {
		return l.replaceEmpty(s)
	}
	failpoint.Hit("rotate.before-seal")
	if err := l.sync(); err != nil {
		return err
	}
	failpoint.Hit("rotate.after-seal")
	// No caller waits until this is durable: after a power loss a filler and zeros may be there again, and Open cuts
	// them again.
	if err := s.f.Truncate(s.end); err != nil {
		return l.fail("truncate "+s.path, err)
	}
	failpoint.Hit("rotate.after-cut")
	head := segmentHead{
		cluster: l.opts.Cluster, node: l.opts.NodeID, first: l.last + 1, prevTerm: l.chain.term, prevCRC: l.chain.crc,
		durable: l.last, ledger: l.ledger.clone(),
	}
	next, err := l.startSegment(&head)
	if err != nil {
		return l.fail("new segment in "+l.dir, err)
	}
	l.mu.Lock()
	l.segs = append(l.segs, next)
	l.useIndex(s)
	l.mu.Unlock()
	l.spare.CompareAndSwap(spareFailed, spareNone)
	l.log.Info("segment closed", "file", s.name, "bytes", s.end, "index", s.last)
	failpoint.Hit("rotate.before-state")
	if err := l.writeState("rotation", false); err != nil {
		return err
	}
	l.opts.Later(l.upkeep)
	return nil
}

// replaceEmpty puts a segment that is encrypted as it should be in the place of the last one, which holds no entry.
func (l *Log) replaceEmpty(s *segment) error {
	next, err := l.startSegment(&s.head)
	if err != nil {
		return l.fail("new segment in "+l.dir, err)
	}
	l.mu.Lock()
	l.segs[len(l.segs)-1] = next
	l.mu.Unlock()
	s.release()
	return nil
}

// startSegment makes the segment that follows the last one, of the spare file if there is one. It has its final name
// once it is whole and durable.
func (l *Log) startSegment(head *segmentHead) (*segment, error) {
	b, seal, err := l.encodeHead(head)
	if err != nil {
		return nil, err
	}
	name := segmentName(head.first)
	from, err := l.makeNext(name+newSuffix, b)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("rotate.after-new")
	if err := l.fs.Rename(l.path(from), l.path(name)); err != nil {
		return nil, err
	}
	l.spare.CompareAndSwap(spareTaken, spareNone)
	failpoint.Hit("rotate.after-rename")
	if err := l.fs.SyncDir(l.dir); err != nil {
		return nil, err
	}
	f, err := l.fs.Open(l.path(name))
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	l.fileEnd = size
	return newSegment(l.dir, f, *head, seal, len(b)), nil
}

// makeNext makes the next segment with its header, whole and durable, under a name that it does not keep, which it
// returns: name, or that of the spare file.
func (l *Log) makeNext(name string, head []byte) (string, error) {
	if used, err := l.useSpare(head); used || err != nil {
		return spareName, err
	}
	err := l.makeSegment(name, head)
	if !errors.Is(err, syscall.ENOSPC) {
		return name, err
	}
	// The room may be taken by the spare file: it is being made, or it is too small for this header.
	if err := l.removeFile(name); err != nil {
		return name, err
	}
	l.side.Lock()
	defer l.side.Unlock()
	if used, err := l.useSpare(head); used || err != nil {
		return spareName, err
	}
	if l.spare.CompareAndSwap(spareReady, spareNone) {
		if err := l.removeFile(spareName); err != nil {
			return name, err
		}
	}
	return name, l.makeSegment(name, head)
}

// useSpare writes a segment's header into the spare file, durably, before it gets the segment's name: that name says
// that the header is there. used is false if no spare file has room for the header.
func (l *Log) useSpare(head []byte) (used bool, err error) {
	at, size := int64(len(head)), l.opts.ZeroAheadBytes
	if at+minFiller > size || !l.spare.CompareAndSwap(spareReady, spareTaken) {
		return false, nil
	}
	f, err := l.fs.Open(l.path(spareName))
	if isNotExist(err) { // somebody has removed it, to make room
		l.spare.Store(spareNone)
		return false, nil
	}
	if err != nil {
		return true, err
	}
	head = appendFiller(head, at, size-at, uint32(l.opts.NodeID))
	if _, err = f.WriteAt(head, 0); err == nil {
		failpoint.Hit("rotate.after-header")
		err = f.Fdatasync()
	}
	return true, errors.Join(err, f.Close())
}

// SpareBytes is the room of the spare file of the log in dir, which its next segment takes, and which Open gives back.
func SpareBytes(dir string) uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, spareName), &st) != nil {
		return 0
	}
	return uint64(st.Blocks) * 512
}
