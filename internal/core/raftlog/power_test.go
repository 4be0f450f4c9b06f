package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
)

// forgetful is a file system whose user forgets to sync files, or directories.
type forgetful struct {
	raftlog.OSFS
	files, dirs bool
}

func (f forgetful) Create(name string) (raftlog.File, error) { return f.wrap(f.OSFS.Create(name)) }
func (f forgetful) Open(name string) (raftlog.File, error)   { return f.wrap(f.OSFS.Open(name)) }

func (f forgetful) wrap(file raftlog.File, err error) (raftlog.File, error) {
	if err == nil && f.files {
		file = noSync{file}
	}
	return file, err
}

func (f forgetful) SyncDir(dir string) error {
	if f.dirs {
		return nil
	}
	return f.OSFS.SyncDir(dir)
}

type noSync struct{ raftlog.File }

func (noSync) Fdatasync() error { return nil }

// TestPowerLoss cuts the power under a log that is written to, cut and purged, on a real file system as mean as POSIX
// allows: it always opens, and holds what was synced. A log that forgets an fsync does not come through.
func TestPowerLoss(t *testing.T) {
	needs.NoRace(t)
	const cuts = 220
	p := newPowered(t, raftlog.OSFS{})
	for range cuts {
		ok(t, p.life())
	}
	t.Logf("%d power losses: %d entries were synced, %d were not and are there, %d not and are lost; %d tails cut, %d purges; the disk lost %+v", cuts, p.synced, p.more, p.lost,
		p.tails, p.purges, p.loss)
	if p.more == 0 || p.lost == 0 || p.tails == 0 || p.purges == 0 || p.loss.Torn == 0 || p.loss.Names == 0 {
		t.Error("one of these never came")
	}
	for what, fsys := range map[string]raftlog.FS{"files": forgetful{files: true}, "directories": forgetful{dirs: true}} {
		p := newPowered(t, fsys)
		var err error
		for i := 0; i < cuts && err == nil; i++ {
			err = p.life()
		}
		if err == nil {
			t.Errorf("a log that syncs no %s came through", what)
		}
		t.Logf("without fsync of %s: %v", what, err)
	}
}

// poweredLog is a log on a disk that loses power, and what it must hold.
type poweredLog struct {
	t    *testing.T
	disk *faultfs.FS
	fsys raftlog.FS
	rnd  *rand.Rand

	all    []*raftpb.Entry // from index 1 on; what is beyond held may be lost
	old    []*raftpb.Entry // what may be there instead while the cut of a tail is not synced
	held   uint64          // synced
	first  uint64          // entries before it may be purged
	commit uint64
	term   uint64

	synced, more, lost, tails, purges int
	loss                              faultfs.Loss
}

func newPowered(t *testing.T, fsys raftlog.FS) *poweredLog {
	disk, err := faultfs.New(t.Context(), filepath.Join(t.TempDir(), "disk"), faultfs.Options{Seed: 77})
	if errors.Is(err, faultfs.ErrUnavailable) {
		needs.Cannot(t, err)
	}
	ok(t, err)
	t.Cleanup(func() { ok(t, disk.Close()) })
	return &poweredLog{t: t, disk: disk, fsys: fsys, rnd: rand.New(rand.NewPCG(7, 7)), first: 1}
}

// life of the log from one power loss to the next one. The error says what is missing.
func (p *poweredLog) life() error {
	o := options(p.fsys)
	o.Dir, o.Later = filepath.Join(p.disk.Dir(), "raft"), nil
	l, err := raftlog.Open(o)
	if err != nil {
		return fmt.Errorf("with %d entries synced: %w", p.held, err)
	}
	if err := p.check(l); err != nil {
		return errors.Join(err, l.Close())
	}
	cut := make(chan error, 1)
	wait := time.Duration(p.rnd.IntN(25)) * time.Millisecond
	go func() {
		time.Sleep(wait)
		cut <- p.disk.PowerOff()
	}()
	p.work(l)
	ok(p.t, <-cut)
	_ = l.Close() // without power
	ok(p.t, p.disk.PowerOn())
	loss := p.disk.Loss()
	p.loss.Torn += loss.Torn
	p.loss.Names += loss.Names
	p.loss.Writes += loss.Writes
	return nil
}

// check what is there after a power loss, and go on from that.
func (p *poweredLog) check(l *raftlog.Log) error {
	last, _ := l.LastIndex()
	first, _ := l.FirstIndex()
	if last < p.held || first > p.first {
		return fmt.Errorf("entries %d to %d are there; %d to %d were synced", first, last, p.first, p.held)
	}
	got, err := l.All(first, last+1)
	if err != nil {
		return fmt.Errorf("entries %d to %d: %w", first, last, err)
	}
	is := func(entries []*raftpb.Entry) bool {
		return len(got) == 0 || last <= uint64(len(entries)) && slices.EqualFunc(got, entries[first-1:last],
			func(a, b *raftpb.Entry) bool {
				return a.GetTerm() == b.GetTerm() && bytes.Equal(a.Data, b.Data)
			})
	}
	switch {
	case is(p.all):
	case is(p.old):
		p.all = p.old
	default:
		return fmt.Errorf("entries %d to %d are others", first, last)
	}
	p.more += int(last - p.held)
	p.lost += len(p.all) - int(last)
	p.all, p.old, p.held = p.all[:last], nil, last
	ok(p.t, l.Sync())
	return nil
}

// work until there is no power: terms, tails that are cut, entries, fsyncs, purges.
func (p *poweredLog) work(l *raftlog.Log) {
	p.term++
	if l.SetHardState(&raftpb.HardState{Term: new(p.term), Vote: new(uint64(1)), Commit: new(p.commit)}) != nil {
		return
	}
	w := &writer{inc: p.term, term: p.term, index: uint64(len(p.all))}
	if n := uint64(len(p.all)); p.rnd.IntN(3) == 0 && n > p.commit+1 { // a leader that does not have these
		w.index = p.commit + p.rnd.Uint64N(n-p.commit)
		p.old, p.all = p.all, slices.Clone(p.all[:w.index])
		p.held = min(p.held, w.index)
		p.tails++
	}
	for {
		var batch []*raftpb.Entry
		for range 1 + p.rnd.IntN(4) {
			batch = append(batch, w.trx(p.rnd.IntN(1200), 0))
		}
		p.all = append(p.all, batch...)
		if p.rnd.IntN(2) == 0 {
			if errors.Join(l.Append(batch), l.Sync()) != nil {
				return
			}
		} else {
			if l.Append(batch) != nil {
				return
			}
			if p.rnd.IntN(3) == 0 {
				continue
			}
			if l.Sync() != nil {
				return
			}
		}
		p.synced += len(p.all) - int(p.held)
		p.held, p.old = uint64(len(p.all)), nil
		if p.rnd.IntN(8) == 0 && !p.purge(l) {
			return
		}
	}
}

// purge what was committed some time ago. It says whether there is power.
func (p *poweredLog) purge(l *raftlog.Log) bool {
	p.commit = max(p.commit, p.held-min(p.held, p.rnd.Uint64N(20)))
	if l.SetHardState(&raftpb.HardState{Term: new(p.term), Vote: new(uint64(1)), Commit: new(p.commit)}) != nil {
		return false
	}
	if p.commit < 40 {
		return true
	}
	p.first = p.commit - 30 // from here on nothing may be missing, whether it is purged or not
	p.purges++
	_, err := l.Purge(p.commit-31, 0)
	return err == nil
}
