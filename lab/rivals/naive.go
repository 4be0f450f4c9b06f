package rivals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/base/poll"
)

// naive is semi-sync replication with the failover that many build for it: a script that pings the source, promotes the
// replica that has received the most once it has not answered for a while, points the others to it, and makes whatever
// comes back a replica. It looks for no transactions that only the old source has, and asks no majority. Clients go
// through Trireme's own pass-through, which follows the script.
type naive struct {
	*replication
	kept
	missed int             // guarded by mu
	roles  map[*server]int // the pid that has been given its role; guarded by mu
}

const (
	naivePing     = 200 * time.Millisecond
	naivePatience = time.Second // for one answer
	naiveMisses   = 3           // pings without an answer make a dead source
)

// Operate starts the script, and what starts servers again.
func (r *replication) Operate(ctx context.Context) (Breakable, error) {
	if !r.semisync {
		return nil, fmt.Errorf("%w: MySQL's replication has no failover of its own", ErrNotHere)
	}
	if r.broken != nil {
		return r.broken, nil
	}
	rt, err := r.passThrough()
	if err != nil {
		return nil, err
	}
	n := &naive{replication: r, roles: map[*server]int{}}
	n.begin(&r.rival, rt, rt.RWAddr())
	r.broken = n
	for _, s := range r.servers {
		n.roles[s] = s.proc.PID
		s.addOption("super_read_only", "ON") // from the next start on: the script opens writes
		s.addOption("skip_replica_start", "ON")
		n.wg.Go(func() { n.keep(s, func(*server) bool { return false }) })
	}
	n.serve(r.servers[0])
	n.wg.Go(n.watch)
	_, err = n.Settled(ctx)
	return n, err
}

// serve leads clients to a source; called with mu held, or before anything runs.
func (n *naive) serve(s *server) {
	n.leader = Lead{Name: s.host.name, Term: n.leader.Term + 1, Open: true, pid: s.proc.PID}
	n.missed = 0
	n.router.SetView(router.View{RW: &router.Target{Name: s.host.name, Addr: s.addr(),
		Epoch: strconv.FormatUint(n.leader.Term, 10)}})
}

// watch is the script.
func (n *naive) watch() {
	for poll.Pause(n.ctx, naivePing) == nil {
		n.look()
	}
}

// answers reports whether a server answers.
func (n *naive) answers(s *server) bool {
	ctx, cancel := context.WithTimeout(n.ctx, naivePatience)
	defer cancel()
	return s.db.PingContext(ctx) == nil
}

func (n *naive) look() {
	servers := n.all()
	up := map[*server]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() {
			ok := n.answers(s)
			mu.Lock()
			defer mu.Unlock()
			up[s] = ok
		})
	}
	wg.Wait()
	source := servers[0]
	if !up[source] {
		n.mu.Lock()
		n.missed++
		dead := n.missed >= naiveMisses
		n.mu.Unlock()
		if dead {
			n.failover(servers, up)
		}
		return
	}
	n.mu.Lock()
	n.missed = 0
	n.mu.Unlock()
	n.giveRoles(servers, up)
}

// giveRoles makes every server that was started since follow the source, and then lets the source take writes.
func (n *naive) giveRoles(servers []*server, up map[*server]bool) {
	for _, s := range append(servers[1:len(servers):len(servers)], servers[0]) {
		n.mu.Lock()
		pid := s.proc.PID
		done := n.roles[s] == pid
		n.mu.Unlock()
		if done || !up[s] {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, startLimit)
		var err error
		if s == servers[0] {
			err = n.openWrites(ctx, s)
		} else {
			err = n.follow(ctx, s, servers[0])
		}
		cancel()
		n.mu.Lock()
		if err == nil && s.proc.PID == pid {
			n.roles[s] = pid
			if s == servers[0] {
				n.serve(s)
			}
		}
		n.mu.Unlock()
	}
}

