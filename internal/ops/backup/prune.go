package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"trireme/internal/base/poll"
)

// Retention says what Prune keeps; one field is set. One copy that can be restored is always kept.
type Retention struct {
	Copies int           // so many of the newest copies that can be restored
	For    time.Duration // every moment from so long ago on: the copies since then, and the newest one from before
}

// Pruned is what Prune removed, or would.
type Pruned struct {
	Kept     []string `json:"kept"`     // copies
	Copies   []string `json:"copies"`   // that are gone
	Segments int      `json:"segments"` // of log that are gone
	Bytes    int64    `json:"bytes"`    // of both, about
	First    uint64   `json:"first"`    // entry with which the log begins now
	// Since is the first moment that what is kept can be restored to; zero: not known.
	Since time.Time `json:"restorable_since,omitzero"`
}

// trimmed is log/pruned.json: that the log begins with an entry is no damage.
type trimmed struct {
	Version int    `json:"version"`
	First   uint64 `json:"first"`
}

const prunedName = logPrefix + "pruned.json"

// pruneWait is how long Prune waits for a merge, or until a reader of a bucket that was killed is known to be dead. Who
// restores or verifies takes longer, and is not waited for.
const pruneWait = 30 * time.Second

// Prune removes copies, and the log that none of the others needs. What cannot be read is left alone. Archiving may
// continue meanwhile. Killed in between it has removed whole copies, and less than it might. With dry it removes
// nothing. The errors are Read's, ErrLocked while a copy is taken, or the backup is restored or verified, and ErrTarget
// when nothing can be restored as it is.
func Prune(ctx context.Context, d Place, keep Retention, now time.Time, dry bool) (*Pruned, error) {
	if _, err := whose(d); err != nil {
		return nil, err
	}
	l, err := d.Lock(lockBase)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	alone, err := holdAlone(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { _ = alone.Close() }()
	c, err := Read(d)
	if err != nil {
		return nil, err
	}
	drop, first, err := c.prunable(keep, now)
	if err != nil {
		return nil, c.named(err)
	}
	p := &Pruned{Kept: []string{}, Copies: []string{}, First: first}
	for i := range c.Bases {
		b := &c.Bases[i]
		if i >= drop {
			p.Kept = append(p.Kept, b.Name)
			continue
		}
		p.Copies, p.Bytes = append(p.Copies, b.Name), p.Bytes+b.Stored
	}
	for i := range c.Segments {
		if c.Segments[i].Last < first {
			p.Segments, p.Bytes = p.Segments+1, p.Bytes+c.Segments[i].Bytes
		}
	}
	drops := c.Bases[:drop]
	c.Bases = c.Bases[drop:]
	p.Since = c.earliest()
	if dry {
		return p, nil
	}
	return p, errors.Join(dropCopies(d, drops), dropLog(d, first))
}

// holdAlone waits for a merge.
func holdAlone(ctx context.Context, d Place) (io.Closer, error) {
	ctx, cancel := context.WithTimeout(ctx, pruneWait)
	defer cancel()
	for {
		alone, err := d.hold(true)
		if !errors.Is(err, ErrLocked) {
			return alone, err
		}
		if poll.Pause(ctx, archivePause/10) != nil {
			return nil, err
		}
	}
}

// prunable finds what a retention lets go: so many of the oldest copies, and the log below entry first.
func (c *Contents) prunable(keep Retention, now time.Time) (drop int, first uint64, err error) {
	var good []int
	for i := range c.Bases {
		if _, err := c.Restorable(&c.Bases[i]); err == nil {
			good = append(good, i)
		}
	}
	if len(good) == 0 {
		return 0, 0, fmt.Errorf("%w: no copy can be restored, so nothing is removed", ErrTarget)
	}
	if keep.Copies > 0 {
		drop = good[max(0, len(good)-keep.Copies)]
	} else {
		for _, i := range good {
			if !c.Bases[i].Made.After(now.Add(-keep.For)) {
				drop = i
			}
		}
	}
	at := len(c.Segments) - 1 // the last one says where the archive goes on
	for i := drop; i < len(c.Bases); i++ {
		needs := min(c.Bases[i].Index+1, c.Bases[i].Last)
		s, _ := slices.BinarySearchFunc(c.Segments, needs, func(s Segment, index uint64) int {
			if s.Last < index {
				return -1
			}
			return 1
		})
		at = min(at, c.clean(min(s, len(c.Segments)-1)))
	}
	return drop, c.Segments[at].First, nil
}

// dropCopies removes copies: first what makes them count.
func dropCopies(d Place, drop []Base) error {
	if len(drop) == 0 {
		return nil
	}
	for i := range drop {
		if err := d.Remove(drop[i].manifest()); err != nil {
			return err
		}
	}
	return dropUnfinished(d)
}

// dropLog removes the log below an entry. That this is no damage is noted before.
func dropLog(d Place, first uint64) error {
	names, err := d.List(logPrefix)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, last, ok := spanOf(name)
		return !ok || last >= first
	})
	if len(names) == 0 {
		return nil
	}
	if err := putSealed(d, prunedName, &trimmed{formatVersion, first}); err != nil {
		return err
	}
	for _, name := range names {
		if err := d.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
