package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/failpoint"
	"trireme/internal/raftlog"
)

// Limits of changes of the cluster settings.
const (
	settingsTimeout = 5 * time.Second
	settingsLease   = 2 * time.Second // for a majority to answer before a change is proposed
)

// applySettings takes the settings of a committed entry. Every node decides alike: a version counts once, so of two changes made
// from the same copy the first in the log wins. A node that cannot read what is in force stops: all others go by it.
func (n *Node) applySettings(index uint64, data []byte) error {
	c, err := config.ParseCluster(data)
	if version, _ := config.ReadHead(data); err != nil && version != 0 && version <= n.Settings().Version {
		return nil // newer ones are in force
	}
	if err != nil {
		return fmt.Errorf("%w: the cluster settings of entry %d cannot be read: %w", ErrFinal, index, err)
	}
	n.adoptSettings(index, c)
	return nil
}

// adoptSettings takes committed settings, if they are newer than those that this node has. index is that of their entry, 0 when
// another node told them.
func (n *Node) adoptSettings(index uint64, c *config.Cluster) {
	n.mu.Lock()
	before := n.cluster
	newer := c.Version > before.Version
	if newer {
		n.setClusterLocked(c)
		n.setAt = index
		n.gossip.Publish()
	}
	n.mu.Unlock()
	if !newer {
		return
	}
	n.tellLeaving(before, c)
	failpoint.Hit("settings.before-save")
	n.saveSettings()
	if err := n.checkMembership(c); err != nil {
		n.fail(err)
		return
	}
	n.setPeers(c)
	n.tendDelay()
	n.certs.SettingsChanged(c)
	n.poke()
	if c.Disbanded != nil {
		n.task(func(context.Context) { n.disperse(c.Disbanded, c.Version) })
	}
}

// tellLeaving logs who leaves the cluster by a change of the settings, or has left it.
func (n *Node) tellLeaving(before, c *config.Cluster) {
	for _, m := range before.Members {
		now, stays := c.MemberByID(m.ID)
		switch {
		case !stays:
			n.log.Info("a node is not a member any more", "node", m.Name, "id", m.ID, "settings", c.Version)
		case now.Removing && !m.Removing:
			n.log.Info("a node is being removed", "node", m.Name, "id", m.ID, "settings", c.Version)
		}
	}
}

// saveSettings writes the copy of the settings that the next start begins with. A disk that is full may take it later (fetchSettings).
func (n *Node) saveSettings() {
	n.saving.Lock()
	defer n.saving.Unlock()
	err := n.Settings().Save(n.cfg.Dir)
	n.unsaved.Store(err != nil)
	if n.warnings.isNew("save settings", err) {
		n.log.Error("the copy of the cluster settings could not be written; it is tried again", "err", err)
	}
}

// checkMembership: a node that is no member serves nobody, its data grows stale.
func (n *Node) checkMembership(c *config.Cluster) error {
	if _, ok := c.MemberByID(n.id.ID); ok {
		return n.checkRevoked(c)
	}
	return fmt.Errorf("%w: node %q (id %d) is not a member of cluster %q any more: it was removed, or joined again under another id. "+
		"Its data is left in %s; to make it a member again, move that directory away and run `trireme join`",
		ErrFinal, n.id.Name, n.id.ID, n.id.Cluster, n.cfg.Dir)
}

// fetchSettings asks for newer settings than this node has. The log does not bring those that were committed below where it begins
// after a snapshot, nor does it reach a node that was removed meanwhile. What another node has is committed.
func (n *Node) fetchSettings(ctx context.Context) {
	if n.unsaved.Load() {
		n.saveSettings()
	}
	from, newest := uint64(0), n.Settings().Version
	for id, p := range n.gossip.Peers() {
		if p.Fresh() && p.Settings > newest {
			from, newest = id, p.Settings
		}
	}
	if from == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	body, err := n.tr.Request(ctx, from, reqSettings, nil)
	if err != nil {
		return
	}
	c, err := config.ParseCluster(body)
	if err == nil && c.ClusterID != n.id.ClusterID {
		err = fmt.Errorf("they are of cluster %d", c.ClusterID)
	}
	if errors.Is(err, config.ErrNewer) {
		n.fail(fmt.Errorf("the cluster settings that node %d tells of: %w", from, err))
		return
	}
	if n.warnings.isNew("fetch settings", err) {
		n.log.Error("cluster settings of another node are not readable", "peer", from, "err", err)
	}
	if err != nil {
		return
	}
	select {
	case n.changing <- struct{}{}:
		n.adoptSettings(0, c)
		<-n.changing
	default: // a change of our own is on its way, which looks at the log for it
	}
}

