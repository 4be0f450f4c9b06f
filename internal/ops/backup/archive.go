package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
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
	Key       string    `json:"key,omitempty"` // says which one all other objects are encrypted with; empty: none
}

const identityName = "backup.json"

// vacant is a store that may hold what is no backup's.
type vacant interface {
	// vacant is ErrNotOurs when there is anything in it.
	vacant() error
}

// claim makes a store a backup of the cluster, or checks that it is one. The errors are ErrForeign, ErrNotOurs, and
// ErrMissing for what is left of one.
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
		if v, ok := s.(vacant); ok {
			if err := v.vacant(); err != nil {
				return err
			}
		}
		made := &identity{Version: formatVersion, Cluster: id.Name, ClusterID: id.ID, Made: time.Now().UTC()}
		if k, ok := s.(keyed); ok {
			made.Key = k.keyID()
		}
		return putSealed(s, identityName, made)
	}
	if err == nil && have.ClusterID != id.ID {
		err =
			fmt.Errorf("%w: %s is of cluster %s (id %d), this node is of %s (id %d): give each cluster a directory of its own",
				ErrForeign, s,
				have.Cluster, have.ClusterID, id.Name, id.ID)
	}
	if err == nil {
		err = fitsKey(s, &have)
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
	// clockDoubt is what the leader's clock, which a commit's time is of, may lag this host's.
	clockDoubt = 2 * time.Second
)

// Node is the daemon whose log is archived.
type Node interface {
	// Applied is an entry up to which everything is committed and on this node's disk, as committed.
	Applied(ctx context.Context) (uint64, error)
	// Committed is an entry up to which everything is that was committed before the question, by the word of a
	// majority: this node may be cut off and not know of it.
	Committed(ctx context.Context) (uint64, error)
	// Told is told what is noted of how far the archive goes, for the cluster to know.
	Told(at Reached)
}

// archiver copies the log of one node into a store.
type archiver struct {
	store Store
	id    clusterID
	dir   string // of the log
	keys  func() (*raftlog.Keys, error)
	node  Node
	log   *slog.Logger

	tail    *raftlog.Tail
	begins  bool           // the next segment continues none
	w       *segmentWriter // nil between segments
	since   time.Time      // when w was begun
	reached Reached        // what is stored
	noted   time.Time      // when reached was stored
	stored  int            // segments since the last merge
	merged  uint64         // no segment that ends below this entry can be merged any more
	asked   confirmation
	broken  error // the log cannot be read on: what comes next would leave a hole
}

// confirmation: everything that was committed before a moment lies at or below an entry.
type confirmation struct {
	index uint64 // 0: not asked yet
	at    time.Time
}

// resume finds where the archive ends and begins to read the log there; from is the entry that a new archive begins
// with, at the latest. Where the log no longer has what comes next the archive begins a new stretch, and it says so.
// The errors are those of open, and ErrForeign when the cluster has another history than the archive.
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
	if err := a.recall(last); err != nil {
		return err
	}
	if err := a.awaitApplied(ctx, last.Last); err != nil {
		return err
	}
	err = a.open(last.Last + 1)
	if errors.Is(err, ErrPurged) {
		a.log.Warn(
			"the log was purged beyond the end of the archive: a new stretch begins; restoring across the gap is not possible",
			"archived", last.Last, "err", err)
		return a.start(max(from, last.Last+1))
	}
	if err != nil {
		return err
	}
	for a.tail.At().Index < last.Last {
		if e, err := a.next(last.Last); err != nil || e == nil {
			return errors.Join(fmt.Errorf("backup: the archive goes up to entry %d, this node's log to %d", last.Last,
				a.tail.At().Index), err)
		}
	}
	if at := a.tail.At(); at.Term != last.LastTerm || !at.GTIDs.Equal(a.reached.GTIDs) {
		return fmt.Errorf("%w: entry %d is of term %d in the archive and of term %d in this node's log: the cluster has given up what was archived "+
			"(force-quorum); keep %s and begin another backup in an empty directory", ErrForeign, last.Last, last.LastTerm,
			at.Term, a.store)
	}
	return nil
}

