package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
)

// Limits of changes of the cluster settings.
const (
	Timeout = 5 * time.Second
	lease   = 2 * time.Second // for a majority to answer before a change is proposed
)

// Apply takes the settings of a committed entry. Every node decides alike: a version counts once, so of two changes
// made from the same copy the first in the log wins. A node that cannot read what is in force stops: all others go by
// it.
func (ms *Members) Apply(index uint64, data []byte) error {
	c, err := config.ParseCluster(data)
	if version, _ := config.ReadHead(data); err != nil && version != 0 && version <= ms.Current().Version {
		return nil // newer ones are in force
	}
	if err != nil {
		return fmt.Errorf("%w: the cluster settings of entry %d cannot be read: %w", ErrFinal, index, err)
	}
	ms.adopt(index, c)
	return nil
}

// adopt takes committed settings, if they are newer than those that this node has. index is that of their entry, 0 when
// another node told them.
func (ms *Members) adopt(index uint64, c *config.Cluster) {
	ms.mu.Lock()
	before := ms.Current()
	newer := c.Version > before.Version
	if newer {
		ms.current.Store(c)
		ms.setAt = index
		ms.gossip.Publish()
	}
	ms.mu.Unlock()
	if !newer {
		return
	}
	ms.tellLeaving(before, c)
	failpoint.Hit("settings.before-save")
	ms.saveSettings()
	if err := ms.Check(c); err != nil {
		ms.host.Fail(err)
		return
	}
	ms.setPeers()
	ms.host.Adopted(c)
}

// tellLeaving logs who leaves the cluster by a change of the settings, or has left it.
func (ms *Members) tellLeaving(before, c *config.Cluster) {
	for _, m := range before.Members {
		now, stays := c.MemberByID(m.ID)
		switch {
		case !stays:
			ms.log.Info("a node is not a member any more", "node", m.Name, "id", m.ID, "settings", c.Version)
		case now.Removing && !m.Removing:
			ms.log.Info("a node is being removed", "node", m.Name, "id", m.ID, "settings", c.Version)
		}
	}
}

// saveSettings writes the copy of the settings that the next start begins with. A disk that is full may take it later
// (FetchSettings).
func (ms *Members) saveSettings() {
	ms.saving.Lock()
	defer ms.saving.Unlock()
	err := ms.Current().Save(ms.cfg.Dir)
	ms.unsaved.Store(err != nil)
	if ms.host.IsNew("save settings", err) {
		ms.log.Error("the copy of the cluster settings could not be written; it is tried again", "err", err)
	}
}

// Check: a node that is no member serves no clients: its data grows stale.
func (ms *Members) Check(c *config.Cluster) error {
	if _, ok := c.MemberByID(ms.id.ID); ok {
		return ms.checkRevoked(c)
	}
	return fmt.Errorf(
		"%w: node %q (id %d) is not a member of cluster %q any more: it was removed, or joined again under another id. "+
			"Its data is left in %s; to make it a member again, move that directory away and run `trireme join`",
		ErrFinal, ms.id.Name, ms.id.ID, ms.id.Cluster, ms.cfg.Dir)
}

// FetchSettings asks for newer settings than this node has. The log does not bring those that were committed below
// where it begins after a snapshot, nor does it reach a node that was removed meanwhile. What another node has is
// committed.
func (ms *Members) FetchSettings(ctx context.Context) {
	if ms.unsaved.Load() {
		ms.saveSettings()
	}
	from, newest := uint64(0), ms.Current().Version
	for id, p := range ms.gossip.Peers() {
		if p.Fresh() && p.Settings > newest {
			from, newest = id, p.Settings
		}
	}
	if from == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	body, err := ReqSettings.Ask(ctx, ms.host.Links(), from, transport.None{})
	if err != nil {
		return
	}
	c, err := config.ParseCluster(body)
	if err == nil && c.ClusterID != ms.id.ClusterID {
		err = fmt.Errorf("they are of cluster %d", c.ClusterID)
	}
	if errors.Is(err, config.ErrNewer) {
		ms.host.Fail(fmt.Errorf("the cluster settings that node %d tells of: %w", from, err))
		return
	}
	if ms.host.IsNew("fetch settings", err) {
		ms.log.Error("cluster settings of another node are not readable", "peer", from, "err", err)
	}
	if err != nil {
		return
	}
	select {
	case ms.changing <- struct{}{}:
		ms.adopt(0, c)
		<-ms.changing
	default: // a change of our own is on its way, which looks at the log for it
	}
}

// Start tells the transport where the other members are, as the settings and this node's operator say.
func (ms *Members) Start() {
	known, err := ms.cfg.Peer.KnownPeers()
	if err != nil {
		return // Load has checked it
	}
	c, addrs := ms.Current(), map[uint64]string{}
	for name, addr := range known {
		if m, ok := c.Member(name); ok {
			addrs[m.ID] = addr
		} else {
			ms.log.Warn("peer.known names a node that is not in this cluster", "name", name)
		}
	}
	ms.host.Links().SetKnown(addrs)
	ms.setPeers()
}