// setPeers tells the transport where the other members are.
func (n *Node) setPeers(c *config.Cluster) {
	addrs := make(map[uint64]string, len(c.Members))
	for _, m := range c.Members {
		if m.ID != n.id.ID {
			addrs[m.ID] = m.Peer
		}
	}
	n.tr.SetPeers(addrs)
}

// changeCluster proposes a change of the settings and returns once it is committed. change gets a copy.
func (n *Node) changeCluster(ctx context.Context, change func(*config.Cluster) error) (*config.Cluster, error) {
	return n.changeClusterIn(ctx, 0, change)
}

// changeClusterIn is changeCluster for a leader of one certain term (S7); 0: of any.
func (n *Node) changeClusterIn(ctx context.Context, term uint64, change func(*config.Cluster) error) (*config.Cluster, error) {
	if err := n.awaitTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-n.changing }()
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	n.mu.Lock()
	before := n.cluster
	n.mu.Unlock()
	next := before.Clone()
	if err := change(next); err != nil {
		return nil, err
	}
	next.Rotate = next.Rotate || shutsOut(before, next)
	if err := newlyUnmet(before, next); err != nil {
		return nil, err
	}
	next.Version++
	next.Record(before, time.Now(), cmp.Or(api.AskedBy(ctx), n.id.Name))
	body, err := next.Marshal()
	if err != nil {
		return nil, api.Errorf(api.KindInvalid, "%v", err)
	}
	// A leader that nobody answers would keep the change in its log, to be committed whenever a quorum is back.
	if err := n.awaitLease(ctx, settingsLease); err != nil {
		return nil, api.Errorf(api.KindNoLeader, "no majority of the voters answers %s; nothing is changed", n.id.Name).With("see `trireme status`")
	}
	return next, n.commitSettings(ctx, term, body)
}

// awaitTurn waits until no other change of the settings is under way here. A receive from n.changing gives the turn back.
func (n *Node) awaitTurn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	select {
	case n.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return api.Errorf(api.KindTimeout, "another change of the cluster settings is under way at %s and has not ended in time; "+
			"nothing is changed", n.id.Name).With("try again")
	}
}

func (n *Node) commitSettings(ctx context.Context, term uint64, body []byte) (err error) {
	m := raftlog.Meta{Kind: raftlog.Settings, Node: uint16(n.id.ID)}
	data := append(raftlog.AppendMeta(nil, &m), body...)
	var index uint64
	if term == 0 {
		index, term, err = n.cons.Propose(ctx, data)
	} else {
		index, err = n.cons.ProposeInTerm(ctx, term, data)
	}
	if errors.Is(err, consensus.ErrNotLeader) {
		return api.Errorf(api.KindNoLeader, "this node is not the leader any more").With("try again")
	}
	if err == nil {
		err = n.cons.WaitApplied(ctx, index)
	}
	if err != nil {
		return api.Errorf(api.KindTimeout, "the change of the cluster settings was not committed in time and may still come into force: %v", err).With("see `trireme status`: is there a quorum?")
	}
	if got, err := n.rlog.Term(index); err != nil || got != term {
		return api.Errorf(api.KindChanged, "leadership changed during the change of the cluster settings").With("try again")
	}
	n.mu.Lock()
	setAt := n.setAt
	n.mu.Unlock()
	if setAt != index {
		return api.Errorf(api.KindChanged, "somebody else changed the cluster settings at the same time").With("try again")
	}
	return nil
}

// checkRevoked: a node whose certificates are revoked is spoken to by nobody.
func (n *Node) checkRevoked(c *config.Cluster) error {
	if why := c.WhyRevoked(n.id.ID, ""); why != "" {
		return fmt.Errorf("%w: %s: this is it. Its data is left in %s; `trireme remove %s` takes it out, and after that `trireme join`, with that "+
			"directory moved away, makes it a member again", ErrFinal, why, n.cfg.Dir, n.id.Name)
	}
	return nil
}
