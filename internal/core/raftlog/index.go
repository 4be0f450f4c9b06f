package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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

func encodeIndex(first uint64, c *content) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, indexFixed+16*len(c.terms)+slotBytes*len(c.slots)+8)
	b = append(b, indexMagic...)
	b = le.AppendUint32(b, indexVersion)
	b = le.AppendUint64(b, first)
	b = le.AppendUint64(b, uint64(len(c.slots)))
	b = le.AppendUint64(b, uint64(c.end))
	b = le.AppendUint32(b, uint32(len(c.terms)))
	b = le.AppendUint32(b, c.slots[len(c.slots)-1].crc) // a closed segment has entries
	for _, r := range c.terms {
		b = le.AppendUint64(b, r.index)
		b = le.AppendUint64(b, r.term)
	}
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	from := len(b)
	for _, t := range c.slots {
		b = le.AppendUint32(b, t.off)
		b = le.AppendUint32(b, t.crc)
	}
	return le.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

var errBadIndex = errors.New("raftlog: bad index file")

// loadIndex reads the first part of s's index file, and the second, which has the slots, when asked. next is the header
// of the segment that follows s.
func loadIndex(fsys FS, s *segment, next *segmentHead, withSlots bool) (c content, err error) {
	f, err := fsys.OpenRead(indexName(s.path))
	if err != nil {
		return c, err
	}
	defer f.Close()
	le := binary.LittleEndian
	b := make([]byte, indexFixed)
	if err := readFull(f, b, 0); err != nil {
		return c, err
	}
	count, terms := le.Uint64(b[16:]), int(le.Uint32(b[32:]))
	size, err := f.Size()
	if err != nil {
		return c, err
	}
	part := int64(indexFixed) + 16*int64(terms)
	if count > uint64(size) || part+4+slotBytes*int64(count)+4 != size || string(b[:4]) != indexMagic ||
		le.Uint32(b[4:]) != indexVersion || le.Uint64(b[8:]) != s.first() || terms == 0 ||
		s.first()+count != next.first || le.Uint32(b[36:]) != next.prevCRC {
		return c, fmt.Errorf("%w: it does not describe %s", errBadIndex, s.name)
	}
	if b, err = readSummed(f, 0, part); err != nil {
		return c, err
	}
	runs := make([]termRun, terms)
	for i := range runs {
		runs[i] = termRun{le.Uint64(b[indexFixed+16*i:]), le.Uint64(b[indexFixed+16*i+8:])}
	}
	c = content{last: next.first - 1, end: int64(le.Uint64(b[24:])), terms: runs}
	if !withSlots {
		return c, nil
	}
	b, err = readSummed(f, part+4, slotBytes*int64(count))
	for ; len(b) > 0; b = b[slotBytes:] {
		c.slots = append(c.slots, slot{le.Uint32(b), le.Uint32(b[4:])})
	}
	return c, err
}

// readSummed reads n bytes that their CRC follows.
func readSummed(f File, at, n int64) ([]byte, error) {
	b := make([]byte, n+4)
	if err := readFull(f, b, at); err != nil {
		return nil, err
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w: checksum", errBadIndex)
	}
	return b[:n], nil
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

// writeIndex writes the index file of s, which holds c. A failure costs a scan later and nothing else.
func writeIndex(fsys FS, s *segment, c *content) error {
	f, err := fsys.Create(indexName(s.path))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(encodeIndex(s.first(), c), 0)
	return errors.Join(err, f.Close())
}

// scanClosed finds out what a closed segment holds by reading it through. next is the header of the segment that
// follows.
func scanClosed(s *segment, next *segmentHead) (c content, err error) {
	_, err = s.read(next, 0, func(rec *record, at int64) error {
		c.add(rec, at)
		return nil
	})
	return c, err
}

// corruptAt makes the error for damage that cannot be a torn write.
func corruptAt(s *segment, off int64, index uint64, cause error) error {
	return fmt.Errorf("%w: %s, offset %d, index %d: %w; the entry had been fsynced, so the log cannot be cut here: "+
		"this node must rejoin under a new id", ErrCorrupt, s.path, off, index, cause)
}
