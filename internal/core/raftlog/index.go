package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
)

// A closed segment has a side file with its terms and record offsets. With it, neither opening the log nor a reader
// that lags far has to read through the segment. It is not fsynced and never needed: a missing or damaged one is
// written again.
const (
	indexMagic   = "TRIX"
	indexVersion = 1
	indexFixed   = 40
	slotBytes    = 8
	// maxLoadedIndexes bounds how many closed segments keep their offsets in memory.
	maxLoadedIndexes = 4
)

func indexName(segment string) string {
	return strings.TrimSuffix(segment, segmentSuffix) + indexSuffix
}

func encodeIndex(s *segment) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, indexFixed+16*len(s.terms)+slotBytes*len(s.slots)+8)
	b = append(b, indexMagic...)
	b = le.AppendUint32(b, indexVersion)
	b = le.AppendUint64(b, s.first())
	b = le.AppendUint64(b, uint64(len(s.slots)))
	b = le.AppendUint64(b, uint64(s.end))
	b = le.AppendUint32(b, uint32(len(s.terms)))
	b = le.AppendUint32(b, s.lastCRC())
	for _, r := range s.terms {
		b = le.AppendUint64(b, r.index)
		b = le.AppendUint64(b, r.term)
	}
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	from := len(b)
	for _, t := range s.slots {
		b = le.AppendUint32(b, t.off)
		b = le.AppendUint32(b, t.crc)
	}
	return le.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// lastCRC returns the chain CRC after the segment's last record. The slots must be loaded.
func (s *segment) lastCRC() uint32 {
	if n := len(s.slots); n > 0 {
		return s.slots[n-1].crc
	}
	return s.head.prevCRC
}

var errBadIndex = errors.New("raftlog: bad index file")

// loadIndex reads the first part of s's index file into s.last, s.end and s.terms, and the second into s.slots when
// asked. next is the header of the segment that follows s.
func loadIndex(fsys FS, s *segment, next *segmentHead, withSlots bool) error {
	f, err := fsys.OpenRead(filepath.Join(filepath.Dir(s.path), indexName(s.name)))
	if err != nil {
		return err
	}
	defer f.Close()
	le := binary.LittleEndian
	fixed := make([]byte, indexFixed)
	if err := readFull(f, fixed, 0); err != nil {
		return err
	}
	count, terms := le.Uint64(fixed[16:]), int(le.Uint32(fixed[32:]))
	size, err := f.Size()
	if err != nil {
		return err
	}
	want := int64(indexFixed) + 16*int64(terms) + 8
	if count > uint64(size) || want+slotBytes*int64(count) != size || string(fixed[:4]) != indexMagic ||
		le.Uint32(fixed[4:]) != indexVersion || le.Uint64(fixed[8:]) != s.first() || terms == 0 ||
		s.first()+count != next.first || le.Uint32(fixed[36:]) != next.prevCRC {
		return fmt.Errorf("%w: it does not describe %s", errBadIndex, s.name)
	}
	b := make([]byte, 16*terms+4)
	if err := readFull(f, b, indexFixed); err != nil {
		return err
	}
	if crc32.Update(crc32.Checksum(fixed, castagnoli), castagnoli, b[:16*terms]) != le.Uint32(b[16*terms:]) {
		return fmt.Errorf("%w: checksum", errBadIndex)
	}
	runs := make([]termRun, terms)
	for i := range runs {
		runs[i] = termRun{le.Uint64(b[16*i:]), le.Uint64(b[16*i+8:])}
	}
	if withSlots {
		if s.slots, err = readSlots(f, want-4, count); err != nil {
			return err
		}
	}
	s.terms, s.last, s.end = runs, next.first-1, int64(le.Uint64(fixed[24:]))
	return nil
}

func readSlots(f File, at int64, count uint64) ([]slot, error) {
	le := binary.LittleEndian
	b := make([]byte, slotBytes*count+4)
	if err := readFull(f, b, at); err != nil {
		return nil, err
	}
	n := len(b) - 4
	if crc32.Checksum(b[:n], castagnoli) != le.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w: checksum", errBadIndex)
	}
	slots := make([]slot, count)
	for i := range slots {
		slots[i] = slot{le.Uint32(b[slotBytes*i:]), le.Uint32(b[slotBytes*i+4:])}
	}
	return slots, nil
}

func readFull(f File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// writeIndex writes s's index file. A failure costs a scan later and nothing else.
func writeIndex(fsys FS, s *segment) error {
	f, err := fsys.Create(filepath.Join(filepath.Dir(s.path), indexName(s.name)))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(encodeIndex(s), 0)
	return errors.Join(err, f.Close())
}

// scanClosed fills s from the segment itself, verifying every record. next is the header of the segment that follows.
func scanClosed(s *segment, next *segmentHead) error {
	sc, err := newScanner(s)
	if err != nil {
		return err
	}
	s.terms, s.slots = nil, nil
	for sc.prev.index+1 < next.first { // what comes after it was cut once
		rec, at, err := sc.next()
		if err == io.EOF {
			break
		}
		if errors.Is(err, errBadRecord) {
			return corruptAt(s, at, sc.prev.index+1, err)
		}
		if err != nil {
			return err
		}
		s.slots = append(s.slots, slot{uint32(at), rec.crc})
		s.terms = addTerm(s.terms, rec.index, rec.term)
	}
	s.last, s.end = sc.prev.index, sc.off
	if s.last+1 != next.first || sc.prev.term != next.prevTerm || sc.prev.crc != next.prevCRC {
		return fmt.Errorf(
			"%w: %s ends at index %d term %d, the segment after it begins after index %d term %d: a segment is missing or "+
				"damaged; this node must rejoin under a new id", ErrCorrupt, s.path, s.last, sc.prev.term, next.first-1,
			next.prevTerm)
	}
	return nil
}

// corruptAt makes the error for damage that cannot be a torn write.
func corruptAt(s *segment, off int64, index uint64, cause error) error {
	return fmt.Errorf("%w: %s, offset %d, index %d: %w; the entry had been fsynced, so the log cannot be cut here: "+
		"this node must rejoin under a new id", ErrCorrupt, s.path, off, index, cause)
}
