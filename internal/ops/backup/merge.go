package backup

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A process that follows the log stores a segment every few seconds. Small ones that follow each other are merged now
// and then, so that a backup of a year is some thousand objects and not ten million.
const (
	smallRaw = segmentRaw / 4 // a segment with less is small
	mergeMin = 200            // so many small ones in a row are merged
)

// merge merges small segments of which entries from some index on are; next is where the next call has to begin. The
// merged one is stored before its pieces go: a reader meanwhile finds the entries twice, and takes the larger segment
// (newestOf). The caller has the lock of the log. The error is ErrLocked while a backup is restored or verified;
// ErrCorrupt, when pieces are damaged, does not keep the others from being merged.
func merge(s Store, id clusterID, from uint64) (next uint64, err error) {
	alone, err := holdStill(s, true)
	if err != nil {
		return from, err
	}
	defer func() { _ = alone.Close() }()
	names, err := s.List(logPrefix)
	if err != nil {
		return from, err
	}
	kept, covered := newestOf(names)
	m := merging{store: s, id: id, next: from, bad: dropCovered(s, covered)}
	if m.fatal() {
		return from, m.bad
	}
	for _, name := range kept {
		if _, last, ok := spanOf(name); !ok || last < from {
			continue
		}
		if err := m.take(name); err != nil {
			return from, err
		}
	}
	return m.next, errors.Join(m.bad, m.end(false))
}

// dropCovered removes pieces that a merge has left which was interrupted, if what holds their entries now is whole:
// else they are all that there is.
func dropCovered(s Store, covered []piece) error {
	whole := map[string]error{}
	var all []error
	for _, p := range covered {
		err, known := whole[p.by]
		if !known {
			_, err = readSegment(s, p.by, func(Entry) error { return nil })
			whole[p.by] = err
			all = append(all, err)
		}
		if err != nil {
			continue
		}
		if err := s.Remove(p.name); err != nil {
			return err
		}
	}
	return errors.Join(all...)
}

// merging is one pass over the segments: row are small ones that are one piece of log.
type merging struct {
	store Store
	id    clusterID
	row   []Segment
	raw   int64
	next  uint64
	bad   error // damage that was met
}

// fatal tells what ends a pass from damage of one segment.
func (m *merging) fatal() bool { return m.bad != nil && !errors.Is(m.bad, ErrCorrupt) }

// take takes the next segment.
func (m *merging) take(name string) error {
	seg, err := readHead(m.store, name)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	if err != nil { // it stays as it is, and nothing is merged across it
		m.bad = errors.Join(m.bad, err)
		return m.end(false)
	}
	small := seg.Raw < smallRaw
	if n := len(m.row); n > 0 {
		full := m.raw+seg.Raw > segmentRaw
		if full || !small || seg.Begins || m.row[n-1].follows(&seg) != nil {
			if err := m.end(full); err != nil {
				return err
			}
		}
	}
	if small {
		if len(m.row) == 0 {
			m.next = seg.First
		}
		m.row, m.raw = append(m.row, seg), m.raw+seg.Raw
	} else {
		m.next = seg.Last + 1
	}
	return nil
}

// end merges the row, if it is full or long enough, and begins another one.
func (m *merging) end(full bool) error {
	row := m.row
	m.row, m.raw = nil, 0
	if len(row) < mergeMin && !(full && len(row) > 1) {
		return nil
	}
	err := mergeRow(m.store, m.id, row)
	if errors.Is(err, ErrCorrupt) {
		m.bad, err = errors.Join(m.bad, err), nil
	}
	return err
}

// mergeRow makes one segment of many. They go when it can be read.
func mergeRow(s Store, id clusterID, row []Segment) error {
	first := &row[0]
	w, err := newSegmentWriter(id, first.boundary(), first.Begins)
	if err != nil {
		return err
	}
	for i := range row {
		if _, err := readSegment(s, row[i].Name(), func(e Entry) error { return w.add(&e) }); err != nil {
			return err
		}
	}
	if err := w.put(s); err != nil {
		return err
	}
	if _, err := readSegment(s, w.Name(), func(Entry) error { return nil }); err != nil {
		return errors.Join(err, s.Remove(w.Name())) // it would count instead of its pieces
	}
	for i := range row {
		if err := s.Remove(row[i].Name()); err != nil {
			return err
		}
	}
	return nil
}

// spanOf are the first and last entries of a segment, by its name.
func spanOf(name string) (first, last uint64, ok bool) {
	a, b, cut := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, logPrefix), segmentSuffix), "-")
	first, errA := strconv.ParseUint(a, 16, 64)
	last, errB := strconv.ParseUint(b, 16, 64)
	return first, last, isSegment(name) && cut && errA == nil && errB == nil
}

// piece is a segment whose entries are in a larger one.
type piece struct{ name, by string }

// newestOf divides objects that are segments into those that count, in log order, and those whose entries are in a
// larger one.
func newestOf(names []string) (kept []string, covered []piece) {
	type span struct {
		name        string
		first, last uint64
	}
	var all []span
	for _, name := range names {
		if first, last, ok := spanOf(name); ok {
			all = append(all, span{name, first, last})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last)) })
	end := uint64(0)
	for _, s := range all {
		if s.last <= end {
			covered = append(covered, piece{s.name, kept[len(kept)-1]})
			continue
		}
		kept, end = append(kept, s.name), s.last
	}
	return kept, covered
}
