package rivals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
	"trireme/lab/verify"
)

// Mortal is a Running whose hosts can be lost, for a time or for good. Their disks are the caller's to cut and to bring
// back.
type Mortal interface {
	Running
	// Login of clients, to the server that takes writes now.
	Login() verify.Login
	// Kill sends SIGKILL to everything on some hosts, and does not wait.
	Kill(hosts []string) error
	// Recover starts everything on the hosts that are back, and makes the system take writes, as far as it does not do
	// so by itself. One host may be lost for good. It returns what a human had to do for it; empty: nothing.
	Recover(ctx context.Context, back []string, lost string) (human string, err error)
	// Serving opens a connection to the server that takes writes, to be closed by the caller.
	Serving(context.Context) (verify.Endpoint, error)
}

// ErrAllLost: no copy of the data is left.
var ErrAllLost = errors.New("no copy of the data is left")

// moving is where clients go, which changes with the server that takes writes.
type moving struct {
	mu   sync.Mutex
	addr string
}

func (m *moving) set(s *server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addr = s.addr()
}

func (m *moving) login() verify.Login {
	return verify.Login{User: User, Password: Password, Addr: func() string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.addr
	}}
}

// killServers sends SIGKILL to those on some hosts.
func killServers(servers []*server, hosts []string) error {
	var errs []error
	for _, s := range servers {
		if slices.Contains(hosts, s.host.name) {
			errs = append(errs, s.proc.Signal(syscall.SIGKILL))
		}
	}
	return errors.Join(errs...)
}

// restartServers on some hosts, on their data.
func restartServers(ctx context.Context, servers []*server, hosts []string) error {
	for _, s := range servers {
		if slices.Contains(hosts, s.host.name) {
			if err := s.restart(ctx); err != nil {
				return fmt.Errorf("%s does not come back: %w", s.host.name, err)
			}
		}
	}
	return nil
}

// without the server of a host.
func without(servers []*server, host string) []*server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *server) bool { return s.host.name == host })
}

// mostAdvanced is the server with the most transactions: executed ones and, on a channel, received ones.
func mostAdvanced(ctx context.Context, servers []*server, channel string) (best *server, err error) {
	var most uint64
	for _, s := range servers {
		set, err := s.transactions(ctx, channel)
		if err != nil {
			return nil, err
		}
		if n := uint64(set.Count()); best == nil || n > most {
			best, most = s, n
		}
	}
	return best, nil
}

func (s *server) transactions(ctx context.Context, channel string) (set gtid.Set, err error) {
	if set, err = executed(ctx, s.db); err != nil {
		return set, err
	}
	received, err := s.received(ctx, channel)
	if err != nil {
		return set, err
	}
	var more gtid.Set
	if err := more.UnmarshalText([]byte(received)); err != nil {
		return set, err
	}
	set.AddSet(more)
	return set, nil
}

// received is the set of transactions in a channel's relay log, applied or not.
func (s *server) received(ctx context.Context, channel string) (set string, err error) {
	err = s.db.QueryRowContext(ctx,
		"SELECT COALESCE(MAX(received_transaction_set), '') FROM performance_schema.replication_connection_status WHERE channel_name = '"+channel+"'").Scan(&set)
	if err != nil {
		err = fmt.Errorf("%s: transactions received: %w", s.host.name, err)
	}
	return set, err
}

// Kill also writes down the role that each server takes when it is back, as my.cnf would have it.
func (r *replication) Kill(hosts []string) error {
	for i, s := range r.servers {
		switch {
		case i > 0:
			s.addOption("super_read_only", "ON")
		case r.semisync:
			s.addOption("rpl_semi_sync_source_enabled", "ON")
			s.addOption("rpl_semi_sync_source_timeout", strconv.Itoa(semisyncTimeoutMS))
		}
	}
	return killServers(r.servers, hosts)
}

// Recover: a source that comes back stays the source. Where it does not, an operator promotes the replica with the most
// transactions.
func (r *replication) Recover(ctx context.Context, back []string, lost string) (human string, err error) {
	if lost != "" && len(r.servers) == 1 {
		return "", ErrAllLost
	}
	if err := restartServers(ctx, r.servers, back); err != nil {
		return "", err
	}
	if lost != "" {
		if human, err = r.promote(ctx, lost); err != nil {
			return human, err
		}
	}
	source := r.servers[0]
	if err := r.lead(ctx, source); err != nil {
		return human, err
	}
	for _, replica := range r.servers[1:] {
		if err := r.follow(ctx, replica, source); err != nil {
			return human, err
		}
	}
	r.clients.set(source)
	return human, nil
}

