package seeding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/transport"
	"trireme/internal/node/lifecycle"
)

const (
	donateTimeout    = 5 * time.Second
	readIndexTimeout = 5 * time.Second
)

// Donation is what a donor says of itself, before the copy and once more when it is complete.
type Donation struct {
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

// findDonor picks the node to copy from, and asks it: the least loaded healthy follower, the leader only if there is no
// other.
func (s *Seeding) findDonor(ctx context.Context) (uint64, Donation, error) {
	first, err := s.host.Log().FirstIndex()
	if err != nil {
		return 0, Donation{}, err
	}
	need := uint64(0)
	if f := s.failure.Load(); f != nil {
		need = f.view.Index
	}
	var refused []error
	for _, id := range s.donors() {
		d, err := s.askDonor(ctx, id)
		if err == nil && d.Applied < need {
			err = fmt.Errorf("it has applied up to entry %d, and this node could not apply entry %d", d.Applied, need)
		}
		if at := s.cluster.Settings().CloneAt; err == nil && d.Applied < at {
			err = fmt.Errorf("it has applied up to entry %d, and trireme_clone has its present password since entry %d",
				d.Applied, at)
		}
		if err == nil && d.Applied+1 < first {
			err = fmt.Errorf("it has applied up to entry %d, and the log here begins at %d", d.Applied, first)
		}
		if err == nil {
			err = s.holdsPrepared(ctx, d)
		}
		if err == nil {
			return id, d, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", s.name(id), err))
	}
	if len(refused) == 0 {
		return 0, Donation{}, errors.New("there is no healthy data node to copy from")
	}
	return 0, Donation{}, fmt.Errorf("no data node can be copied from: %w", errors.Join(refused...))
}

// holdsPrepared says whether this node's log can bring the XA transactions that are prepared on a donor: a copy has
// none of them. A log that begins with a snapshot may begin after them.
func (s *Seeding) holdsPrepared(ctx context.Context, d Donation) error {
	if len(d.Prepared) == 0 {
		return nil
	}
	// What the donor has prepared a moment ago may not have come here yet.
	wctx, cancel := s.time.WithTimeout(ctx, readIndexTimeout)
	defer cancel()
	upTo, err := s.host.Raft().ReadIndex(wctx)
	if err == nil {
		err = s.ledger.AwaitBy(wctx, s.time, upTo)
	}
	if err != nil {
		at, _ := s.ledger.At()
		return fmt.Errorf(
			"it has prepared XA transactions, and the log here, which has come to entry %d, does not hold all of it yet: %w", at,
			err)
	}
	left, err := ledger.NotHeld(ctx, d.Prepared, d.Applied, s.host.Log(), upTo)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d XA transactions are prepared there, and the log here begins after their XA PREPARE: "+
			"end them on the leader (%s)", len(left), someOf(left))
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
func (s *Seeding) donors() []uint64 {
	type donor struct {
		id     uint64
		far    bool   // in another zone than this node
		later  bool   // the leader, or after an XA transaction was ended here the others
		busy   int    // seedings that it feeds already
		lag    uint64 // bytes
		weight int
	}
	busy := map[string]int{}
	f := s.failure.Load()
	diverged := f != nil && f.view.Diverged
	settings, peers, version := s.cluster.Settings(), s.cluster.Peers(), series(s.server.Version())
	for _, p := range peers {
		if seed := p.Member.Seed; seed != nil && p.Fresh() {
			busy[seed.From]++
		}
	}
	me, _ := settings.MemberByID(s.id.ID)
	var all []donor
	for _, m := range settings.Members {
		p := peers[m.ID]
		if m.ID == s.id.ID || m.Role == config.RoleLogger || m.Removing || !p.Fresh() || !p.Ready {
			continue
		}
		my := p.Member.MySQL
		if my == nil || series(my.Version) != version {
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

func (s *Seeding) askDonor(ctx context.Context, id uint64) (Donation, error) {
	ctx, cancel := s.time.WithTimeout(ctx, donateTimeout)
	defer cancel()
	return ReqDonate.Ask(ctx, s.cluster, id, transport.None{})
}

// DonationFor answers a node that wants a copy of this one's data. Nothing is done here for it: the copy is between the
// servers.
func (s *Seeding) DonationFor(ctx context.Context, to uint64, _ transport.None) (d Donation, err error) {
	st, _ := s.server.Now()
	_, member := s.cluster.Settings().MemberByID(to)
	l := st.Life()
	switch {
	case !member:
		return d, errors.New("the asking node is not a member")
	case l == nil || st.State() != ha.ServerReady:
		return d, fmt.Errorf("its mysqld is %s", st.State())
	case s.HasNewDecisions():
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
	_, committed := s.ledger.Snapshot()
	d.Incarnation, d.Own, d.Voids = l.Incarnation, executed.Subtract(committed).String(), s.memory.Notes().Voids
	d.Host, d.Port = s.cfg.MySQLHost(), s.cfg.MySQL.Port
	return d, nil
}
