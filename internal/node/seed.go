package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/failpoint"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/mysqld"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
)

// Limits of seeding.
const (
	donorSilence  = 15 * time.Second // without a sign of the donor's daemon
	donorPoll     = 200 * time.Millisecond
	seedStall     = 2 * time.Minute // without a byte; the end of a clone of a leader waits for its commits under way
	donateTimeout = 5 * time.Second
	reinitTimeout = 10 * time.Second
)

// seedSlot is the seeding under way.
type seedSlot struct {
	donor    string // its name
	began    time.Time
	progress mysqld.SeedProgress
	moved    time.Duration // when progress last changed
}

// donation is what a donor says of itself, before the copy and once more when it is complete.
type donation struct {
	Incarnation uint64 `json:"incarnation"`
	Applied     uint64 `json:"applied"` // everything up to here is in its InnoDB
	// Own are the GTIDs that it holds and the log does not: local statements that concern no other node. It was judged
	// and has been fed since, so there are no others among them (S5).
	Own string `json:"own,omitempty"`
	// Voids are the marks of the config.Voids that its data follows.
	Voids []string `json:"voids,omitempty"`
	// Prepared are its prepared XA transactions. They do not come with a copy.
	Prepared []string `json:"prepared,omitempty"`
	Host     string   `json:"host"`
	Port     int      `json:"port"`
}

// replaceDataLocked has this node's data replaced by a copy of another node's.
func (n *Node) replaceDataLocked(why string) {
	n.lives.Change(func(s *lifecycle.Status) { s.Behind(why) })
	n.gossip.Publish()
}