// openWrites on a source, but not before a replica acknowledges: an account statement that waits makes every login
// hang, and with it that of the replica whose acknowledgement it waits for, so that nothing would ever be acknowledged
// again.
func (n *naive) openWrites(ctx context.Context, s *server) error {
	if err := n.replication.lead(ctx, s); err != nil {
		return err
	}
	clients, err := s.status(ctx, "Rpl_semi_sync_source_clients")
	if err == nil && clients == "0" {
		err = fmt.Errorf("%s: no replica acknowledges yet", s.host.name) // the next look tries again
	}
	if err != nil {
		return err
	}
	return s.exec(ctx, "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
}

// failover promotes the replica with the most transactions. It takes writes once others follow it.
func (n *naive) failover(servers []*server, up map[*server]bool) {
	var rest []*server
	for _, s := range servers[1:] {
		if up[s] {
			rest = append(rest, s)
		}
	}
	ctx, cancel := context.WithTimeout(n.ctx, startLimit)
	defer cancel()
	best, err := mostAdvanced(ctx, rest, "")
	if err != nil || best == nil {
		return // the next look tries again
	}
	set, err := best.received(ctx, "")
	if err == nil {
		err = best.exec(ctx, "STOP REPLICA IO_THREAD", "START REPLICA SQL_THREAD", "DO WAIT_FOR_EXECUTED_GTID_SET('"+set+
			"', 60)", "STOP REPLICA", "RESET REPLICA ALL")
	}
	if err != nil {
		return
	}
	n.mu.Lock()
	n.servers = append([]*server{best}, without(n.servers, best.host.name)...)
	clear(n.roles)
	n.missed = 0
	servers = append([]*server(nil), n.servers...)
	n.mu.Unlock()
	n.giveRoles(servers, up)
}

func (n *naive) Can(f Fault) error {
	switch f {
	case KillDaemon, StopDaemon:
		return fmt.Errorf("%w: replication has no daemon", ErrNotHere)
	case KillHost, StopMySQL:
		return fmt.Errorf("%w: a host has one process; see %q and %q", ErrNotHere, KillMySQL, StopHost)
	case Switchover, AddNode, Replace, Reseed:
		return fmt.Errorf("%w: the script does nothing that is planned", ErrNotHere)
	}
	return f.needsNetwork(n.Network())
}

// Settled: every replica is connected to the source and applies.
func (n *naive) Settled(ctx context.Context) (Lead, error) {
	err := poll.Within(ctx, recoverLimit, "replication with all replicas", func(ctx context.Context) error {
		n.mu.Lock()
		servers := append([]*server(nil), n.servers...)
		source := n.leader.Name
		given := !slices.ContainsFunc(servers, func(s *server) bool { return n.roles[s] != s.proc.PID })
		n.mu.Unlock()
		if servers[0].host.name != source || !given {
			return errors.New("roles are not given to all")
		}
		for _, s := range servers[1:] {
			if err := s.replicates(ctx); err != nil {
				return err
			}
		}
		return servers[0].db.PingContext(ctx)
	})
	l, _ := n.Leader(ctx)
	return l, err
}

// replicates is nil when both threads of a replica run.
func (s *server) replicates(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, naivePatience)
	defer cancel()
	var receiver, applier, problem string
	err := s.db.QueryRowContext(ctx,
		"SELECT c.service_state, a.service_state, CONCAT(c.last_error_message, COALESCE((SELECT MAX(last_error_message) FROM performance_schema.replication_applier_status_by_worker), '')) "+
			"FROM performance_schema.replication_connection_status c JOIN performance_schema.replication_applier_status a USING (channel_name) WHERE channel_name = ''").Scan(&receiver, &applier, &problem)
	if err == nil && (receiver != "ON" || applier != "ON") {
		err = fmt.Errorf("receiver %s, applier %s: %s", receiver, applier, problem)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.host.name, err)
	}
	return err
}

func (n *naive) Settle(ctx context.Context) error {
	_, err := n.Settled(ctx)
	return err
}

func (n *naive) Healthy(_ context.Context, name string) (bool, error) {
	return n.answers(n.server(name)), nil
}

func (n *naive) Do(_ context.Context, f Fault, name string) error {
	if known, err := n.hit(f, name); known {
		return err
	}
	return n.Can(f)
}
