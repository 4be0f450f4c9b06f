package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// maxPause bounds `trireme pause --for`: longer than a maintenance, shorter than forgetting about it.
const maxPause = 7 * 24 * time.Hour

// Config implements api.Backend.
func (ms *Members) Config(context.Context) api.ConfigView {
	return configView(ms.Current())
}

func configView(c *config.Cluster) api.ConfigView {
	return api.ConfigView{Cluster: c.Name, Version: c.Version, Settings: c.Settings()}
}

// ChangeConfig implements api.Backend.
func (ms *Members) ChangeConfig(ctx context.Context, req api.ConfigChange) (api.ConfigView, error) {
	if len(req.Set) == 0 {
		return api.ConfigView{}, api.Errorf(api.KindInvalid, "nothing to change")
	}
	c, err := ms.Change(ctx, 0, func(c *config.Cluster) error {
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
	ms.log.Info("cluster settings changed", "set", fmt.Sprint(req.Set), "version", c.Version)
	return configView(c), nil
}

// checkVersion says that the settings are not at the version that a change was made from; 0: whatever it is.
func checkVersion(c *config.Cluster, version uint64) error {
	if version == 0 || version == c.Version {
		return nil
	}
	return api.Errorf(api.KindChanged,
		"the cluster settings were changed meanwhile: they are at version %d, not at %d as this change expects",
		c.Version, version).With("look at `trireme config show` and try again")
}

// ConfigHistory implements api.Backend.
func (ms *Members) ConfigHistory(context.Context) api.ConfigHistoryView {
	c := ms.Current()
	return api.ConfigHistoryView{Cluster: c.Name, Version: c.Version, Oldest: c.OldestVersion(),
		Revisions: append([]config.Revision{}, c.Revisions...)}
}

// RollbackConfig implements api.Backend (leader only).
func (ms *Members) RollbackConfig(ctx context.Context, req api.ConfigRollback) (api.ConfigRollbackResult, error) {
	res := api.ConfigRollbackResult{To: req.To, DryRun: req.DryRun, Changes: []config.Change{}}
	change := func(c *config.Cluster) error {
		if err := checkVersion(c, req.Version); err != nil {
			return err
		}
		return rollback(c, &res)
	}
	c := ms.Current().Clone()
	before := c.Clone()
	err := change(c)
	if err == nil {
		err = newlyUnmet(before, c)
	}
	if err != nil || req.DryRun || len(res.Changes) == 0 {
		return res, err
	}
	if c, err = ms.Change(ctx, 0, change); err != nil {
		return res, err
	}
	res.Version = c.Version
	ms.log.Info("cluster settings rolled back", "to", req.To, "version", c.Version)
	return res, nil
}

// rollback carries one out on a copy of the settings.
func rollback(c *config.Cluster, res *api.ConfigRollbackResult) (err error) {
	res.Cluster, res.Version = c.Name, c.Version
	switch oldest := c.OldestVersion(); {
	case res.To > c.Version:
		return api.Errorf(api.KindInvalid, "there is no version %d of the cluster settings: they are at %d", res.To,
			c.Version).With("see `trireme config history`")
	case res.To < oldest:
		return api.Errorf(api.KindNotFound,
			"version %d of the cluster settings is not kept any more; the oldest that is has number %d", res.To, oldest).
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
func (ms *Members) Pause(ctx context.Context, req api.PauseRequest) (api.PauseResult, error) {
	if req.For < 0 || req.For > maxPause {
		return api.PauseResult{}, api.Errorf(api.KindInvalid, "a pause lasts up to 7 days, not %s", req.For)
	}
	p := &config.Pause{Since: time.Now()}
	if req.For > 0 {
		p.Until = p.Since.Add(req.For)
	}
	return ms.setPause(ctx, p)
}

// Resume implements api.Backend.
func (ms *Members) Resume(ctx context.Context, _ api.ResumeRequest) (api.PauseResult, error) {
	return ms.setPause(ctx, nil)
}

func (ms *Members) setPause(ctx context.Context, p *config.Pause) (api.PauseResult, error) {
	now := ms.Current()
	if p == nil && now.Pause == nil {
		return api.PauseResult{}, nil
	}
	var before *api.PauseView
	c, err := ms.Change(ctx, 0, func(c *config.Cluster) error {
		before = PauseView(c)
		if before != nil && p != nil {
			p.Since = before.Since // one pause that ends at another time
		}
		c.Pause = p
		return nil
	})
	if err != nil {
		return api.PauseResult{}, err
	}
	res := api.PauseResult{Pause: PauseView(c), Before: before}
	ms.log.Warn("automatic failover", "paused", res.Pause != nil)
	return res, nil
}

// PauseView is the pause that is in force; nil: none.
func PauseView(c *config.Cluster) *api.PauseView {
	if !c.PausedAt(time.Now()) {
		return nil
	}
	v := &api.PauseView{Since: c.Pause.Since}
	if u := c.Pause.Until; !u.IsZero() {
		v.Until = &u
	}
	return v
}
