package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Contents is what a backup holds, by its manifests and the heads of its segments.
type Contents struct {
	Cluster   string
	ClusterID uint64
	Bases     []Base    // oldest first; only complete ones
	Segments  []Segment // in log order
	Reached   Reached
	// Damaged are objects that cannot be used. The others can, as if those were missing.
	Damaged []Problem
	store   Store
	unsure  error // Reached could not be read: what had been archived is not known
}

// readAgain is how often a backup is read again whose segments were merged meanwhile.
const readAgain = 5

// Read reads what a backup holds. The errors are ErrNone, and ErrCorrupt or ErrNewer for what names the cluster; a gap
// in the log is no error here (Gap), and neither is damage (Contents.Damaged): one object that cannot be read takes no
// moment away that can be restored without it.
func Read(s Store) (c *Contents, err error) {
	for range readAgain {
		if c, err = read(s); !errors.Is(err, ErrMissing) {
			break
		}
	}
	return c, err
}

func read(s Store) (*Contents, error) {
	c := &Contents{store: s}
	id, err := whose(s)
	if err != nil {
		return nil, err
	}
	c.Cluster, c.ClusterID = id.Cluster, id.ClusterID
	// The note first: what it speaks of was stored before it.
	if err := getSealed(s, reachedName, &c.Reached); err != nil && !errors.Is(err, ErrMissing) {
		c.Reached = Reached{}
		if c.unsure, err = err, c.damaged(reachedName, err); err != nil {
			return nil, err
		}
	}
	names, err := segmentNames(s)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		seg, err := readHead(s, name)
		if err == nil && seg.ClusterID != id.ClusterID {
			err = fmt.Errorf("%w: %s is of cluster %s", ErrForeign, name, seg.Cluster)
		}
		if err == nil {
			c.Segments = append(c.Segments, seg)
		} else if err := c.damaged(name, err); err != nil {
			return nil, err
		}
	}
	if err := c.readBases(id); err != nil {
		return nil, err
	}
	c.reach()
	return c, nil
}

// reach brings Reached up to the last segment: it is stored now and then only.
func (c *Contents) reach() {
	if n := len(c.Segments); n > 0 && c.Segments[n-1].Last > c.Reached.Index {
		last := &c.Segments[n-1]
		c.Reached.Index, c.Reached.GTIDs = last.Last, last.Before.Union(last.GTIDs)
		for _, seg := range c.Segments {
			if seg.Newest.After(c.Reached.Newest) {
				c.Reached.Newest = seg.Newest
			}
		}
	}
}

// whose says which cluster's backup a store is, and that its key is ours. Nothing is written before that: it may be no
// backup at all.
func whose(s Store) (id identity, err error) {
	err = getSealed(s, identityName, &id)
	switch {
	case errors.Is(err, ErrMissing):
		err = fmt.Errorf("%w: %s has no %s", ErrNone, s, identityName)
	case err == nil:
		err = fitsKey(s, &id)
	}
	return id, err
}

func (c *Contents) readBases(id identity) error {
	names, err := baseNames(c.store)
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := readBase(c.store, name, id)
		if err == nil {
			c.Bases = append(c.Bases, b)
		} else if err := c.damaged(name, err); err != nil {
			return err
		}
	}
	return nil
}

// damaged notes what is wrong with an object. It returns errors that say nothing of the object: one that is gone, a
// disk that does not answer.
func (c *Contents) damaged(object string, err error) error {
	for _, known := range []error{ErrCorrupt, ErrForeign, ErrNewer} {
		if errors.Is(err, known) {
			c.Damaged = append(c.Damaged, Problem{object, err.Error()})
			return nil
		}
	}
	return err
}

// named adds what is damaged to an error that may come of it.
func (c *Contents) named(err error) error {
	if err == nil || len(c.Damaged) == 0 {
		return err
	}
	return fmt.Errorf("%w; %d objects are damaged, the first is %s: %s; see `trireme backup verify`", err, len(c.Damaged),
		c.Damaged[0].Object, c.Damaged[0].What)
}

// segmentNames lists the segments, in log order.
func segmentNames(s Store) ([]string, error) {
	all, err := s.List(logPrefix)
	if err != nil {
		return nil, err
	}
	kept, _ := newestOf(all)
	return kept, nil
}

// lastSegment returns the head of the newest segment; nil if there are no segments.
func lastSegment(s Store) (*Segment, error) {
	names, err := segmentNames(s)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	seg, err := readHead(s, names[len(names)-1])
	return &seg, err
}

