package backup

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A process that follows the log stores a segment every few seconds. Small ones that follow each other are merged now and then, so that a backup
// of a year is some thousand objects and not ten million.
const (
	smallRaw = segmentRaw / 4 // a segment with less is small
	mergeMin = 200            // so many small ones in a row are merged
)

// merge merges small segments. The merged one is stored before its pieces go: whoever reads meanwhile finds the entries twice, and takes the
// larger segment (newestOf). The caller has the lock of the log. The error is ErrLocked while a backup is restored or verified.
func merge(s Store, id clusterID) error {
	alone, err := holdStill(s, true)
	if err != nil {
		return err
	}
	defer func() { _ = alone.Close() }()
	names, err := s.List(logPrefix)
	if err != nil {
		return err
	}
	kept, covered := newestOf(names)
	for _, name := range covered { // by a merge that was interrupted
		if err := s.Remove(name); err != nil {
			return err
		}
	}
	var row []Segment
	raw := int64(0)
	for _, name := range kept {
		seg, err := readHead(s, name)
		if err != nil {
			return err
		}
		joins := len(row) > 0 && !seg.Begins && row[len(row)-1].follows(&seg) == nil
		if len(row) > 0 && (!joins || seg.Raw >= smallRaw || raw+seg.Raw > segmentRaw) {
			if err := mergeRow(s, id, row); err != nil {
				return err
			}
			row, raw = nil, 0
		}
		if seg.Raw < smallRaw {
			row = append(row, seg)
			raw += seg.Raw
		}
	}
	return mergeRow(s, id, row)
}

// mergeRow makes one segment of many.
func mergeRow(s Store, id clusterID, row []Segment) error {
	if len(row) < mergeMin {
		return nil
	}
	first := &row[0]
	w, err := newSegmentWriter(id, &position{index: first.First - 1, term: first.PrevTerm, gtids: first.Before, fde: first.FDE, open: first.Open}, first.Begins)
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
	for i := range row {
		if err := s.Remove(row[i].Name()); err != nil {
			return err
		}
	}
	return nil
}

// newestOf divides objects that are segments into those that count, in log order, and those whose entries are in a larger one.
func newestOf(names []string) (kept, covered []string) {
	type piece struct {
		name        string
		first, last uint64
	}
	var all []piece
	for _, name := range names {
		first, last, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, logPrefix), segmentSuffix), "-")
		a, errA := strconv.ParseUint(first, 16, 64)
		b, errB := strconv.ParseUint(last, 16, 64)
		if isSegment(name) && ok && errA == nil && errB == nil {
			all = append(all, piece{name, a, b})
		}
	}
	slices.SortFunc(all, func(a, b piece) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last)) })
	end := uint64(0)
	for _, p := range all {
		if p.last <= end {
			covered = append(covered, p.name)
			continue
		}
		kept, end = append(kept, p.name), p.last
	}
	return kept, covered
}