// seedServer replaces this node's data by a copy of another node's (DESIGN.md §6). However it ends, Decide is asked
// what is next.
func (n *Node) seedServer(ctx context.Context) {
	err := n.seed(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.srv.seed = seedSlot{}
	n.gossip.Publish()
	if err == nil {
		n.lives.Change((*lifecycle.Status).Seeded)
		n.srv.applier, n.srv.failure = "", nil
		return
	}
	n.lives.Change(func(s *lifecycle.Status) { s.SeedFailed(err) })
	if ctx.Err() == nil {
		s := n.lives.Status()
		n.log.Error("seeding failed; it is begun again", "err", err, "attempt", s.Fails())
	}
}

func (n *Node) seed(ctx context.Context) error {
	first, err := n.rlog.FirstIndex()
	if err != nil {
		return err
	}
	id, d, err := n.findDonor(ctx)
	if err != nil {
		return err
	}
	failpoint.Hit("seed.begin")
	donor := n.memberName(id)
	began := time.Now()
	n.mu.Lock()
	n.srv.seed = seedSlot{donor: donor, began: began, moved: now()}
	l := n.lives.GiveUpLife() // S8: nothing is durable here any more
	keep := n.srv.failure != nil && n.srv.failure.keeps
	n.gossip.Publish()
	n.mu.Unlock()
	if l != nil {
		if err := l.Process().Kill(); err != nil {
			return err
		}
	}
	if err := n.local.update(func(s *localState) { s.Durable = 0 }); err != nil {
		return err
	}
	failpoint.Hit("seed.forgotten")
	n.log.Info("seeding begins", "donor", donor, "addr", fmt.Sprintf("%s:%d", d.Host, d.Port), "applied", d.Applied)
	n.history.add(n.event("seed", d.Applied, "a copy of "+donor+"'s data begins"))
	sctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var end seedEnd
	n.task(func(context.Context) { n.watchDonor(sctx, cancel, id, d.Incarnation) })
	s := mysqld.Seeding{Host: d.Host, Port: d.Port, BytesPerSecond: int64(n.cfg.MySQL.SeedRate), KeepOld: keep,
		Progress: n.seedProgress,
		Check:    func(ctx context.Context) (err error) { end, err = n.checkSeed(ctx, id, d, first); return err },
		Confirm:  func(context.Context) error { return n.confirmSeed(d, end) }}
	n.certs.Protect(id, &s)
	err = mysqld.Seed(sctx, n.mysqldConfig(), s)
	if cause := context.Cause(sctx); err != nil && cause != nil && ctx.Err() == nil {
		err = fmt.Errorf("from %s: %w", donor, cause)
	}
	if err != nil {
		return err
	}
	failpoint.Hit("seed.done")
	n.mu.Lock()
	copied := n.srv.seed.progress.Done
	n.mu.Unlock()
	n.log.Info("seeding is done", "donor", donor, "bytes", copied, "took", time.Since(began).Round(time.Millisecond))
	n.history.add(n.event("seeded", d.Applied, fmt.Sprintf("has a copy of %s's data: %d MiB in %.1f s", donor, copied>>20,
		time.Since(began).Seconds())))
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
func (n *Node) checkSeed(ctx context.Context, id uint64, begun donation, first uint64) (end seedEnd, err error) {
	d, err := n.askDonor(ctx, id)
	if err != nil {
		return end, fmt.Errorf("asking the donor about its data: %w", err)
	}
	if d.Incarnation != begun.Incarnation {
		return end, errors.New("the donor's mysqld was restarted meanwhile")
	}
	if end.first, err = n.rlog.FirstIndex(); err != nil {
		return end, err
	}
	if end.first > begun.Applied+1 {
		return end, fmt.Errorf("the copy goes up to entry %d, and the log here was started again at %d meanwhile",
			begun.Applied, end.first)
	}
	if end.first > first {
		err = n.holdsPrepared(ctx, d)
	}
	end.own, end.voids = d.Own, d.Voids
	return end, err
}

// confirmSeed makes the copy count. Its data goes up to what the donor had applied when the copy began, at least, and
// is on disk when the directory is there: that is its durable index (S8).
func (n *Node) confirmSeed(begun donation, end seedEnd) error {
	switch at, err := n.rlog.FirstIndex(); {
	case err != nil:
		return err
	case at != end.first:
		return fmt.Errorf("the log here began at entry %d when the copy was complete, and begins at %d now", end.first, at)
	}
	err := n.local.update(func(s *localState) {
		s.Durable, s.Inherited, s.Diverged, s.Voids = begun.Applied, end.own, nil, end.voids
	})
	failpoint.Hit("seed.confirmed")
	return err
}

// seedProgress takes what mysqld says of the copy.
func (n *Node) seedProgress(p mysqld.SeedProgress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := &n.srv.seed; s.progress != p {
		s.progress, s.moved = p, now()
		n.gossip.Publish()
		n.poke()
	}
}

// watchDonor ends a seeding whose donor is gone, or that does not move: CLONE itself would wait for minutes.
func (n *Node) watchDonor(ctx context.Context, cancel context.CancelCauseFunc, id, incarnation uint64) {
	tick := time.NewTicker(donorPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := n.donorLost(id, incarnation); err != nil {
			cancel(err)
			return
		}
	}
}

func (n *Node) donorLost(id, incarnation uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.gossip.Peers()[id]
	switch {
	case p == nil || p.Gone:
		return errors.New("the donor's daemon has ended")
	case now() > p.At+donorSilence:
		return fmt.Errorf("the donor has not been heard of for %v", donorSilence)
	case p.Incarnation() != incarnation:
		return errors.New("the donor's mysqld has ended")
	case now() > n.srv.seed.moved+seedStall:
		return fmt.Errorf("nothing was copied for %v", seedStall)
	}
	return nil
}

// findDonor picks the node to copy from, and asks it: the least loaded healthy follower, the leader only if there is no
// other.
func (n *Node) findDonor(ctx context.Context) (uint64, donation, error) {
	first, err := n.rlog.FirstIndex()
	if err != nil {
		return 0, donation{}, err
	}
	n.mu.Lock()
	need := uint64(0)
	if f := n.srv.failure; f != nil {
		need = f.view.Index
	}
	n.mu.Unlock()
	var refused []error
	for _, id := range n.donors() {
		d, err := n.askDonor(ctx, id)
		if err == nil && d.Applied < need {
			err = fmt.Errorf("it has applied up to entry %d, and this node could not apply entry %d", d.Applied, need)
		}
		if at := n.Settings().CloneAt; err == nil && d.Applied < at {
			err = fmt.Errorf("it has applied up to entry %d, and trireme_clone has its present password since entry %d",
				d.Applied, at)
		}
		if err == nil && d.Applied+1 < first {
			err = fmt.Errorf("it has applied up to entry %d, and the log here begins at %d", d.Applied, first)
		}
		if err == nil {
			err = n.holdsPrepared(ctx, d)
		}
		if err == nil {
			return id, d, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", n.memberName(id), err))
	}
	if len(refused) == 0 {
		return 0, donation{}, errors.New("there is no healthy data node to copy from")
	}
	return 0, donation{}, fmt.Errorf("no data node can be copied from: %w", errors.Join(refused...))
}

// holdsPrepared says whether this node's log can bring the XA transactions that are prepared on a donor: a copy has
// none of them. A log that begins with a snapshot may begin after them.
func (n *Node) holdsPrepared(ctx context.Context, d donation) error {
	if len(d.Prepared) == 0 {
		return nil
	}
	// What the donor has prepared a moment ago may not have come here yet.
	wctx, cancel := context.WithTimeout(ctx, readIndexTimeout)
	defer cancel()
	upTo, err := n.cons.ReadIndex(wctx)
	if err == nil {
		err = n.led.Await(wctx, upTo)
	}
	if err != nil {
		at, _ := n.led.At()
		return fmt.Errorf(
			"it has prepared XA transactions, and the log here, which has come to entry %d, does not hold all of it yet: %w", at,
			err)
	}
	left, err := ledger.NotHeld(ctx, d.Prepared, d.Applied, n.rlog, upTo)
	if err == nil && len(left) > 0 {
		err =
			fmt.Errorf(
				"%d XA transactions are prepared there, and the log here begins after their XA PREPARE: end them on the leader (%s)", len(left), someOf(left))
	}
	return err
}

// someOf names the first few of a list.
func someOf(list []string) string {
	const few = 5
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:few], ", ") + fmt.Sprintf(" and %d more", len(list)-few)
}

// donors are the members that can be copied from, best first: those of this node's zone before all others. After an
// XA transaction was ended here it is the leader: another follower may have lost it as well, and not have seen it yet.
func (n *Node) donors() []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	type donor struct {
		id     uint64
		far    bool   // in another zone than this node
		later  bool   // the leader, or after an XA transaction was ended here the others
		busy   int    // seedings that it feeds already
		lag    uint64 // bytes
		weight int
	}
	busy := map[string]int{}
	diverged := n.srv.failure != nil && n.srv.failure.view.Diverged
	for _, p := range n.gossip.Peers() {
		if s := p.Member.Seed; s != nil && p.Fresh() {
			busy[s.From]++
		}
	}
	me, _ := n.Settings().MemberByID(n.id.ID)
	var all []donor
	for _, m := range n.Settings().Members {
		p := n.gossip.Peers()[m.ID]
		if m.ID == n.id.ID || m.Role == config.RoleLogger || m.Removing || !p.Fresh() || !p.Ready {
			continue
		}
		my := p.Member.MySQL
		if my == nil || series(my.Version) != series(n.bin.Version.String()) {
			continue // CLONE goes between servers of one series only
		}
		leads := p.OpenTerm != 0 || p.Leader == m.ID
		d := donor{id: m.ID, far: me.Zone != "" && m.Zone != me.Zone && !diverged, later: leads != diverged,
			busy:   busy[m.Name],
			weight: m.Weight}
		if my.LagBytes != nil {
			d.lag = *my.LagBytes
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b donor) int {
		return cmp.Or(compareBool(a.far, b.far), compareBool(a.later, b.later), cmp.Compare(a.busy, b.busy),
			cmp.Compare(a.lag>>20, b.lag>>20),
			cmp.Compare(a.weight, b.weight), cmp.Compare(a.id, b.id))
	})
	ids := make([]uint64, len(all))
	for i, d := range all {
		ids[i] = d.id
	}
	return ids
}

