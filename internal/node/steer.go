package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/ha"
)

// maxPause bounds `trireme pause --for`: longer than a maintenance, shorter than forgetting about it.
const maxPause = 7 * 24 * time.Hour

// firstTakeover is expected of a failover before there was any, beside noticing the fault and applying a backlog: closing, votes, barrier,
// opening writes, routers.
const firstTakeover = 300 * time.Millisecond

// usualTakeover is the median of that in the last failovers.
func (n *Node) usualTakeover() time.Duration {
	took, ok := usual(n.history.all(), func(e api.Event) (float64, bool) {
		if e.Kind != eventFailover || e.Phases == nil {
			return 0, false
		}
		return e.Phases.CloseMS + e.Phases.VoteMS + e.Phases.OpenMS + e.Phases.RouteMS, true
	})
	if !ok {
		return firstTakeover
	}
	return time.Duration(took * float64(time.Millisecond))
}

// WhyNot implements api.Backend.
func (n *Node) WhyNot(_ context.Context, name string) (api.WhyNotView, error) {
	m, err := n.findMember(name)
	if err != nil {
		return api.WhyNotView{}, err
	}
	v := n.view()
	res := api.WhyNotView{Node: name, Term: v.Raft.Term, SeenBy: n.id.Name, CanLead: true, Reasons: ha.WhyNot(v, m.ID)}
	if v.Open != 0 {
		res.Leader = n.memberName(v.Open)
	}
	for _, z := range n.zoneViews(v) {
		if z.Leader {
			res.Zone = &z
		}
	}
	res.Leads = v.Open == m.ID && len(res.Reasons) == 0
	res.Reasons = append(res.Reasons, n.warningsOf(m.ID)...)
	for i := range res.Reasons {
		r := &res.Reasons[i]
		res.CanLead = res.CanLead && !r.Bars
		if r.Code == ha.Unreachable {
			r.Text = n.silence(m.ID)
		}
	}
	return res, nil
}

// warningsOf are the warnings that a member shows, as reasons that bar nothing.
func (n *Node) warningsOf(id uint64) []ha.Reason {
	n.mu.Lock()
	defer n.mu.Unlock()
	var texts []string
	if p := n.gossip.Peers()[id]; id == n.id.ID {
		texts = n.warningsLocked()
	} else if p.Fresh() {
		texts = p.Member.Warnings
		if why := n.unreachedLocked(p.Member.Name); why != "" {
			texts = append(slices.Clip(texts), why)
		}
	}
	var out []ha.Reason
	for _, text := range texts {
		out = append(out, ha.Reason{Code: ha.Warning, Text: text})
	}
	return out
}

// warningsLocked are this node's own.
func (n *Node) warningsLocked() []string {
	return slices.Concat(n.links.warnings, n.vip.warnings, n.certs.Warnings(), n.keyWarnings,
		n.riskWarnings, n.twinWarningsLocked())
}

// silence says how long a member has not been heard of.
func (n *Node) silence(id uint64) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := n.gossip.Peers()[id].Silence()
	if m, ok := n.cluster.MemberByID(id); ok {
		if why := n.unreachedLocked(m.Name); why != "" {
			text += "; " + why
		}
	}
	return text
}

// unreachedLocked says who cannot reach a member at which address, as far as this node has heard.
func (n *Node) unreachedLocked(name string) string {
	members := []api.MemberView{{Name: n.id.Name, Links: n.links.views}}
	for _, m := range n.cluster.Members {
		if p := n.gossip.Peers()[m.ID]; p.Fresh() {
			members = append(members, api.MemberView{Name: m.Name, Links: p.Member.Links})
		}
	}
	return api.Unreached(name, members)
}

// findMember finds a member by name, for a request.
func (n *Node) findMember(name string) (config.Member, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return memberOf(n.cluster, name)
}

func reasonsText(rs []ha.Reason) string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.Text
	}
	return strings.Join(texts, "; ")
}

// forecast is what the loss of the leader would mean now.
func (n *Node) forecast(v ha.View) api.FailoverView {
	f := ha.Failover(v)
	if f.To == 0 {
		return api.FailoverView{Problem: f.Problem}
	}
	known := n.usualTakeover() + f.Apply
	// A silent leader is forgotten a tick after the election timeout.
	lost := known + n.cfg.Raft.ElectionTimeout() + n.cfg.Raft.Heartbeat()
	return api.FailoverView{To: n.memberName(f.To), Seconds: known.Seconds(), HostLostSeconds: lost.Seconds(), HeavySeconds: f.Heavy.Seconds()}
}

// Config implements api.Backend.
func (n *Node) Config(context.Context) api.ConfigView {
	n.mu.Lock()
	defer n.mu.Unlock()
	return configView(n.cluster)
}

func configView(c *config.Cluster) api.ConfigView {
	return api.ConfigView{Cluster: c.Name, Version: c.Version, Settings: c.Settings()}
}

