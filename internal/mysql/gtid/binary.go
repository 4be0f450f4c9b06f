package gtid

import (
	"encoding/binary"
	"fmt"
)

const (
	formatUntagged = 0
	formatTagged   = 1
	// maxSIDs is what the 48-bit count of the tagged form can say.
	maxSIDs = 1<<48 - 1
)

// HasTags reports whether any GTID in s carries a tag.
func (s Set) HasTags() bool {
	for i := range s.sids {
		if s.sids[i].Tag != "" {
			return true
		}
	}
	return false
}

// AppendBinary appends the form that COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS carry to dst and returns it: the
// untagged one unless s has tags. An empty set is 8 zero bytes.
func (s Set) AppendBinary(dst []byte) []byte {
	tagged := s.HasTags()
	count := uint64(len(s.sids))
	if tagged {
		count = formatTagged<<56 | count<<8 | formatTagged
	}
	dst = binary.LittleEndian.AppendUint64(dst, count)
	for i := range s.sids {
		e := &s.sids[i]
		dst = append(dst, e.UUID[:]...)
		if tagged {
			dst = append(dst, byte(len(e.Tag)<<1))
			dst = append(dst, e.Tag...)
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(e.list)))
		for _, iv := range e.list {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(iv.first))
			dst = binary.LittleEndian.AppendUint64(dst, uint64(iv.last+1))
		}
	}
	return dst
}

// DecodeBinary reads exactly what AppendBinary writes and nothing after it. Like mysqld it wants each SID's
// intervals ascending, not empty and not adjacent; SIDs may come in any order. The error is ErrEncoding.
func DecodeBinary(b []byte) (Set, error) {
	d := decoder{b: b}
	header, ok := d.uint64()
	if !ok {
		return Set{}, fmt.Errorf("%w: %d bytes", ErrEncoding, len(b))
	}
	count, tagged := header, false
	switch header >> 56 {
	case formatUntagged:
	case formatTagged:
		if header&0xff != formatTagged {
			return Set{}, fmt.Errorf("%w: format bytes differ: %#x", ErrEncoding, header)
		}
		count, tagged = header>>8&maxSIDs, true
	default:
		return Set{}, fmt.Errorf("%w: unknown format %d", ErrEncoding, header>>56)
	}
	var s Set
	for range count {
		if err := d.sid(&s, tagged); err != nil {
			return Set{}, err
		}
	}
	if len(d.b) != 0 {
		return Set{}, fmt.Errorf("%w: %d bytes too many", ErrEncoding, len(d.b))
	}
	return s, nil
}

// decoder takes bytes off the front of b.
type decoder struct{ b []byte }

func (d *decoder) uint64() (uint64, bool) {
	if len(d.b) < 8 {
		return 0, false
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v, true
}

// sid reads one SID with its intervals into s.
func (d *decoder) sid(s *Set, tagged bool) error {
	var sid SID
	if len(d.b) < len(sid.UUID) {
		return fmt.Errorf("%w: cut in a UUID", ErrEncoding)
	}
	d.b = d.b[copy(sid.UUID[:], d.b):]
	if tagged {
		// One byte holds any legal tag length: a longer varlen integer has its lowest bit set.
		if len(d.b) == 0 || d.b[0]&1 != 0 || len(d.b)-1 < int(d.b[0]>>1) {
			return fmt.Errorf("%w: bad tag length", ErrEncoding)
		}
		n := int(d.b[0] >> 1)
		if n > 0 {
			var err error
			if sid.Tag, err = ParseTag(string(d.b[1 : 1+n])); err != nil {
				return fmt.Errorf("%w: %w", ErrEncoding, err)
			}
		}
		d.b = d.b[1+n:]
	}
	n, ok := d.uint64()
	// The check keeps a lying count from allocating more than the input holds.
	if !ok || n > uint64(len(d.b)/16) {
		return fmt.Errorf("%w: cut in the intervals of %v", ErrEncoding, sid)
	}
	if n == 0 {
		return nil
	}
	e := s.entry(sid)
	fresh := len(e.list) == 0
	if fresh {
		e.list = make([]interval, 0, n)
	}
	previousEnd := uint64(0)
	for range n {
		first, _ := d.uint64()
		end, _ := d.uint64()
		if first <= previousEnd || end <= first || end > MaxGNO+1 {
			return fmt.Errorf("%w: interval [%d,%d) of %v", ErrEncoding, first, end, sid)
		}
		previousEnd = end
		if iv := (interval{int64(first), int64(end - 1)}); fresh {
			e.list = append(e.list, iv)
		} else {
			e.add(iv)
		}
	}
	return nil
}
