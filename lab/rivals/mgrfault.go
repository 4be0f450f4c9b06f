package rivals

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/base/poll"
	"trireme/lab/verify"
)

// brokenMGR is a group under faults, with what InnoDB Cluster adds to it: something that starts a server again, an
// operator who lets it join again when it does not do so by itself, and, unless the system has a router of its own, one
// that knows the primary.
//
// That router is Trireme's own pass-through. It learns the primary from watchers that ask every member every mgrPoll,
// so it is quicker than MySQL Router.
type brokenMGR struct {
	*mgr
	kept
	views map[*server]memberView // the newest answer of each member; guarded by mu
}

// memberView is what a member says of itself.
type memberView struct {
	at       time.Time // of the answer
	state    string    // ONLINE, RECOVERING, OFFLINE, ERROR
	primary  bool
	readOnly bool
	members  int // of the group as this member sees it
	online   int // of them ONLINE
	view     int // number of the group's view: it grows with each change of members
}

const (
	mgrPoll     = 20 * time.Millisecond
	mgrPatience = time.Second // for one answer
	// mgrFresh is how old an answer may be to be believed: that of a host that is frozen or lost is not replaced.
	mgrFresh = 300 * time.Millisecond
	// mgrHelp is how often the operator looks for members that have given up.
	mgrHelp = 500 * time.Millisecond
	// recoverLimit is for a system to be whole again after a fault.
	recoverLimit = 90 * time.Second
)

// Break begins to watch the members, and to help them. The clients go through a pass-through.
func (m *mgr) Break(ctx context.Context) (Breakable, error) {
	if m.broken != nil {
		return m.broken, nil
	}
	r, err := m.passThrough()
	if err != nil {
		return nil, err
	}
	return m.breakWith(ctx, r, r.RWAddr())
}

// Break: the clients go through MySQL Router.
func (c *innodbCluster) Break(ctx context.Context) (Breakable, error) {
	if c.broken != nil {
		return c.broken, nil
	}
	return c.breakWith(ctx, nil, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
}

func (m *mgr) breakWith(ctx context.Context, r *router.Router, addr string) (Breakable, error) {
	if m.multi {
		return nil, fmt.Errorf("%w: a group with several primaries has no leader to be hit", ErrNotHere)
	}
	b := &brokenMGR{mgr: m, views: map[*server]memberView{}}
	b.begin(&m.rival, r, addr)
	m.broken = b
	for _, s := range m.servers {
		b.attend(s)
	}
	b.wg.Go(b.refound)
	_, err := b.Settled(ctx)
	return b, err
}

// attend to a member from now on.
func (b *brokenMGR) attend(s *server) {
	b.wg.Go(func() { b.watch(s) })
	b.wg.Go(func() { b.help(s) })
	// A primary is not started before there is another one: a member that asks to join while the group holds its old
	// incarnation for alive is refused, and waits for a minute.
	b.wg.Go(func() { b.keep(s, b.rests) })
}

func (b *brokenMGR) Can(f Fault) error {
	switch f {
	case KillDaemon, StopDaemon:
		return fmt.Errorf("%w: Group Replication has no daemon", ErrNotHere)
	case KillHost:
		return fmt.Errorf("%w: a member is one process; see %q", ErrNotHere, KillMySQL)
	case StopMySQL:
		return fmt.Errorf("%w: a member is one process; see %q", ErrNotHere, StopHost)
	case Replace, Reseed:
		return fmt.Errorf("%w: a member's data is copied by its operator", ErrNotHere)
	case AddNode:
		if len(b.site.spare) == 0 {
			return fmt.Errorf("%w: there is no spare host", ErrNotHere)
		}
	}
	return f.needsNetwork(b.Network())
}

// Settled waits until all members are ONLINE in the view of each.
func (b *brokenMGR) Settled(ctx context.Context) (Lead, error) {
	err := poll.Within(ctx, recoverLimit, "all members ONLINE", func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, n := range b.servers {
			if v := b.views[n]; time.Since(v.at) > mgrFresh || v.online != len(b.servers) || v.state != "ONLINE" {
				return fmt.Errorf("%s is %s and sees %d of %d members ONLINE", n.host.name, v.state, v.online, v.members)
			}
		}
		if !b.leader.Open {
			return errors.New("no member is known to be the primary")
		}
		return nil
	})
	l, _ := b.Leader(ctx)
	return l, err
}

// Settle does not move the primary back, as it would without faults.
func (b *brokenMGR) Settle(ctx context.Context) error {
	_, err := b.Settled(ctx)
	return err
}

// Healthy reports whether a member is ONLINE by its own word, which must be fresh.
func (b *brokenMGR) Healthy(_ context.Context, name string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.views[serverOn(b.servers, name)]
	return v.state == "ONLINE" && time.Since(v.at) <= mgrFresh, nil
}

// watch asks a member what it is, and leads the router accordingly.
func (b *brokenMGR) watch(n *server) {
	for b.ctx.Err() == nil {
		v, err := n.askMember(b.ctx)
		b.mu.Lock()
		if err == nil {
			b.views[n] = v
		} else if !errors.Is(err, context.DeadlineExceeded) { // it is gone; one that is slow keeps its last answer while that is fresh
			delete(b.views, n)
		}
		b.choose()
		b.mu.Unlock()
		_ = poll.Pause(b.ctx, mgrPoll)
	}
}

