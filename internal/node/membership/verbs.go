package membership

import (
	"context"
	"fmt"
	"slices"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/core/consensus"
)

// CheckTerm refuses what was asked for in view of an older term.
func (ms *Members) CheckTerm(want uint64) error {
	if now := ms.host.Raft().Status().Term; want != 0 && want != now {
		return api.Errorf(api.KindChanged, "it is term %d, not %d: leadership has moved meanwhile", now, want).
			With("see `trireme status`; nothing is changed")
	}
	return nil
}

// leaving is a way to give up a vote: remove or demote.
type leaving struct {
	verb, path string
	edit       func(*config.Member)
	done       func(*config.Cluster, *consensus.Status, uint64) bool // in force
	now, then  string                                                // what is said of the member meanwhile and afterwards
}

var (
	removal = leaving{"remove", "/remove", func(m *config.Member) { m.Removing = true },
		func(c *config.Cluster, _ *consensus.Status, id uint64) bool {
			_, still := c.MemberByID(id)
			return !still
		},
		"is being removed", "is removed; its directory is left as it is"}
	demotion = leaving{"demote", "/demote", func(m *config.Member) { m.Role, m.Move = config.RoleLearner, 0 },
		func(_ *config.Cluster, st *consensus.Status, id uint64) bool {
			return !slices.Contains(st.Voters, id) && len(st.Outgoing) == 0
		},
		"is being demoted", "is a learner now: it has the data and no vote"}
)

// Remove implements api.Backend (leader only). The intent is recorded in the settings; Reconcile carries it out, also
// under the next leader, and the record goes last.
func (ms *Members) Remove(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return ms.leave(ctx, req, removal)
}

// Demote implements api.Backend (leader only): a voter becomes a learner.
func (ms *Members) Demote(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return ms.leave(ctx, req, demotion)
}

func (ms *Members) leave(ctx context.Context, req api.MemberRequest, how leaving) (api.MemberResult, error) {
	var m config.Member
	change := func(c *config.Cluster) (err error) {
		if err := ms.CheckTerm(req.IfTerm); err != nil {
			return err
		}
		if m, err = Of(c, req.Name); err != nil {
			return err
		}
		switch {
		case m.Removing:
			return api.Errorf(api.KindAlready, "%s is being removed already (settings version %d)", m.Name, c.Version).
				With("that continues by itself; see `trireme status`")
		case how.verb == demotion.verb:
			if err := mayBecome(c, m, config.RoleLearner); err != nil {
				return err
			}
		}
		if err := editMember(c, m.ID, how.edit); err != nil {
			return err
		}
		return ms.mayChange(c)
	}
	c := ms.Current().Clone()
	if err := change(c); err != nil {
		return api.MemberResult{}, err
	}
	if m.ID == ms.id.ID {
		return ms.leaveFirst(ctx, m, req, how)
	}
	c, err := ms.Change(ctx, 0, change)
	if err != nil {
		return api.MemberResult{}, err
	}
	ms.host.Record(how.verb, api.WhoAsked(ctx), fmt.Sprintf("%s (id %d) %s, on an operator's request", m.Name, m.ID,
		how.now))
	err = ms.awaitMembers(ctx, m.Name+" "+how.now, func(c *config.Cluster, st *consensus.Status) bool {
		return how.done(c, st, m.ID)
	})
	return ms.Result(c.Version, m.Name, m.Name+" "+how.then), err
}

// leaveFirst is leave of the leader itself: it hands leadership over as in a switchover, and asks the next leader for
// the rest.
func (ms *Members) leaveFirst(ctx context.Context, m config.Member, req api.MemberRequest,
	how leaving) (api.MemberResult, error) {
	sw, err := ms.host.Switchover(ctx, api.SwitchoverRequest{OpenTrxWait: req.OpenTrxWait, IfTerm: req.IfTerm})
	if err != nil {
		e := api.Errorf(api.KindOf(err), "%s leads, and did not hand leadership over: %v", m.Name, err)
		return api.MemberResult{}, e.With("nothing else is changed")
	}
	req.IfTerm = 0
	var res api.MemberResult
	if err := ms.host.Forward(ctx, how.path, req, &res); err != nil {
		e := api.Errorf(api.KindOf(err), "%s has handed leadership over to %s, and the rest did not follow: %v", m.Name,
			sw.To, err)
		return api.MemberResult{}, e.With("see `trireme status`; `trireme %s %s` may be asked for again", how.verb, m.Name)
	}
	res.Switchover = &sw
	return res, nil
}

// Promote implements api.Backend (leader only): learners become voters as soon as all of them have caught up; other
// members give up their votes at that moment.
func (ms *Members) Promote(ctx context.Context, req api.PromoteRequest) (api.MemberResult, error) {
	if len(req.Names) == 0 {
		return api.MemberResult{}, api.Errorf(api.KindInvalid, "name a node to promote")
	}
	var in, out []config.Member
	c, err := ms.Change(ctx, 0, func(c *config.Cluster) (err error) {
		if err := ms.CheckTerm(req.IfTerm); err != nil {
			return err
		}
		if in, out, err = ms.editMove(c, req); err != nil {
			return err
		}
		return ms.mayChange(c)
	})
	if err != nil {
		return api.MemberResult{}, err
	}
	text := namesOf(in) + plural(in, " becomes a voter as soon as it has caught up",
		" become voters as soon as all of them have caught up")
	if len(out) > 0 {
		text += ", and at that moment " + namesOf(out) + plural(out, " gives up its vote", " give up their votes")
	}
	if _, leads := byID(out, ms.id.ID); leads {
		text += "; " + ms.id.Name + " leads and hands leadership over first"
	}
	ms.host.Record("role", api.WhoAsked(ctx), text+", on an operator's request")
	ms.host.Go(ms.Reconcile)
	return ms.Result(c.Version, req.Names[0], text), nil
}