// setPeers tells the transport of the members in the settings in force: they may be newer than those whose adoption
// ends here.
func (ms *Members) setPeers() {
	ms.linking.Lock()
	defer ms.linking.Unlock()
	c := ms.Current()
	addrs := make(map[uint64]string, len(c.Members))
	for _, m := range c.Members {
		if m.ID != ms.id.ID {
			addrs[m.ID] = m.Peer
		}
	}
	ms.host.Links().SetPeers(addrs)
}

// Change proposes a change of the settings and returns once it is committed and in force here. change gets a copy.
// term is in which this node has to lead (S7); 0: any.
func (ms *Members) Change(ctx context.Context, term uint64, change func(*config.Cluster) error) (*config.Cluster,
	error) {
	if err := ms.awaitTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-ms.changing }()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	before := ms.Current()
	next := before.Clone()
	if err := change(next); err != nil {
		return nil, err
	}
	next.Rotate = next.Rotate || shutsOut(before, next)
	if err := newlyUnmet(before, next); err != nil {
		return nil, err
	}
	next.Version++
	next.Record(before, time.Now(), cmp.Or(api.AskedBy(ctx), ms.id.Name))
	body, err := next.Marshal()
	if err != nil {
		return nil, api.Errorf(api.KindInvalid, "%v", err)
	}
	// A leader without answers would keep the change in its log, to be committed whenever a quorum is back.
	if err := ms.host.AwaitLease(ctx, lease); err != nil {
		return nil, api.Errorf(api.KindNoLeader, "no majority of the voters answers %s; nothing is changed", ms.id.Name).
			With("see `trireme status`")
	}
	return next, ms.commitSettings(ctx, term, body)
}

// awaitTurn waits until no other change of the settings is under way here. A receive from ms.changing gives the turn
// back.
func (ms *Members) awaitTurn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	select {
	case ms.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return api.Errorf(api.KindTimeout,
			"another change of the cluster settings is under way at %s and has not ended in time; "+
				"nothing is changed", ms.id.Name).With("try again")
	}
}

func (ms *Members) commitSettings(ctx context.Context, term uint64, body []byte) (err error) {
	m := raftlog.Meta{Kind: raftlog.Settings, Node: uint16(ms.id.ID)}
	data := append(raftlog.AppendMeta(nil, &m), body...)
	var index uint64
	if term == 0 {
		index, term, err = ms.host.Raft().Propose(ctx, data)
	} else {
		index, err = ms.host.Raft().ProposeInTerm(ctx, term, data)
	}
	if errors.Is(err, consensus.ErrNotLeader) {
		return api.Errorf(api.KindNoLeader, "this node is not the leader any more").With("try again")
	}
	if err == nil {
		err = ms.host.Raft().WaitApplied(ctx, index)
	}
	if err != nil {
		return api.Errorf(api.KindTimeout,
			"the change of the cluster settings was not committed in time and may still come into force: %v", err).
			With("see `trireme status`: is there a quorum?")
	}
	if got, err := ms.host.Log().Term(index); err != nil || got != term {
		return api.Errorf(api.KindChanged, "leadership changed during the change of the cluster settings").With("try again")
	}
	ms.mu.Lock()
	setAt := ms.setAt
	ms.mu.Unlock()
	if setAt != index {
		return api.Errorf(api.KindChanged, "somebody else changed the cluster settings at the same time").With("try again")
	}
	return nil
}

// checkRevoked: no other node speaks to one whose certificates are revoked.
func (ms *Members) checkRevoked(c *config.Cluster) error {
	if why := c.WhyRevoked(ms.id.ID, ""); why != "" {
		return fmt.Errorf("%w: %s: this is it. Its data is left in %s; `trireme remove %s` takes it out, and after that `trireme join`, with that "+
			"directory moved away, makes it a member again", ErrFinal, why, ms.cfg.Dir, ms.id.Name)
	}
	return nil
}

// newlyUnmet says why a change of the settings would leave a commit rule that can never be met, nil if it does not.
func newlyUnmet(before, after *config.Cluster) error {
	if err := after.CheckRules(); err != nil && before.CheckRules() == nil {
		return api.Errorf(api.KindConflict, "%v", err).With("nothing is changed; see `trireme config show`")
	}
	return nil
}

// shutsOut says whether a change of the settings takes a node, a certificate or a CA out that was trusted before.
func shutsOut(before, next *config.Cluster) bool {
	gone := slices.ContainsFunc(before.Members, func(m config.Member) bool {
		_, ok := next.MemberByID(m.ID)
		return !ok
	})
	return gone || len(next.RevokedCerts) > len(before.RevokedCerts) || next.CA != before.CA && next.CA != ""
}