// recall takes up what was known of the archive when it was written to last.
func (a *archiver) recall(last *Segment) error {
	a.reached = Reached{Version: formatVersion, Index: last.Last, GTIDs: last.Before.Union(last.GTIDs),
		Newest: last.Newest}
	var noted Reached
	switch err := getSealed(a.store, reachedName, &noted); {
	case err == nil && noted.Index <= last.Last:
		a.reached.At, a.reached.Newest = noted.At, later(noted.Newest, last.Newest)
	case errors.Is(err, ErrCorrupt):
		a.log.Warn("a note of how far the archive goes is damaged; it is written again", "err", err)
	case err != nil && !errors.Is(err, ErrMissing):
		return err
	}
	return nil
}

// awaitApplied waits until the node has applied what the archive holds: another node's log may have been further ahead;
// above what this one has applied its log may still change.
func (a *archiver) awaitApplied(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, lagLimit)
	defer cancel()
	for {
		applied, err := a.node.Applied(ctx)
		if err == nil && applied >= index {
			return nil
		}
		if err == nil {
			err =
				fmt.Errorf(
					"backup: the archive goes up to entry %d, this node has applied %d: wait for it, or go on at another node", index,
					applied)
		}
		if poll.Pause(ctx, archivePause) != nil {
			return err
		}
	}
}

// start begins a stretch that does not continue an earlier one. It starts at the log segment that holds entry from, or
// at the next one.
func (a *archiver) start(from uint64) error {
	err := a.open(from)
	if errors.Is(err, ErrPurged) {
		err = a.open(from + 1)
	}
	if err == nil && a.tail.At().Index < a.reached.Index {
		// The log's segment begins below the archive's end: what is archived is not stored twice.
		err = fmt.Errorf("%w: entry %d", ErrPurged, a.reached.Index+1)
	}
	a.begins = err == nil
	return err
}

// open begins to read the node's log: see raftlog.OpenTail. The errors are ErrPurged, ErrCorrupt, and the file system's.
func (a *archiver) open(from uint64) error {
	a.close()
	t, err := raftlog.OpenTail(a.dir, a.keys, from)
	a.tail = t
	return logError(err)
}

// next returns the next entry of the node's log; nil when it lies above upTo.
func (a *archiver) next(upTo uint64) (*Entry, error) {
	e, err := a.tail.Next(upTo)
	if e == nil {
		return nil, logError(err)
	}
	return &Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: e.GetType(), Data: e.Data}, nil
}

// logError says what is wrong with the node's log in this package's errors.
func logError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raftlog.ErrPurged):
		return fmt.Errorf("%w: %w", ErrPurged, err)
	case errors.Is(err, raftlog.ErrMetaVersion):
		return fmt.Errorf("%w: %w: back up with the program that the daemon runs", ErrNewer, err)
	case errors.Is(err, raftlog.ErrCorrupt), errors.Is(err, raftlog.ErrMeta):
		return fmt.Errorf("%w: the node's log: %w; see `trireme log verify`", ErrCorrupt, err)
	}
	return fmt.Errorf("backup: the node's log: %w", err)
}

// step archives what the node has applied. With flush everything is stored when it returns, else what is gathered may
// wait for segmentAge.
func (a *archiver) step(ctx context.Context, flush bool) error {
	asked := time.Now()
	applied, err := a.node.Applied(ctx)
	if err != nil {
		return err
	}
	if a.w != nil && a.w.ended { // it could not be stored
		if err := a.storeSegment(); err != nil {
			return err
		}
	}
	if err := a.gather(ctx, applied, asked); err != nil {
		return err
	}
	if a.w != nil && (flush || time.Since(a.since) >= segmentAge) {
		if err := a.storeSegment(); err != nil {
			return err
		}
	}
	if err := a.note(ctx, flush); err != nil || a.stored < mergeMin {
		return err
	}
	a.stored = 0
	// Segments that are not merged do no harm, and one that is damaged must not keep the rest of the log from being
	// archived.
	from, err := merge(a.store, a.id, a.merged)
	if err != nil && !errors.Is(err, ErrLocked) {
		a.log.Warn("small segments are not merged", "err", err)
	}
	a.merged = from
	return nil
}

