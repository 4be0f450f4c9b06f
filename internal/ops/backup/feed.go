package backup

import (
	"context"
	"fmt"
	"slices"

	"trireme/internal/base/config"
	"trireme/internal/core/dump"
	"trireme/internal/mysql/gtid"
)

// feedLog gives a piece of the archived log, up to a point, to a feed: to the server it is the committed log of a node.
type feedLog struct {
	c     *Contents
	first int // segments
	last  int
	point Point

	held    int // segment whose entries are held; -1: none
	entries []dump.Entry
}

func newFeedLog(c *Contents, first, last int, p Point) *feedLog {
	return &feedLog{c: c, first: first, last: last, point: p, held: -1}
}

// FirstIndex implements dump.Log, as all methods do.
func (l *feedLog) FirstIndex() uint64 { return l.c.Segments[l.first].First }

// Committed is where the restoration ends.
func (l *feedLog) Committed() uint64 { return l.point.Index }

// WaitCommitted waits for the end of ctx: nothing is added.
func (l *feedLog) WaitCommitted(ctx context.Context, index uint64) error {
	if index <= l.point.Index {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// SeekGTID finds a segment to begin with. What the receiver has of it is skipped.
func (l *feedLog) SeekGTID(set gtid.Set) (uint64, []byte, error) {
	for i := l.last; i >= l.first; i-- {
		s := &l.c.Segments[i]
		if !set.ContainsSet(s.Before) {
			continue
		}
		if j := l.c.clean(i); j >= l.first && l.c.Segments[j].Open == 0 {
			return l.c.Segments[j].First, l.c.Segments[j].FDE, nil
		}
	}
	return 0, nil, fmt.Errorf("%w: what the copy lacks lies below entry %d: %s", dump.ErrPurged, l.FirstIndex(),
		l.c.Segments[l.first].Before.Subtract(set))
}

// Read gives entries of one segment.
func (l *feedLog) Read(ctx context.Context, from, to uint64, maxBytes int) ([]dump.Entry, error) {
	to = min(to, l.point.Index)
	i := l.c.at(from)
	if i < l.first || i > l.last || from > to {
		return nil, fmt.Errorf("%w: entry %d", dump.ErrPurged, from)
	}
	if err := l.hold(i); err != nil {
		return nil, err
	}
	s := &l.c.Segments[i]
	out := l.entries[from-s.First : min(to, s.Last)-s.First+1]
	for n, size := 0, 0; n < len(out); n++ {
		if size += len(out[n].Data); size > maxBytes && n > 0 {
			out = out[:n]
		}
	}
	return out, ctx.Err()
}

// void reports whether a transaction was declared void, before the restoration's end or after it.
func (l *feedLog) void(g gtid.GTID) bool { return l.decided(g, "") }

// tolerant reports whether a transaction was applied tolerantly.
func (l *feedLog) tolerant(g gtid.GTID) bool { return l.decided(g, config.TolerantMark) && !l.void(g) }

func (l *feedLog) decided(g gtid.GTID, kind string) bool {
	for i := range l.c.Segments {
		if voids := l.c.Segments[i].Voids; len(voids) > 0 && slices.Contains(voids, g.String()+kind) {
			return true
		}
	}
	return false
}

// hold decodes a segment, instead of the one before it.
func (l *feedLog) hold(i int) error {
	if l.held == i {
		return nil
	}
	l.held, l.entries = -1, nil
	_, err := readSegment(l.c.store, l.c.Segments[i].Name(), func(e Entry) (err error) {
		if e.Type != 0 {
			e.Data = nil // a membership change
		}
		if e.Index == l.point.Index && l.point.Cut > 0 {
			if e.Data, err = cutEntry(e.Data, l.point.Cut); err != nil {
				return err
			}
		}
		l.entries = append(l.entries, dump.Entry{Index: e.Index, Term: e.Term, Data: e.Data})
		return nil
	})
	if err == nil {
		l.held = i
	}
	return err
}