// ChangeConfig implements api.Backend.
func (n *Node) ChangeConfig(ctx context.Context, req api.ConfigChange) (api.ConfigView, error) {
	if len(req.Set) == 0 {
		return api.ConfigView{}, api.Errorf(api.KindInvalid, "nothing to change")
	}
	c, err := n.changeCluster(ctx, func(c *config.Cluster) error {
		if err := checkVersion(c, req.Version); err != nil {
			return err
		}
		if err := c.SetAll(req.Set); errors.Is(err, config.ErrNoNode) {
			return api.Errorf(api.KindNotFound, "%v", err)
		} else if err != nil {
			return api.Errorf(api.KindInvalid, "%v", err)
		}
		return nil
	})
	if err != nil {
		return api.ConfigView{}, err
	}
	n.log.Info("cluster settings changed", "set", fmt.Sprint(req.Set), "version", c.Version)
	n.poke()
	return configView(c), nil
}

// checkVersion says that the settings are not at the version that a change was made from; 0: whatever it is.
func checkVersion(c *config.Cluster, version uint64) error {
	if version == 0 || version == c.Version {
		return nil
	}
	return api.Errorf(api.KindChanged, "the cluster settings were changed meanwhile: they are at version %d, not at %d as this change expects",
		c.Version, version).With("look at `trireme config show` and try again")
}

// ConfigHistory implements api.Backend.
func (n *Node) ConfigHistory(context.Context) api.ConfigHistoryView {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.cluster
	return api.ConfigHistoryView{Cluster: c.Name, Version: c.Version, Oldest: c.OldestVersion(), Revisions: append([]config.Revision{}, c.Revisions...)}
}

// RollbackConfig implements api.Backend (leader only).
func (n *Node) RollbackConfig(ctx context.Context, req api.ConfigRollback) (api.ConfigRollbackResult, error) {
	res := api.ConfigRollbackResult{To: req.To, DryRun: req.DryRun, Changes: []config.Change{}}
	change := func(c *config.Cluster) error {
		if err := checkVersion(c, req.Version); err != nil {
			return err
		}
		return rollback(c, &res)
	}
	n.mu.Lock()
	c := n.cluster.Clone()
	n.mu.Unlock()
	before := c.Clone()
	err := change(c)
	if err == nil {
		err = newlyUnmet(before, c)
	}
	if err != nil || req.DryRun || len(res.Changes) == 0 {
		return res, err
	}
	if c, err = n.changeCluster(ctx, change); err != nil {
		return res, err
	}
	res.Version = c.Version
	n.log.Info("cluster settings rolled back", "to", req.To, "version", c.Version)
	n.poke()
	return res, nil
}

// rollback carries one out on a copy of the settings.
func rollback(c *config.Cluster, res *api.ConfigRollbackResult) (err error) {
	res.Cluster, res.Version = c.Name, c.Version
	switch oldest := c.OldestVersion(); {
	case res.To > c.Version:
		return api.Errorf(api.KindInvalid, "there is no version %d of the cluster settings: they are at %d", res.To, c.Version).With("see `trireme config history`")
	case res.To < oldest:
		return api.Errorf(api.KindNotFound, "version %d of the cluster settings is not kept any more; the oldest that is has number %d", res.To, oldest).
			With("see `trireme config history`")
	}
	if res.Changes, res.Kept, err = c.Rollback(res.To); err != nil {
		return api.Errorf(api.KindConflict, "%v", err).With("nothing is changed; see `trireme config history`")
	}
	if res.Changes == nil {
		res.Changes = []config.Change{}
	}
	return nil
}

// Pause implements api.Backend.
func (n *Node) Pause(ctx context.Context, req api.PauseRequest) (api.PauseResult, error) {
	if req.For < 0 || req.For > maxPause {
		return api.PauseResult{}, api.Errorf(api.KindInvalid, "a pause lasts up to 7 days, not %s", req.For)
	}
	p := &config.Pause{Since: time.Now()}
	if req.For > 0 {
		p.Until = p.Since.Add(req.For)
	}
	return n.setPause(ctx, p)
}

// Resume implements api.Backend.
func (n *Node) Resume(ctx context.Context, _ api.ResumeRequest) (api.PauseResult, error) {
	return n.setPause(ctx, nil)
}

func (n *Node) setPause(ctx context.Context, p *config.Pause) (api.PauseResult, error) {
	n.mu.Lock()
	now := n.cluster
	n.mu.Unlock()
	if p == nil && now.Pause == nil {
		return api.PauseResult{}, nil
	}
	var before *api.PauseView
	c, err := n.changeCluster(ctx, func(c *config.Cluster) error {
		before = pauseView(c)
		if before != nil && p != nil {
			p.Since = before.Since // one pause that ends at another time
		}
		c.Pause = p
		return nil
	})
	if err != nil {
		return api.PauseResult{}, err
	}
	res := api.PauseResult{Pause: pauseView(c), Before: before}
	n.log.Warn("automatic failover", "paused", res.Pause != nil)
	n.poke()
	return res, nil
}

func pauseView(c *config.Cluster) *api.PauseView {
	if !c.PausedAt(time.Now()) {
		return nil
	}
	v := &api.PauseView{Since: c.Pause.Since}
	if u := c.Pause.Until; !u.IsZero() {
		v.Until = &u
	}
	return v
}