// gather reads entries up to one that is applied. An entry that was read and not taken is lost to this archiver: it
// reads no further then, or its archive would have a hole. The next one begins at what is stored.
func (a *archiver) gather(ctx context.Context, applied uint64, asked time.Time) (err error) {
	for ctx.Err() == nil && a.broken == nil {
		at := a.tail.At()
		if a.w == nil && at.Index < applied {
			if a.w, err = newSegmentWriter(a.id, at, a.begins); err != nil {
				return err
			}
			a.since = asked
		}
		e, err := a.next(applied)
		if err == nil && e == nil {
			return nil
		}
		if err == nil {
			err = a.w.add(e)
		}
		if err != nil {
			if a.tail.At().Index != at.Index {
				a.broken = err
			}
			return err
		}
		if a.w.Raw >= segmentRaw {
			if err := a.storeSegment(); err != nil {
				return err
			}
		}
	}
	return cmp.Or(a.broken, ctx.Err())
}

// storeSegment ends the segment at hand.
func (a *archiver) storeSegment() error {
	w := a.w
	if w.Raw == 0 { // its first entry could not be read
		return nil
	}
	if err := w.put(a.store); err != nil {
		return err
	}
	a.w, a.begins = nil, false
	a.stored++
	a.reached.Version, a.reached.Index, a.reached.GTIDs = formatVersion, w.Last, a.tail.At().GTIDs.Clone()
	if w.Newest.After(a.reached.Newest) {
		a.reached.Newest = w.Newest
	}
	return nil
}

// note stores how far the archive is complete.
func (a *archiver) note(ctx context.Context, now bool) error {
	if a.w != nil || a.reached.Index == 0 {
		return nil
	}
	a.confirm(ctx)
	if !now && time.Since(a.noted) < reachedEvery {
		return nil
	}
	a.noted = time.Now()
	if err := putSealed(a.store, reachedName, &a.reached); err != nil {
		return err
	}
	if !a.reached.At.IsZero() {
		a.node.Told(a.reached)
	}
	return nil
}

// confirm finds out up to when the archive is complete: it holds the last entry that was committed at a moment. A
// cluster that does not answer leaves it at what was known.
func (a *archiver) confirm(ctx context.Context) {
	if a.asked.index == 0 {
		at := time.Now()
		if index, err := a.node.Committed(ctx); err == nil {
			a.asked = confirmation{index, at}
		}
	}
	if a.asked.index != 0 && a.asked.index <= a.reached.Index {
		a.reached.At, a.asked = a.asked.at.Add(-clockDoubt).UTC(), confirmation{}
	}
}

// follow archives until ctx ends. A daemon that does not answer and a full disk are waited for; say is told when that
// begins and ends.
func (a *archiver) follow(ctx context.Context, say func(Reached, error)) error {
	var trouble error
	a.stored = mergeMin // what runs before have left
	for {
		err := a.step(ctx, false)
		switch {
		case ctx.Err() != nil:
			return nil
		case a.broken != nil, errors.Is(err, ErrCorrupt), errors.Is(err, ErrForeign), errors.Is(err, ErrPurged),
			errors.Is(err, ErrLocked):
			return err
		case err != nil && (trouble == nil || trouble.Error() != err.Error()):
			say(a.reached, err)
		case err == nil && trouble != nil:
			say(a.reached, nil)
		}
		trouble = err
		if poll.Pause(ctx, archivePause) != nil {
			return nil
		}
	}
}

func (a *archiver) close() {
	if a.tail != nil {
		a.tail.Close()
	}
}

// Told implements Node.
func (r *run) Told(at Reached) {
	if r.Tell != nil {
		r.Tell(api.BackupReport{Archive: &api.BackupArchive{Place: r.To.String(), Index: at.Index, Complete: at.At}})
	}
}

func (r *run) tellCopy(b *Base) {
	if r.Tell != nil {
		r.Tell(api.BackupReport{Copy: &api.BackupCopy{Name: b.Name, Place: r.To.String(), Donor: b.Donor, Made: b.Made,
			Bytes: b.Bytes, StoredBytes: b.Stored}})
	}
}