// follows says why b is not what comes after a in the log; nil: it is.
func (a *Segment) follows(b *Segment) error {
	switch {
	case b.First <= a.Last:
		return fmt.Errorf("%w: %s and %s overlap", ErrCorrupt, a.Name(), b.Name())
	case b.First > a.Last+1:
		return fmt.Errorf("%w: entries %d to %d, between %s and %s", ErrMissing, a.Last+1, b.First-1, a.Name(), b.Name())
	case b.PrevTerm != a.LastTerm || !b.Before.Equal(a.Before.Union(a.GTIDs)):
		return fmt.Errorf("%w: %s does not continue %s, although its number does", ErrCorrupt, b.Name(), a.Name())
	}
	return nil
}

// Gap says why the segments from number i to number j do not make one piece of log; nil: they do.
func (c *Contents) Gap(i, j int) error {
	for k := i + 1; k <= j; k++ {
		if err := c.Segments[k-1].follows(&c.Segments[k]); err != nil {
			return err
		}
	}
	return nil
}

// clean goes back from segment i to the next one that begins within no transaction, as far as the log is there: with
// such a one a feed begins.
func (c *Contents) clean(i int) int {
	for i > 0 && c.Segments[i].Open != 0 && c.Gap(i-1, i) == nil {
		i--
	}
	return i
}

// whole says why the end of the log is not all that was archived; nil: it is.
func (c *Contents) whole() error {
	if c.unsure != nil {
		return c.unsure
	}
	last := uint64(0)
	if n := len(c.Segments); n > 0 {
		last = c.Segments[n-1].Last
	}
	if c.Reached.Index > last {
		return fmt.Errorf("%w: entries %d to %d, which had been archived", ErrMissing, last+1, c.Reached.Index)
	}
	return nil
}

