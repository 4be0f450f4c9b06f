package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"trireme/internal/gtid"
)

// clusterID says whose a backup is.
type clusterID struct {
	Name string
	ID   uint64
}

// identity is backup.json.
type identity struct {
	Version   int       `json:"version"`
	Cluster   string    `json:"cluster"`
	ClusterID uint64    `json:"cluster_id"`
	Made      time.Time `json:"made"`
}

const identityName = "backup.json"

// claim makes a store a backup of the cluster, or checks that it is one.
func claim(s Store, id clusterID) error {
	var have identity
	err := getSealed(s, identityName, &have)
	if errors.Is(err, ErrMissing) {
		old, lerr := segmentNames(s)
		if lerr != nil {
			return lerr
		}
		if len(old) > 0 {
			return fmt.Errorf("%w; %s holds a part of a backup: begin another one in an empty directory", err, s)
		}
		return putSealed(s, identityName, &identity{formatVersion, id.Name, id.ID, time.Now().UTC()})
	}
	if err == nil && have.ClusterID != id.ID {
		err = fmt.Errorf("%w: %s is of cluster %s (id %d), this node is of %s (id %d): give each cluster a directory of its own", ErrForeign, s,
			have.Cluster, have.ClusterID, id.Name, id.ID)
	}
	return err
}

// Reached says how far the archive of the log goes.
type Reached struct {
	Version int       `json:"version"`
	Index   uint64    `json:"index"`             // last entry
	GTIDs   gtid.Set  `json:"gtids"`             // of all transactions up to it
	Newest  time.Time `json:"newest,omitzero"`   // when the newest of them was committed, as far as is known
	At      time.Time `json:"complete,omitzero"` // everything that was committed before this moment is in it
}

const reachedName = "log/reached.json"

// Limits of archiving.
const (
	segmentRaw   = 32 << 20        // bytes of entries from which a segment is stored
	segmentAge   = 2 * time.Second // so old may an entry become before its segment is stored
	archivePause = time.Second     // between two looks at the node
	// reachedEvery is the pause between two notes of how far the log is complete while nothing is written.
	reachedEvery = 15 * time.Second
	// clockDoubt is what a commit's time may be behind the moment at which this host hears of it, without being missed: links, clocks.
	clockDoubt = 2 * time.Second
)

// Progress of a node's log, as its daemon tells it.
type NodeState struct {
	Applied uint64 // everything up to here is committed and on this node's disk, as committed
	Current bool   // Applied is all that was committed when it was asked for
}

// Node is the daemon beside whose log the archive is made.
type Node interface {
	// State asks it.
	State(ctx context.Context) (NodeState, error)
}

// archiver copies the log of one node into a store.
type archiver struct {
	store Store
	id    clusterID
	dir   string // of the log
	node  Node
	log   *slog.Logger

	tail    *tail
	begins  bool           // the next segment continues none
	w       *segmentWriter // nil between segments
	since   time.Time      // when w was begun
	reached Reached        // what is stored
	noted   time.Time      // when reached was stored
	stored  int            // segments since the last merge
}

// resume finds where the archive ends and begins to read the log there; from is the entry that a new archive begins with, at the latest. Where the log
// no longer has what comes next the archive begins a new stretch, and it says so. The errors are those of openTail, and ErrForeign when the
// cluster has another history than the archive.
func (a *archiver) resume(ctx context.Context, from uint64) error {
	last, err := lastSegment(a.store)
	if err != nil {
		return err
	}
	if last == nil {
		return a.start(from)
	}
	if last.ClusterID != a.id.ID {
		return fmt.Errorf("%w: %s is of cluster %s", ErrForeign, last.Name(), last.Cluster)
	}
	a.reached = Reached{Version: formatVersion, Index: last.Last, GTIDs: last.Before.Union(last.GTIDs), Newest: last.Newest}
	if err := a.awaitApplied(ctx, last.Last); err != nil {
		return err
	}
	t, err := openTail(a.dir, last.Last+1)
	if errors.Is(err, ErrPurged) {
		a.log.Warn("the log was purged beyond the end of the archive: a new stretch begins; restoring across the gap is not possible",
			"archived", last.Last, "err", err)
		return a.start(max(from, last.Last+1))
	}
	if err != nil {
		return err
	}
	a.tail = t
	for t.at.index < last.Last {
		if e, err := t.next(last.Last); err != nil || e == nil {
			return errors.Join(fmt.Errorf("backup: the archive goes up to entry %d, this node's log to %d", last.Last, t.at.index), err)
		}
	}
	if t.at.term != last.LastTerm || !t.at.gtids.Equal(a.reached.GTIDs) {
		return fmt.Errorf("%w: entry %d is of term %d in the archive and of term %d in this node's log: the cluster has given up what was archived "+
			"(force-quorum); keep %s and begin another backup in an empty directory", ErrForeign, last.Last, last.LastTerm, t.at.term, a.store)
	}
	return nil
}

