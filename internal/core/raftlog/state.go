package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/base/failpoint"
)

// The state file holds what raft must not forget. Two slots, each with a sequence number and a CRC: a write goes to the
// slot that is not the durable one, so a torn write leaves the other; once it is fsynced the other slot gets a copy,
// without waiting, so that a slot that rots later has a twin. docs/format/state.md draws it.
const (
	stateMagic    = "TRIS"
	stateVersion  = 1
	stateSlot     = 16 << 10
	stateFixed    = 92
	stateResetBit = 1
)

// state is the content of the state file.
type state struct {
	seq                uint64
	cluster, node      uint64
	term, vote, commit uint64
	// durable is the fsynced watermark when the state was written: nothing at or below it may be missing.
	durable uint64
	// first is the log's first index: segments below it are remains of a purge.
	first uint64
	// resetting: a new first segment is complete under its temporary name and everything else is to go.
	resetting bool
	confIndex uint64
	conf      []byte // raftpb.ConfState
}

func (s *state) encode() ([]byte, error) {
	le := binary.LittleEndian
	b := make([]byte, 0, stateFixed+len(s.conf)+4)
	b = append(b, stateMagic...)
	b = le.AppendUint32(b, stateVersion)
	var flags uint32
	if s.resetting {
		flags |= stateResetBit
	}
	for _, v := range [...]uint64{s.seq, s.cluster, s.node, s.term, s.vote, s.commit, s.durable, s.first, s.confIndex} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(len(s.conf)))
	b = append(b, s.conf...)
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if len(b) > stateSlot {
		return nil, fmt.Errorf("raftlog: configuration of %d bytes does not fit the state file", len(s.conf))
	}
	return b, nil
}

var errBadState = errors.New("bad state slot")

func decodeState(b []byte) (state, error) {
	le := binary.LittleEndian
	if len(b) < stateFixed+4 || string(b[:4]) != stateMagic {
		return state{}, errBadState
	}
	n := uint64(le.Uint32(b[stateFixed-4:])) + stateFixed
	if n+4 > uint64(len(b)) || crc32.Checksum(b[:n], castagnoli) != le.Uint32(b[n:]) {
		return state{}, errBadState
	}
	if v := le.Uint32(b[4:]); v > stateVersion {
		return state{}, fmt.Errorf("%w: state file format %d, this program knows %d", ErrNewer, v, stateVersion)
	}
	var s state
	for i, p := range [...]*uint64{&s.seq, &s.cluster, &s.node, &s.term, &s.vote, &s.commit, &s.durable, &s.first,
		&s.confIndex} {
		*p = le.Uint64(b[8+8*i:])
	}
	s.resetting = le.Uint32(b[80:])&stateResetBit != 0
	s.conf = append([]byte(nil), b[stateFixed:n]...)
	return s, nil
}

// confState returns the configuration, empty when none was set.
func (s *state) confState() (*raftpb.ConfState, error) {
	cs := &raftpb.ConfState{}
	if err := proto.Unmarshal(s.conf, cs); err != nil {
		return nil, fmt.Errorf("%w: configuration in the state file: %w", ErrCorrupt, err)
	}
	return cs, nil
}

// openFunc is FS.Open or FS.OpenRead.
type openFunc func(name string) (File, error)

// stateFile writes state. After an error it must not be used any more.
type stateFile struct {
	f File
	state
	durableSlot int // the slot whose content is known to be fsynced
}

// openState reads the state file. The error is fs.ErrNotExist if the file does not exist.
func openState(open openFunc, name string) (*stateFile, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	sf := &stateFile{f: f}
	if err := sf.load(name); err != nil {
		f.Close()
		return nil, err
	}
	return sf, nil
}

func (sf *stateFile) load(name string) error {
	size, err := sf.f.Size()
	if err != nil {
		return err
	}
	found := false
	var unread error // of a slot that the disk does not return; its twin is used, as for a damaged slot
	for slot := range 2 {
		n := min(stateSlot, size-int64(slot)*stateSlot)
		if n <= 0 {
			continue
		}
		b := make([]byte, n)
		if _, err := sf.f.ReadAt(b, int64(slot)*stateSlot); err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		s, err := decodeState(b)
		if errors.Is(err, ErrNewer) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err == nil && (!found || s.seq > sf.seq) {
			sf.state, sf.durableSlot, found = s, slot, true
		}
	}
	if !found && unread != nil { // the disk may return them later: nothing is known to be lost
		return unread
	}
	if !found {
		return fmt.Errorf("%w: %s: neither copy of term and vote is readable: this node must rejoin under a new id",
			ErrCorrupt, name)
	}
	return nil
}

// rewrite makes the slot that was read durable: see the function rewrite. It writes the bytes that the slot holds
// already, so the slot cannot be torn.
func (sf *stateFile) rewrite() error {
	at := int64(sf.durableSlot) * stateSlot
	size, err := sf.f.Size()
	if err != nil {
		return err
	}
	if err := rewrite(sf.f, at, min(at+stateSlot, size)); err != nil {
		return err
	}
	return sf.f.Fdatasync()
}

// createState makes the state file; it has its final name once it is durable.
func createState(fsys FS, dir, name string, s state) (*stateFile, error) {
	tmp := name + newSuffix
	f, err := fsys.Create(tmp)
	if err != nil {
		return nil, err
	}
	sf := &stateFile{f: f, state: s, durableSlot: 1}
	_, err = f.WriteAt(make([]byte, 2*stateSlot), 0)
	if err == nil {
		err = sf.write(true)
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return sf, nil
}

// write writes sf.state, and makes it durable when sync is set.
func (sf *stateFile) write(sync bool) error {
	sf.seq++
	b, err := sf.encode()
	if err != nil {
		return err
	}
	slot := 1 - sf.durableSlot
	failpoint.Hit("state.before-write")
	if _, err := sf.f.WriteAt(b, int64(slot)*stateSlot); err != nil || !sync {
		return err
	}
	failpoint.Hit("state.after-write")
	if err := sf.f.Fdatasync(); err != nil {
		return err
	}
	failpoint.Hit("state.after-sync")
	sf.durableSlot = slot
	_, err = sf.f.WriteAt(b, int64(1-slot)*stateSlot)
	return err
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
