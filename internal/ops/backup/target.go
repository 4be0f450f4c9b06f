package backup

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Target is the moment to restore; the zero value is the end of the archive. At most one field is set.
type Target struct {
	Time  time.Time // everything up to the first transaction that was committed later
	GTID  gtid.GTID // everything up to and with this transaction
	Index uint64    // everything up to and with this entry of the raft log
}

// Point is a place in the log: after entry Index, or after the first Cut bytes of its events when Cut is not 0.
type Point struct {
	Index  uint64
	Cut    int
	GTIDs  gtid.Set  // of all transactions up to here
	Newest time.Time // commit time of the last of them, as far as this piece of the archive has it
	At     time.Time // the moment that was asked for, if it was one
}

// errFound ends a pass over entries.
var errFound = errors.New("found")

// Find finds the place in the log. The error is ErrTarget, with what the archive does hold; or ErrCorrupt.
func (c *Contents) Find(t Target) (Point, error) {
	if len(c.Segments) == 0 {
		return Point{}, fmt.Errorf("%w: it has no log", ErrTarget)
	}
	switch {
	case t.Index != 0:
		return c.findIndex(t.Index)
	case !t.GTID.IsZero():
		return c.findGTID(t.GTID)
	case !t.Time.IsZero():
		p, err := c.findTime(t.Time)
		p.At = t.Time
		return p, err
	}
	return c.end()
}

// end is all that there is.
func (c *Contents) end() (Point, error) {
	if err := c.whole(); err != nil {
		return Point{}, fmt.Errorf("%w; an earlier moment can be restored: %s", err, c.span())
	}
	return c.findIndex(c.Segments[len(c.Segments)-1].Last)
}

func (c *Contents) findIndex(index uint64) (Point, error) {
	i := c.at(index)
	if i < 0 {
		return Point{}, fmt.Errorf("%w: entry %d; it holds %s", ErrTarget, index, c.span())
	}
	p := Point{Index: index, GTIDs: c.Segments[i].Before.Clone()}
	return p, c.sum(i, &p)
}

