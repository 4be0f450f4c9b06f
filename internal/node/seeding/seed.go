package seeding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/failpoint"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
)

// Limits of seeding.
const (
	donorSilence = 15 * time.Second // without a sign of the donor's daemon
	donorPoll    = 200 * time.Millisecond
	seedStall    = 2 * time.Minute // without a byte; the end of a clone of a leader waits for its commits under way
)

// copying is the seeding under way.
type copying struct {
	donor    string // its name
	began    time.Time
	progress mysqld.SeedProgress
	moved    time.Duration // when progress last changed
}

// Seed replaces this node's data by a copy of another node's. However it ends, ha.Decide is asked what is next.
func (s *Seeding) Seed(ctx context.Context) {
	err := s.seed(ctx)
	fails := 0
	s.server.Change(func(st *lifecycle.Status, _ uint64) bool {
		s.setCopying(copying{})
		if err != nil {
			st.SeedFailed(err)
			fails = st.Fails()
			return true
		}
		st.Seeded()
		s.clear()
		return true
	})
	if err != nil && ctx.Err() == nil {
		s.log.Error("seeding failed; it is begun again", "err", err, "attempt", fails)
	}
}

func (s *Seeding) setCopying(c copying) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copying = c
}

func (s *Seeding) copyingNow() copying {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copying
}

func (s *Seeding) seed(ctx context.Context) error {
	first, err := s.host.Log().FirstIndex()
	if err != nil {
		return err
	}
	id, d, err := s.findDonor(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("seed.begin")
	donor, f := s.name(id), s.failure.Load()
	began := s.time.Wall()
	s.setCopying(copying{donor: donor, began: began, moved: s.now()})
	if err := s.server.GiveUp(); err != nil {
		return err
	}
	if err := s.memory.Note(func(_ *Notes, st *lifecycle.State) { st.Durable = 0 }); err != nil { // S8
		return err
	}
	failpoint.Hit("seed.forgotten")
	s.log.Info("seeding begins", "donor", donor, "addr", fmt.Sprintf("%s:%d", d.Host, d.Port), "applied", d.Applied)
	s.host.Record(api.Event{Kind: "seed", Index: d.Applied, Message: "a copy of " + donor + "'s data begins"})
	sctx, cancel := s.time.WithCancel(ctx)
	defer cancel()
	var lost atomic.Pointer[error] // why the copy cannot go on
	var end seedEnd
	s.host.Go(func(context.Context) {
		if err := s.watchDonor(sctx, id, d.Incarnation); err != nil {
			lost.Store(&err)
			cancel()
		}
	})
	from := mysqld.Seeding{Host: d.Host, Port: d.Port, BytesPerSecond: int64(s.cfg.MySQL.SeedRate),
		KeepOld: f != nil && f.keeps, Progress: s.seedProgress,
		Check:   func(ctx context.Context) (err error) { end, err = s.checkSeed(ctx, id, d, first); return err },
		Confirm: func(context.Context) error { return s.confirmSeed(d, end) }}
	s.host.Protect(id, &from)
	err = s.server.Copy(sctx, from)
	if why := lost.Load(); err != nil && why != nil {
		err = fmt.Errorf("from %s: %w", donor, *why)
	}
	if err != nil {
		return err
	}
	failpoint.Hit("seed.done")
	copied := s.copyingNow().progress.Done
	s.log.Info("seeding is done", "donor", donor, "bytes", copied, "took",
		s.time.Wall().Sub(began).Round(time.Millisecond))
	s.host.Record(api.Event{Kind: "seeded", Index: d.Applied, Message: fmt.Sprintf(
		"has a copy of %s's data: %d MiB in %.1f s", donor, copied>>20, s.time.Wall().Sub(began).Seconds())})
	return nil
}

// seedEnd is what was found when a copy was complete.
type seedEnd struct {
	own   string   // the donor's, as in donation
	voids []string // the same
	first uint64   // where the log here began
}

// checkSeed says whether a complete copy may take the place of the data here, which is there still if it is kept. first
// is where the log began when the copy did: as long as it does, it holds every XA PREPARE after begun.Applied, and the
// donor's others were looked for before.
func (s *Seeding) checkSeed(ctx context.Context, id uint64, begun Donation, first uint64) (end seedEnd, err error) {
	d, err := s.askDonor(ctx, id)
	if err != nil {
		return end, fmt.Errorf("asking the donor about its data: %w", err)
	}
	if d.Incarnation != begun.Incarnation {
		return end, errors.New("the donor's mysqld was restarted meanwhile")
	}
	if end.first, err = s.host.Log().FirstIndex(); err != nil {
		return end, err
	}
	if end.first > begun.Applied+1 {
		return end, fmt.Errorf("the copy goes up to entry %d, and the log here was started again at %d meanwhile",
			begun.Applied, end.first)
	}
	if end.first > first {
		err = s.holdsPrepared(ctx, d)
	}
	end.own, end.voids = d.Own, d.Voids
	return end, err
}

// confirmSeed makes the copy count. Its data goes up to what the donor had applied when the copy began, at least, and
// is on disk when the directory is there: that is its durable index (S8).
func (s *Seeding) confirmSeed(begun Donation, end seedEnd) error {
	switch at, err := s.host.Log().FirstIndex(); {
	case err != nil:
		return err
	case at != end.first:
		return fmt.Errorf("the log here began at entry %d when the copy was complete, and begins at %d now", end.first, at)
	}
	err := s.memory.Note(func(n *Notes, st *lifecycle.State) {
		st.Durable, st.Inherited, n.Diverged, n.Voids = begun.Applied, end.own, nil, end.voids
	})
	failpoint.Hit("seed.confirmed")
	return err
}

// seedProgress takes what mysqld says of the copy.
func (s *Seeding) seedProgress(p mysqld.SeedProgress) {
	s.mu.Lock()
	changed := s.copying.progress != p
	if changed {
		s.copying.progress, s.copying.moved = p, s.now()
	}
	s.mu.Unlock()
	if changed {
		s.host.Publish()
	}
}

// watchDonor says why a seeding has to end whose donor is gone, or that does not move: CLONE itself would wait for
// minutes. nil: ctx has ended.
func (s *Seeding) watchDonor(ctx context.Context, id, incarnation uint64) error {
	for s.time.Sleep(ctx, donorPoll) == nil {
		if err := s.donorLost(id, incarnation); err != nil {
			return err
		}
	}
	return nil
}

func (s *Seeding) donorLost(id, incarnation uint64) error {
	p := s.cluster.Peers()[id]
	switch {
	case p == nil || p.Gone:
		return errors.New("the donor's daemon has ended")
	case s.now() > p.At+donorSilence:
		return fmt.Errorf("the donor has not been heard of for %v", donorSilence)
	case p.Incarnation() != incarnation:
		return errors.New("the donor's mysqld has ended")
	case s.now() > s.copyingNow().moved+seedStall:
		return fmt.Errorf("nothing was copied for %v", seedStall)
	}
	return nil
}

// View shows a seeding under way; nil: none.
func (s *Seeding) View() *api.SeedView {
	c := s.copyingNow()
	if c.donor == "" {
		return nil
	}
	v := &api.SeedView{From: c.donor, Stage: strings.ToLower(c.progress.Stage), DoneBytes: c.progress.Done,
		TotalBytes: c.progress.Total, Since: c.began}
	if took := s.time.Wall().Sub(c.began).Seconds(); took >= 1 {
		v.BytesPerSecond = uint64(float64(v.DoneBytes) / took)
	}
	return v
}