// promote the best of the replicas, after each has applied what it has received.
func (r *replication) promote(ctx context.Context, lost string) (human string, err error) {
	r.servers[0].stop()
	rest := without(r.servers, lost)
	for _, s := range rest {
		if err := s.exec(ctx, "STOP REPLICA IO_THREAD", "START REPLICA SQL_THREAD"); err != nil {
			return "", err
		}
		set, err := s.received(ctx, "")
		if err != nil {
			return "", err
		}
		if err := s.exec(ctx, "DO WAIT_FOR_EXECUTED_GTID_SET('"+set+"', 60)", "STOP REPLICA"); err != nil {
			return "", err
		}
	}
	best, err := mostAdvanced(ctx, rest, "none")
	if err != nil {
		return "", err
	}
	if err := best.exec(ctx, "RESET REPLICA ALL", "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"); err != nil {
		return "", err
	}
	r.servers = append([]*server{best}, without(rest, best.host.name)...)
	return "promoted the replica with the most transactions, and pointed the other one and the clients to it", nil
}

// Kill also makes sure that servers do nothing when they are back: whether they can join is for Recover to know.
// Clusters that MySQL Shell makes have them read-only until then.
func (m *mgr) Kill(hosts []string) error {
	for _, s := range m.servers {
		s.setOption(mgrStartOnBoot, "OFF")
		s.addOption("super_read_only", "ON")
	}
	return killServers(m.servers, hosts)
}

// applierChannel is where members keep what they have received.
const applierChannel = "group_replication_applier"

// Recover: a minority's loss is the group's own affair. After that of a majority an operator founds the group again, as
// dba.rebootClusterFromCompleteOutage() does.
func (m *mgr) Recover(ctx context.Context, back []string, lost string) (human string, err error) {
	if err := restartServers(ctx, m.servers, back); err != nil {
		return "", err
	}
	dead := len(back)
	if lost != "" {
		dead++
		m.DB(lost).Close()
	}
	total := len(m.servers)
	m.servers = without(m.servers, lost)
	if 2*dead > total {
		human = "founded the group again from the member with the most transactions, and let the others join"
		if err := m.found(ctx); err != nil {
			return human, err
		}
	}
	err = poll.Within(ctx, settleLimit, "a primary", func(ctx context.Context) error {
		for _, s := range m.servers {
			v, err := s.groupView(ctx)
			if err != nil {
				return err
			}
			if v.primary == s.addr() && s.writable(ctx) {
				m.servers = append([]*server{s}, without(m.servers, s.host.name)...)
				m.clients.set(s)
				return nil
			}
		}
		return errors.New("no member is a primary that takes writes")
	})
	return human, err
}

func (m *mgr) found(ctx context.Context) error {
	for _, s := range m.servers {
		if err := s.exec(ctx, "STOP GROUP_REPLICATION"); err != nil {
			return err
		}
	}
	best, err := mostAdvanced(ctx, m.servers, applierChannel)
	if err != nil {
		return err
	}
	if err := best.join(ctx, true); err != nil {
		return err
	}
	for _, s := range without(m.servers, best.host.name) {
		// One with transactions that the group lacks is refused. Its operator would copy the data again; the count of
		// what is lost does not need it.
		_ = s.exec(ctx, "START GROUP_REPLICATION")
	}
	return nil
}

func (s *server) writable(ctx context.Context) bool {
	var readOnly bool
	err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.super_read_only").Scan(&readOnly)
	return err == nil && !readOnly
}

func (t *trireme) Kill(hosts []string) error {
	var errs []error
	for _, h := range hosts {
		errs = append(errs, t.SignalHost(t.Node(h), syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// Recover starts the daemons, as a service manager would; the rest is theirs.
func (t *trireme) Recover(ctx context.Context, back []string, lost string) (human string, err error) {
	for _, name := range back {
		n := t.Node(name)
		t.KillDaemon(n) // it is dead; waits until it has been reaped
		if err := t.Start(n); err != nil {
			return "", err
		}
	}
	return "", poll.Within(ctx, recoverLimit, "a leader that takes writes", func(ctx context.Context) error {
		l, err := t.Leader(ctx)
		if err == nil && (!l.Open || l.Name == lost) {
			err = errors.New("no leader takes writes")
		}
		if err == nil {
			t.lead = l.Name
			_, err = t.dbs[l.Name].ExecContext(ctx, "DO 1")
		}
		return err
	})
}

func (t *trireme) Serving(ctx context.Context) (verify.Endpoint, error) {
	login := t.Direct(t.Node(t.lead))
	login.StatementTimeout = startLimit
	db, err := login.Open("")
	return verify.Endpoint{Name: t.lead, DB: db}, err
}