// compareBool sorts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// series is "9.7" of "9.7.4".
func series(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func (n *Node) askDonor(ctx context.Context, id uint64) (d donation, err error) {
	ctx, cancel := context.WithTimeout(ctx, donateTimeout)
	defer cancel()
	body, err := n.tr.Request(ctx, id, reqDonate, nil)
	if err != nil {
		return d, err
	}
	return d, obey(body, &d) // what the copy's data follows may be told by a key that this version does not know
}

// donate answers a node that wants a copy of this one's data. Nothing is done here for it: the copy is between the
// servers.
func (n *Node) donate(ctx context.Context, to uint64) (d donation, err error) {
	n.mu.Lock()
	s, voids := n.lives.Status(), n.newVoidsLocked()
	_, member := n.Settings().MemberByID(to)
	n.mu.Unlock()
	l := s.Life()
	switch {
	case !member:
		return d, errors.New("the asking node is not a member")
	case l == nil || s.State() != ha.ServerReady:
		return d, fmt.Errorf("its mysqld is %s", s.State())
	case len(voids) > 0:
		return d, errNewVoids
	}
	if d.Applied, err = l.ReadExecuted(ctx); err != nil {
		return d, err
	}
	xids, err := l.PreparedToCopy(ctx)
	if err != nil {
		return d, err
	}
	d.Prepared = slices.Sorted(maps.Keys(lifecycle.XIDKeys(xids)))
	// Executed first: what is committed meanwhile is then not taken for this node's own.
	executed := l.Executed()
	_, committed := n.led.Snapshot()
	d.Incarnation, d.Own, d.Voids = l.Incarnation, executed.Subtract(committed).String(), n.local.get().Voids
	d.Host, d.Port = n.cfg.MySQLHost(), n.cfg.MySQL.Port
	return d, nil
}

// seedViewLocked shows a seeding under way; nil: none.
func (n *Node) seedViewLocked() *api.SeedView {
	s := &n.srv.seed
	if s.donor == "" {
		return nil
	}
	v := &api.SeedView{From: s.donor, Stage: strings.ToLower(s.progress.Stage), DoneBytes: s.progress.Done,
		TotalBytes: s.progress.Total,
		Since:      s.began}
	if took := time.Since(s.began).Seconds(); took >= 1 {
		v.BytesPerSecond = uint64(float64(v.DoneBytes) / took)
	}
	return v
}

// Reinit implements api.Backend (leader only): the member's data is thrown away and copied from another node.
func (n *Node) Reinit(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	if err := n.members.CheckTerm(req.IfTerm); err != nil {
		return api.MemberResult{}, err
	}
	c := n.Settings()
	m, err := membership.Of(c, req.Name)
	if err != nil {
		return api.MemberResult{}, err
	}
	if err := n.mayReinit(m); err != nil {
		return api.MemberResult{}, err
	}
	rctx, cancel := context.WithTimeout(ctx, reinitTimeout)
	defer cancel()
	if _, err := n.tr.Request(rctx, m.ID, reqReinit, nil); err != nil {
		return api.MemberResult{}, api.Errorf(api.KindNotReady, "%s did not begin: %v", m.Name, err).
			With("its data is as it was; see `trireme status`")
	}
	n.history.add(n.askedEvent(ctx, "reinit", 0,
		m.Name+" throws its data away and is seeded again, on an operator's request"))
	return n.members.Result(c.Version, m.Name,
		m.Name+" throws its data away and is seeded from another node; `trireme status --watch` shows how far it is"), nil
}

// mayReinit says why a member's data must be kept.
func (n *Node) mayReinit(m config.Member) error {
	switch {
	case m.Role == config.RoleLogger:
		return api.Errorf(api.KindConflict, "%s is a logger: it has no data but its log", m.Name).
			With("a logger that lost its log is removed and joined again")
	case m.ID == n.id.ID:
		return api.Errorf(api.KindNeeded, "%s is the leader: its data is the newest there is", m.Name).
			With("move leadership first: trireme switchover")
	}
	c := n.members.Census()
	s, known := c.Nodes[m.ID]
	switch {
	case !known || !s.Live:
		return api.Errorf(api.KindNotReady, "%s does not answer, so it cannot be told", m.Name).
			With("start its daemon, or remove it and join it again under a new directory")
	case c.Without(m.ID).Donors == 0:
		return api.Errorf(api.KindNotReady, "no other data node is healthy: there is nothing to copy from").
			With("see `trireme status`")
	case s.Ready && s.Voter && !c.KeptWithout(m.ID):
		return api.Errorf(api.KindNeeded, "%s's data is needed: without it %s", m.Name, c.WhyNotKept(m.ID)).
			With("add a data node first, or bring back those that are down")
	}
	return nil
}

// reinitHere gives this node's data up (S5: an operator's decision). Decide then seeds it.
func (n *Node) reinitHere(ctx context.Context) error {
	for {
		done, err := n.tryReinit()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("its mysqld is just starting; try again in a moment")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryReinit: done is false while mysqld is in the hands of a task.
func (n *Node) tryReinit() (done bool, err error) {
	leads := n.view().Raft.IsLeader
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.lives.Status()
	switch s.State() {
	case ha.ServerAbsent:
		return false, errors.New("it has no mysqld")
	case ha.ServerSeeding, ha.ServerBehind:
		return false, errors.New("it is being seeded already")
	case ha.ServerStarting, ha.ServerJudging:
		return false, nil
	}
	if leads || s.Phase() != ha.PhaseNone {
		return false, errors.New("it is the leader")
	}
	n.replaceDataLocked("its data was given up by `trireme reinit`")
	n.poke()
	return true, nil
}