// askMember what it is.
func (s *server) askMember(ctx context.Context) (v memberView, err error) {
	ctx, cancel := context.WithTimeout(ctx, mgrPatience)
	defer cancel()
	var role, view string
	err = s.db.QueryRowContext(ctx, "SELECT m.member_state, m.member_role, @@GLOBAL.super_read_only, "+
		"(SELECT COUNT(*) FROM performance_schema.replication_group_members), "+
		"(SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE'), "+
		"COALESCE((SELECT MAX(view_id) FROM performance_schema.replication_group_member_stats), '') "+
		"FROM performance_schema.replication_group_members m WHERE m.member_id IN (@@GLOBAL.server_uuid, '') LIMIT 1").
		Scan(&v.state, &role, &v.readOnly, &v.members, &v.online, &view)
	v.at, v.primary = time.Now(), role == "PRIMARY"
	if _, number, ok := strings.Cut(view, ":"); ok {
		v.view, _ = strconv.Atoi(number)
	}
	return v, err
}

// choose leads the router to the member that is the primary in the newest view; called with mu held.
func (b *brokenMGR) choose() {
	var best *server
	for n, v := range b.views {
		if time.Since(v.at) > mgrFresh || !v.primary || v.readOnly || v.state != "ONLINE" || 2*v.online <= v.members {
			continue
		}
		if best == nil || v.view > b.views[best].view {
			best = n
		}
	}
	if best == nil {
		b.leader.Open = false
		b.route(router.View{KeepRW: true})
		return
	}
	pid := best.proc.PID
	if b.leader.Name != best.host.name || b.leader.pid != pid {
		b.leader = Lead{Name: best.host.name, Term: b.leader.Term + 1, pid: pid}
	}
	b.leader.Open = true
	b.route(router.View{RW: &router.Target{Name: best.host.name, Addr: best.addr(), Epoch: strconv.Itoa(pid)}})
}

func (b *brokenMGR) route(v router.View) {
	if b.router != nil {
		b.router.SetView(v)
	}
}

// help is the operator: START GROUP_REPLICATION on a member that has given up. A server that is back before the group
// has expelled its old incarnation is refused, and does not try again by itself.
func (b *brokenMGR) help(n *server) {
	for poll.Pause(b.ctx, mgrHelp) == nil {
		b.mu.Lock()
		v, primary := b.views[n], b.leader
		b.mu.Unlock()
		if time.Since(v.at) > mgrFresh || !primary.Open || primary.Name == n.host.name || v.state != "OFFLINE" &&
			v.state != "ERROR" {
			continue
		}
		ctx, cancel := context.WithTimeout(b.ctx, recoverLimit)
		if v.state == "ERROR" {
			_ = n.exec(ctx, "STOP GROUP_REPLICATION")
		}
		_ = n.exec(ctx, "START GROUP_REPLICATION") // an error is seen by Settled
		cancel()
	}
}

func (b *brokenMGR) Do(ctx context.Context, f Fault, name string) error {
	if known, err := b.hit(f, name); known {
		return err
	}
	switch f {
	case Switchover:
		return b.switchover(ctx, name)
	case AddNode:
		return b.addNode(ctx)
	}
	return b.Can(f)
}

// switchover moves the primary to the next member.
func (b *brokenMGR) switchover(ctx context.Context, from string) error {
	for i, n := range b.servers {
		if n.host.name != from {
			continue
		}
		var uuid string
		if err := b.servers[(i+1)%len(b.servers)].db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&uuid); err != nil {
			return err
		}
		return n.exec(ctx, "DO group_replication_set_as_primary('"+uuid+"')")
	}
	return fmt.Errorf("no member %s", from)
}

// addNode starts a server with an empty data directory on the spare host. The plugin copies what it lacks from a
// member's binary log.
func (b *brokenMGR) addNode(ctx context.Context) error {
	h := b.site.spare[0]
	o := maps.Clone(b.options)
	o["group_replication_local_address"] = fmt.Sprintf("%s:%d", h.addr, h.port(mgrPort))
	s, err := h.startServer(ctx, len(b.servers)+1, o)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.site.spare, b.site.hosts, b.servers = b.site.spare[1:], append(b.site.hosts, h), append(b.servers, s)
	b.mu.Unlock()
	if err := s.join(ctx, false); err != nil {
		return err
	}
	b.attend(s)
	return nil
}

// endpointsOf opens a connection of its own to each server, for checks that may take long.
func endpointsOf(servers []*server) ([]verify.Endpoint, error) {
	var out []verify.Endpoint
	for _, s := range servers {
		db, err := verify.Login{Addr: verify.Fixed(s.addr()), User: User, Password: Password,
			StatementTimeout: time.Minute}.Open("")
		if err != nil {
			verify.CloseEndpoints(out)
			return nil, err
		}
		out = append(out, verify.Endpoint{Name: s.host.name, DB: db})
	}
	return out, nil
}