// awaitApplied waits until the node has applied what the archive holds: another node's log may have been further, and behind what this one has
// applied its log may still change.
func (a *archiver) awaitApplied(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, lagLimit)
	defer cancel()
	for {
		st, err := a.node.State(ctx)
		if err == nil && st.Applied >= index {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("backup: the archive goes up to entry %d, this node has applied %d: wait for it, or go on at another node", index, st.Applied)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(archivePause):
		}
	}
}

// start begins a stretch that continues none, at the segment of the log that holds entry from, or the one after it.
func (a *archiver) start(from uint64) error {
	t, err := openTail(a.dir, from)
	if errors.Is(err, ErrPurged) {
		t, err = openTail(a.dir, from+1)
	}
	if err != nil {
		return err
	}
	if t.at.index < a.reached.Index {
		// The log's segment begins below the archive's end: what is archived is not stored twice.
		t.close()
		return fmt.Errorf("%w: entry %d", ErrPurged, a.reached.Index+1)
	}
	a.tail, a.begins = t, true
	return nil
}

// step archives what the node has applied. With flush everything is stored when it returns, else what is gathered may wait for segmentAge.
func (a *archiver) step(ctx context.Context, flush bool) error {
	asked := time.Now()
	st, err := a.node.State(ctx)
	if err != nil {
		return err
	}
	if a.w != nil && a.w.ended { // it could not be stored
		if err := a.storeSegment(); err != nil {
			return err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if a.w == nil && a.tail.at.index < st.Applied {
			if a.w, err = newSegmentWriter(a.id, &a.tail.at, a.begins); err != nil {
				return err
			}
			a.since = asked
		}
		e, err := a.tail.next(st.Applied)
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		if err := a.w.add(e); err != nil {
			return err
		}
		if a.w.Raw >= segmentRaw {
			if err := a.storeSegment(); err != nil {
				return err
			}
		}
	}
	if a.w != nil && (flush || time.Since(a.since) >= segmentAge) {
		if err := a.storeSegment(); err != nil {
			return err
		}
	}
	if err := a.note(st, asked, flush); err != nil || a.stored < mergeMin {
		return err
	}
	a.stored = 0
	// Segments that are not merged do no harm, and one that is damaged must not keep the rest of the log from being archived.
	if err := merge(a.store, a.id); err != nil && !errors.Is(err, ErrLocked) {
		a.log.Warn("small segments are not merged", "err", err)
	}
	return nil
}

// storeSegment ends the segment at hand.
func (a *archiver) storeSegment() error {
	w := a.w
	if err := w.put(a.store); err != nil {
		return err
	}
	a.w, a.begins = nil, false
	a.stored++
	a.reached.Version, a.reached.Index, a.reached.GTIDs = formatVersion, w.Last, a.tail.at.gtids.Clone()
	if w.Newest.After(a.reached.Newest) {
		a.reached.Newest = w.Newest
	}
	return nil
}

// note stores how far the archive is complete.
func (a *archiver) note(st NodeState, asked time.Time, now bool) error {
	if a.w != nil || a.reached.Index == 0 {
		return nil
	}
	if st.Current && a.reached.Index == st.Applied {
		a.reached.At = asked.Add(-clockDoubt).UTC()
	}
	if !now && time.Since(a.noted) < reachedEvery {
		return nil
	}
	a.noted = time.Now()
	return putSealed(a.store, reachedName, &a.reached)
}

// follow archives until ctx ends. A daemon that does not answer and a full disk are waited for; say is told when that begins and ends.
func (a *archiver) follow(ctx context.Context, say func(Reached, error)) error {
	var trouble error
	a.stored = mergeMin // what runs before have left
	for {
		err := a.step(ctx, false)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrForeign), errors.Is(err, ErrPurged):
			return err
		case err != nil && (trouble == nil || trouble.Error() != err.Error()):
			say(a.reached, err)
		case err == nil && trouble != nil:
			say(a.reached, nil)
		}
		trouble = err
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(archivePause):
		}
	}
}

func (a *archiver) close() {
	if a.tail != nil {
		a.tail.close()
	}
}