// editMove makes the change that a promotion asks for.
func (ms *Members) editMove(c *config.Cluster, req api.PromoteRequest) (in, out []config.Member, err error) {
	known := ms.Census()
	seen := map[string]bool{}
	var move uint64
	if len(req.Demote)+len(req.Remove) > 0 {
		move = c.Version + 1
	}
	edit := func(name string, check func(config.Member) error, change func(*config.Member)) (m config.Member, err error) {
		if m, err = Of(c, name); err != nil {
			return m, err
		}
		switch {
		case seen[name]:
			return m, api.Errorf(api.KindInvalid, "%s is named twice", name)
		case m.Removing:
			return m, api.Errorf(api.KindConflict, "%s is being removed (settings version %d)", name, c.Version)
		}
		seen[name] = true
		if check != nil {
			if err := check(m); err != nil {
				return m, err
			}
		}
		return m, editMember(c, m.ID, func(m *config.Member) {
			m.Move = move
			change(m)
		})
	}
	for _, name := range req.Names {
		m, err := edit(name, func(m config.Member) error {
			if err := mayBecome(c, m, config.RoleVoter); err != nil {
				return err
			}
			if !known.Nodes[m.ID].Live {
				return api.Errorf(api.KindNotReady, "%s does not answer, so it cannot be given a vote", m.Name).
					With("start its daemon")
			}
			if d := m.Delay(); d > 0 {
				return api.Errorf(api.KindConflict, "%s is delayed by %v, and a voter may have to lead", m.Name,
					config.Duration(d)).
					With("first `trireme delay %[1]s --now`, and once it has caught up `trireme config edit apply_delay.%[1]s=none`",
						m.Name)
			}
			return nil
		}, func(m *config.Member) { m.Role = config.RoleVoter })
		if err != nil {
			return nil, nil, err
		}
		in = append(in, m)
	}
	for _, name := range req.Demote {
		m, err := edit(name, func(m config.Member) error { return mayBecome(c, m, config.RoleLearner) },
			func(m *config.Member) { m.Role = config.RoleLearner })
		if err != nil {
			return nil, nil, err
		}
		out = append(out, m)
	}
	for _, name := range req.Remove {
		m, err := edit(name, nil, func(m *config.Member) { m.Removing = true })
		if err != nil {
			return nil, nil, err
		}
		out = append(out, m)
	}
	return in, out, nil
}

// mayBecome says why a member cannot be given a role; nil: it can.
func mayBecome(c *config.Cluster, m config.Member, role string) error {
	switch m.Role {
	case config.RoleLogger:
		return api.Errorf(api.KindConflict, "%s is a logger: without data it can be nothing else", m.Name)
	case role:
		return api.Errorf(api.KindAlready, "%s is a %s already (settings version %d)", m.Name, role, c.Version)
	}
	return nil
}

// mayChange says why the votes must not change to what changed settings wish. Learners that are part of a move count
// as if they had caught up: until they have, nothing happens.
func (ms *Members) mayChange(c *config.Cluster) error {
	before := ms.Current()
	if err := newlyUnmet(before, c); err != nil {
		return err // before a leader that is to leave hands over
	}
	known := ms.Census()
	var in, out []uint64
	for _, m := range c.Members {
		s := known.Nodes[m.ID]
		switch {
		case s.Voter && m.Leaving():
			out = append(out, m.ID)
		case !s.Voter && !m.Leaving() && m.Move != 0:
			s.Ready = s.Data
			known.Nodes[m.ID] = s
			in = append(in, m.ID)
		}
	}
	return known.mayLeave(in, out)
}

func plural(ms []config.Member, one, many string) string {
	if len(ms) == 1 {
		return one
	}
	return many
}

func byID(ms []config.Member, id uint64) (config.Member, bool) {
	for _, m := range ms {
		if m.ID == id {
			return m, true
		}
	}
	return config.Member{}, false
}

// awaitMembers waits until a change that is recorded is in force.
func (ms *Members) awaitMembers(ctx context.Context, what string,
	done func(*config.Cluster, *consensus.Status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	ms.Reconcile(ctx)
	for {
		st := ms.host.Raft().Status()
		c := ms.Current()
		if done(c, &st) {
			return nil
		}
		if poll.Pause(ctx, memberPoll) != nil {
			ms.mu.Lock()
			if ms.waits != nil {
				what += fmt.Sprintf(" (%v)", ms.waits)
			}
			ms.mu.Unlock()
			return api.Errorf(api.KindTimeout, "%s, which has not come to its end in time", what).
				With("it is recorded and continues by itself once there is a quorum; see `trireme status`")
		}
	}
}