// span says in words what the archive holds.
func (c *Contents) span() string {
	text := ""
	begin := c.Segments[0].First
	for i := range c.Segments {
		if i+1 < len(c.Segments) && c.Gap(i, i+1) == nil {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("entries %d to %d", begin, c.Segments[i].Last)
		if i+1 < len(c.Segments) {
			begin = c.Segments[i+1].First
		}
	}
	if !c.Reached.Newest.IsZero() {
		text += ", the newest transaction committed at " + c.Reached.Newest.UTC().Format(time.RFC3339Nano)
	}
	return text
}

// sum adds up what segment i holds up to p.
func (c *Contents) sum(i int, p *Point) error {
	_, err := readSegment(c.store, c.Segments[i].Name(), func(e Entry) error {
		if e.Index > p.Index {
			return errFound
		}
		if p.Cut > 0 && e.Index == p.Index {
			var err error
			if e.Data, err = cutEntry(e.Data, p.Cut); err != nil {
				return err
			}
		}
		m, events, ok, err := trxOf(&e)
		if err != nil || !ok {
			return err
		}
		for _, r := range m.GTIDs {
			p.GTIDs.AddRange(r)
		}
		return eachStart(events, func(_ int, g binlog.GTIDEvent) bool { p.Newest = commitTime(g); return true })
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	for j := i - 1; j >= 0 && p.Newest.IsZero() && c.Gap(j, j+1) == nil; j-- {
		p.Newest = c.Segments[j].Newest
	}
	return err
}

// trxOf decodes an entry that holds transactions; ok is false for all others.
func trxOf(e *Entry) (m raftlog.Meta, events []byte, ok bool, err error) {
	if e.Type != 0 || len(e.Data) == 0 {
		return m, nil, false, nil
	}
	m, events, err = raftlog.DecodeMeta(e.Data)
	return m, events, err == nil && m.Kind == raftlog.Trx, err
}

func (c *Contents) findGTID(g gtid.GTID) (Point, error) {
	i := slices.IndexFunc(c.Segments, func(s Segment) bool { return s.GTIDs.Contains(g) })
	switch {
	case i < 0 && c.Segments[0].Before.Contains(g):
		return Point{}, fmt.Errorf("%w: transaction %s was committed before the archive begins; it holds %s", ErrTarget, g,
			c.span())
	case i < 0:
		return Point{}, fmt.Errorf("%w: transaction %s; it holds %s", ErrTarget, g, c.span())
	}
	p := Point{GTIDs: c.Segments[i].Before.Clone()}
	_, err := readSegment(c.store, c.Segments[i].Name(), func(e Entry) error {
		m, events, ok, err := trxOf(&e)
		if err != nil || !ok ||
			!slices.ContainsFunc(m.GTIDs,
				func(r gtid.Range) bool { return r.SID == g.SID && r.First <= g.GNO && g.GNO <= r.Last }) {
			return err
		}
		p.Index = e.Index
		// The transaction ends where the next one begins, if any does here. One that began in an earlier entry is the
		// first that ends here.
		first := gtid.GTID{SID: m.GTIDs[0].SID, GNO: m.GTIDs[0].First}
		ended := m.Flags&raftlog.FlagContinues != 0 && first == g
		err = eachStart(events, func(off int, at binlog.GTIDEvent) bool {
			if ended {
				p.Cut = off
				return false
			}
			ended = at.GTID == g
			return true
		})
		return errors.Join(err, errFound)
	})
	switch {
	case err == nil:
		return p, fmt.Errorf("%w: %s does not hold transaction %s, although its head says so", ErrCorrupt,
			c.Segments[i].Name(), g)
	case !errors.Is(err, errFound):
		return p, err
	}
	return p, c.sum(i, &p)
}

// findTime goes by the order of the log, not of the clocks: what stands before the first later transaction is taken.
func (c *Contents) findTime(t time.Time) (Point, error) {
	i := slices.IndexFunc(c.Segments, func(s Segment) bool { return s.Newest.After(t) })
	if i < 0 {
		if end := later(c.Reached.At, c.Reached.Newest); t.After(end) {
			return Point{},
				fmt.Errorf("%w: the log is known to be complete up to %s, not up to %s; leave the time out to restore all of it",
					ErrTarget,
					end.UTC().Format(time.RFC3339Nano), t.UTC().Format(time.RFC3339Nano))
		}
		return c.end()
	}
	p := Point{GTIDs: c.Segments[i].Before.Clone()}
	_, err := readSegment(c.store, c.Segments[i].Name(), func(e Entry) error {
		_, events, ok, err := trxOf(&e)
		if err != nil || !ok {
			return err
		}
		found := false
		err = eachStart(events, func(off int, g binlog.GTIDEvent) bool {
			if found = commitTime(g).After(t); found {
				p.Index, p.Cut = e.Index, off
			}
			return !found
		})
		if found {
			return errors.Join(err, errFound)
		}
		return err
	})
	switch {
	case err == nil:
		return p, fmt.Errorf("%w: %s holds no transaction as new as its head says", ErrCorrupt, c.Segments[i].Name())
	case !errors.Is(err, errFound):
		return p, err
	}
	if p.Cut == 0 {
		p.Index--
		if p.Index < c.Segments[i].First {
			if i--; i < 0 || c.Gap(i, i+1) != nil {
				return p, fmt.Errorf("%w: the first transaction after %s is the first one that is archived; it holds %s", ErrTarget,
					t.UTC().Format(time.RFC3339Nano), c.span())
			}
			p.GTIDs = c.Segments[i].Before.Clone()
		}
	}
	return p, c.sum(i, &p)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cutEntry makes an entry of the transactions that end within the first n bytes of another one's events.
func cutEntry(data []byte, n int) ([]byte, error) {
	m, events, err := raftlog.DecodeMeta(data)
	if err != nil {
		return nil, err
	}
	kept := 0
	if m.Flags&raftlog.FlagContinues != 0 {
		kept++
	}
	err = eachStart(events, func(off int, _ binlog.GTIDEvent) bool {
		if off < n {
			kept++
		}
		return off < n
	})
	if err != nil {
		return nil, err
	}
	var of []gtid.Range
	for _, r := range m.GTIDs {
		if kept == 0 {
			break
		}
		r.Last = min(r.Last, r.First+int64(kept)-1)
		kept -= int(r.Len())
		of = append(of, r)
	}
	m.GTIDs, m.Flags = of, m.Flags&^raftlog.FlagUnfinished
	return append(raftlog.AppendMeta(nil, &m), events[:n]...), nil
}

// base picks the newest copy before p, with the segments that lead from it to p: from first to last.
func (c *Contents) base(p *Point) (b *Base, first, last int, err error) {
	last = c.at(p.Index)
	var why []error
	for i := len(c.Bases) - 1; i >= 0; i-- {
		b := &c.Bases[i]
		if b.Last > p.Index || b.Last == p.Index && p.Cut > 0 {
			why = append(why, fmt.Errorf("the copy %s holds what was committed up to entry %d, which is later", b.Name, b.Last))
			continue
		}
		// Nothing that was archived was committed by that moment: what is in the copy may have been committed later.
		if p.Newest.IsZero() && b.Made.After(p.At) && !p.At.IsZero() {
			why = append(why, fmt.Errorf("the copy %s is of %s, which is later, and no transaction before %s is archived",
				b.Name,
				b.Made.UTC().Format(time.RFC3339), p.At.UTC().Format(time.RFC3339Nano)))
			continue
		}
		if b.Index == p.Index { // there is nothing to apply
			return b, last, last, nil
		}
		first := c.at(b.Index + 1)
		if first < 0 {
			why = append(why, fmt.Errorf("%w: the log after the copy %s, from entry %d on", ErrMissing, b.Name, b.Index+1))
			continue
		}
		// A transaction that is under way there begins below.
		first = c.clean(first)
		if open := c.Segments[first].Open; open != 0 {
			why = append(why, fmt.Errorf("%w: entry %d, in which a transaction begins that ends after the copy %s", ErrMissing,
				open, b.Name))
			continue
		}
		if err := c.Gap(first, last); err != nil {
			why = append(why, fmt.Errorf("the copy %s cannot be brought there: %w", b.Name, err))
			continue
		}
		return b, first, last, nil
	}
	if len(c.Bases) == 0 {
		return nil, 0, 0, fmt.Errorf("%w: it holds no complete copy of the data: run `trireme backup` without interruption",
			ErrTarget)
	}
	if at := c.earliest(); !at.IsZero() {
		return nil, 0, 0,
			fmt.Errorf("%w: the earliest moment that can be restored is %s; no copy can be brought to entry %d: %w", ErrTarget,
				at.Format(time.RFC3339), p.Index, errors.Join(why...))
	}
	return nil, 0, 0, fmt.Errorf("%w: no copy can be brought to entry %d: %w", ErrTarget, p.Index, errors.Join(why...))
}
