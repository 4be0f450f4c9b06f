package sim

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
)

var (
	errIO    = errors.New("input/output error")
	errPower = errors.New("the power is gone")
)

// disk is a node's disk and what is wrong with it.
type disk struct {
	fs       *memfs.FS
	rnd      *rand.Rand
	slow     time.Duration // of each sync, besides what it takes anyway
	hung     int           // faults that keep syncs from returning
	failing  memfs.Op      // the next operation of this kind fails, and what it was for is lost; "": none
	full     bool
	failed   bool // an operation has failed in this life
	cutIn    int  // operations until the power is cut; 0: never
	cutKills bool // it is the daemon that ends then, not the machine
	cutNext  int  // the same, from the next start on
	powerCut bool
	rotten   string // the file in which a bit was flipped; "": none
}

func (d *disk) init(n *Node) {
	d.fs, d.rnd = memfs.New(), n.w.rnd
	d.fs.Hook, d.fs.Rot = d.hook, true
	for _, dir := range []string{memoryDir, nodeDir} {
		_ = d.fs.MkdirAll(dir)
	}
}

// hook is called before every operation of the file system.
func (d *disk) hook(op memfs.Op, name string) error {
	if d.powerCut {
		return errPower
	}
	if op == memfs.OpRead {
		return nil
	}
	if d.cutIn > 0 {
		if d.cutIn--; d.cutIn == 0 {
			d.powerCut = true
			return errPower
		}
	}
	if d.failing == op && !strings.HasSuffix(name, ".idx") {
		// What is done with these files may fail without harm: something else has to as well. A daemon that cannot write
		// node.json may live on.
		small := name == memoryDir || filepath.Dir(name) == memoryDir
		d.failed = d.failed || !small
		if !small && !strings.HasSuffix(name, "/spare.new") {
			d.failing = ""
		}
		if op == memfs.OpFdatasync && d.rnd.IntN(2) == 0 {
			return memfs.ErrLostWrites
		}
		return errIO
	}
	return nil
}

// mend is called when the daemon starts: the power is back, and what failed once works again.
func (d *disk) mend() {
	d.powerCut, d.cutIn, d.cutNext, d.cutKills, d.failed, d.failing = false, d.cutNext, 0, false, false, ""
}

// isFault says whether an error is what a faulty disk has answered.
func isFault(err error) bool { return errors.Is(err, errIO) || errors.Is(err, memfs.ErrLostWrites) }

// mayFail reports whether a failure is the disk's.
func (d *disk) mayFail() bool { return d.failed || d.full }

// setFull leaves the disk with room for a few bytes more, or with enough.
func (d *disk) setFull(full bool) {
	d.full = full
	limit := int64(0)
	if full {
		limit = d.fs.Used() + int64(d.rnd.IntN(3000))
	}
	d.fs.SetLimit(limit)
}

// syncTime is how long the sync that begins now takes.
func (d *disk) syncTime() time.Duration {
	t := time.Duration(80+d.rnd.IntN(400)) * time.Microsecond
	if d.rnd.IntN(100) == 0 {
		t += time.Duration(d.rnd.IntN(10)) * time.Millisecond
	}
	if d.slow > 0 {
		t += time.Duration(d.rnd.Int64N(int64(d.slow)))
	}
	return t
}

// store is a node's log as consensus sees it; the checks see what goes through.
type store struct {
	*raftlog.Log
	n *Node
}

// Append is consensus.Storage's.
func (s *store) Append(entries []*raftpb.Entry) error {
	if s.n.w.opts.broken.entries && s.n.ID == 2 {
		entries = garbleAll(entries)
	}
	s.n.w.check.appending(s.n, entries)
	if err := s.Log.Append(entries); err != nil {
		return err
	}
	s.n.w.check.appended(s.n, entries)
	return nil
}

// Sync is consensus.Storage's.
func (s *store) Sync() error {
	if s.n.w.opts.broken.sync {
		s.n.w.check.synced(s.n)
		return nil
	}
	if err := s.Log.Sync(); err != nil {
		return err
	}
	s.n.w.check.synced(s.n)
	return nil
}

// SetHardState is consensus.Storage's.
func (s *store) SetHardState(hs *raftpb.HardState) error {
	if s.n.w.opts.broken.vote {
		hs = &raftpb.HardState{Term: hs.Term, Commit: hs.Commit}
	}
	return s.Log.SetHardState(hs)
}

// ResetTo is consensus.Storage's.
func (s *store) ResetTo(snap *raftpb.Snapshot) error {
	if err := s.Log.ResetTo(snap); err != nil {
		return err
	}
	s.n.w.check.reset(s.n, snap)
	return nil
}