// at is the number of the segment that holds entry index; -1: none does.
func (c *Contents) at(index uint64) int {
	i, found := slices.BinarySearchFunc(c.Segments, index, func(s Segment, index uint64) int {
		switch {
		case s.Last < index:
			return -1
		case s.First > index:
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return i
}

// Problem is what Verify found wrong with one object.
type Problem struct {
	Object string `json:"object"`
	What   string `json:"what"`
}

// Verification is the outcome of Verify.
type Verification struct {
	Cluster  string    `json:"cluster"`
	Bases    int       `json:"bases"`
	Segments int       `json:"segments"`
	Bytes    int64     `json:"bytes"` // that were read
	Problems []Problem `json:"problems"`
	// Restorable are the stretches of log that a copy can be brought forward along, by the copy's name.
	Restorable map[string]Restorable `json:"restorable"`
}

// Restorable is a stretch with its moments: see Contents.Moments.
type Restorable struct {
	Stretch
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Stretch is what one copy can be restored to.
type Stretch struct {
	From uint64 `json:"from"` // index; the state right after it can be had, and after each later one
	To   uint64 `json:"to"`
}

// Verify reads every byte of a backup, also when a part of it is damaged. object, if not nil, is told what is read now.
// The error is of a store that cannot be read, or of a backup that there is not.
func Verify(ctx context.Context, s Store, object func(name string)) (*Verification, error) {
	if object == nil {
		object = func(string) {}
	}
	id, err := whose(s)
	if err != nil {
		return nil, err
	}
	still, err := holdStill(s, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = still.Close() }()
	v := &Verification{Cluster: id.Cluster, Problems: []Problem{}, Restorable: map[string]Restorable{}}
	c := &Contents{Cluster: id.Cluster, ClusterID: id.ClusterID, store: s}
	if err := getSealed(s, reachedName, &c.Reached); err != nil && !errors.Is(err, ErrMissing) {
		if err := v.found(reachedName, err); err != nil {
			return nil, err
		}
	}
	var begin trimmed
	if err := getSealed(s, prunedName, &begin); err != nil && !errors.Is(err, ErrMissing) {
		if err := v.found(prunedName, err); err != nil {
			return nil, err
		}
	}
	if err := v.log(ctx, c, begin.First, object); err != nil {
		return nil, err
	}
	if err := c.whole(); err != nil {
		v.Problems = append(v.Problems, Problem{logPrefix, err.Error()})
	}
	c.reach()
	if err := v.bases(ctx, c, id, object); err != nil {
		return nil, err
	}
	return v, nil
}

// found notes what is wrong with an object. It returns errors that say nothing of the backup: a disk that does not
// answer.
func (v *Verification) found(object string, err error) error {
	for _, known := range []error{ErrCorrupt, ErrMissing, ErrForeign, ErrNewer} {
		if errors.Is(err, known) {
			v.Problems = append(v.Problems, Problem{object, err.Error()})
			return nil
		}
	}
	return err
}

// log reads all segments. Those that are whole are c's. What lay below entry begin was removed on purpose.
func (v *Verification) log(ctx context.Context, c *Contents, begin uint64, object func(string)) error {
	names, err := segmentNames(c.store)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		object(name)
		seg, err := readSegment(c.store, name, func(Entry) error { return nil })
		if err == nil && seg.ClusterID != c.ClusterID {
			err = fmt.Errorf("%w: %s is of cluster %s", ErrForeign, name, seg.Cluster)
		}
		if err != nil {
			if err := v.found(name, err); err != nil {
				return err
			}
			continue
		}
		v.Segments++
		v.Bytes += seg.Bytes
		if n := len(c.Segments); n > 0 && !seg.Begins {
			if err := v.found(name, c.Segments[n-1].follows(&seg)); err != nil {
				return err
			}
		} else if n == 0 && !seg.Begins && seg.First > begin {
			v.Problems = append(v.Problems,
				Problem{name, fmt.Sprintf("%v: the segment before it, which ends at entry %d", ErrMissing, seg.First-1)})
		}
		c.Segments = append(c.Segments, seg)
	}
	return nil
}

// bases reads all copies, and finds out what each can be restored to.
func (v *Verification) bases(ctx context.Context, c *Contents, id identity, object func(string)) error {
	names, err := baseNames(c.store)
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := readBase(c.store, name, id)
		if err == nil {
			object(b.prefix())
			err = b.verify(ctx, c.store)
		}
		if err != nil {
			if err := v.found(name, err); err != nil {
				return err
			}
			continue
		}
		v.Bases++
		v.Bytes += b.Stored
		stretch, err := c.Restorable(&b)
		if err != nil {
			v.Problems = append(v.Problems, Problem{name, err.Error()})
			continue
		}
		since, until := c.Moments(&b, stretch)
		v.Restorable[b.Name] = Restorable{stretch, since, until}
	}
	return nil
}

// Restorable is what a copy can be restored to. The error is ErrMissing when the log that belongs to it is not there.
func (c *Contents) Restorable(b *Base) (Stretch, error) {
	i := c.at(b.Last)
	if i < 0 {
		return Stretch{}, fmt.Errorf("%w: the log up to entry %d, without which the copy is unusable", ErrMissing, b.Last)
	}
	first := c.at(b.Index + 1)
	switch {
	case first < 0 && b.Index < b.Last:
		return Stretch{}, fmt.Errorf("%w: the log from entry %d on, without which the copy is unusable", ErrMissing,
			b.Index+1)
	case first < 0:
		return Stretch{b.Last, b.Last}, nil
	}
	if err := c.Gap(first, i); err != nil {
		return Stretch{}, err
	}
	if open := c.Segments[c.clean(first)].Open; open != 0 && b.Index == b.Last {
		return Stretch{b.Last, b.Last}, nil
	} else if open != 0 {
		return Stretch{}, fmt.Errorf("%w: entry %d, in which a transaction begins without which the copy is unusable",
			ErrMissing, open)
	}
	for i+1 < len(c.Segments) && c.Gap(i, i+1) == nil {
		i++
	}
	return Stretch{b.Last, c.Segments[i].Last}, nil
}

// Moments are the first and the last that a copy can be restored to along a stretch, whole seconds; zero: not known.
func (c *Contents) Moments(b *Base, s Stretch) (first, last time.Time) {
	last = later(c.Reached.At, c.Reached.Newest)
	if i := c.at(s.To); i >= 0 && i+1 < len(c.Segments) {
		last = c.Segments[i].Newest
	}
	first, last = b.Made.Add(time.Second-1).UTC().Truncate(time.Second), last.UTC().Truncate(time.Second)
	if b.Made.IsZero() || last.Before(first) {
		return time.Time{}, time.Time{}
	}
	return first, last
}

// earliest is the first moment that any copy can be restored to; zero: none, or it is not known.
func (c *Contents) earliest() (at time.Time) {
	for i := range c.Bases {
		b := &c.Bases[i]
		s, err := c.Restorable(b)
		if err != nil {
			continue
		}
		if first, _ := c.Moments(b, s); !first.IsZero() && (at.IsZero() || first.Before(at)) {
			at = first
		}
	}
	return at
}

// peek makes a reader of an object that may be long.
func peek(s Store, name string) (*bufio.Reader, func(), error) {
	f, err := s.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return bufio.NewReaderSize(f, 1<<20), func() { _ = f.Close() }, nil
}
