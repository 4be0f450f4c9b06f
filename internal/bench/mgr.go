package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"trireme/internal/demo"
	"trireme/internal/router"
	"trireme/internal/verify"
)

// mgr is MySQL Group Replication: three servers, single-primary, with what InnoDB Cluster adds to it: a router that knows the primary,
// something that starts a server again, and an operator who lets it join again when it does not do so by itself.
//
// The router is Trireme's own pass-through. It learns the primary from watchers that ask every member every mgrPoll, so it is quicker
// than MySQL Router, which looks at the group's metadata each 500 ms.
type mgr struct {
	nodes  []*mgrNode
	router *router.Router
	ctx    context.Context // ends at stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	lead  lead
	views map[*mgrNode]mgrView // the newest answer of each member
}

// mgrNode is one member.
type mgrNode struct {
	name string
	*server

	mu sync.Mutex // guards proc
}

// mgrView is what a member says of itself.
type mgrView struct {
	at       time.Time // of the answer
	state    string    // ONLINE, RECOVERING, OFFLINE, ERROR
	primary  bool
	readOnly bool
	members  int // of the group as this member sees it
	online   int // of them ONLINE
	view     int // number of the group's view: it grows with each change of members
	queue    int // transactions not applied yet
}

const (
	mgrPoll     = 20 * time.Millisecond
	mgrPatience = time.Second // for one answer
	// mgrFresh is how old an answer may be to be believed: that of a host that is stopped is not replaced.
	mgrFresh = 300 * time.Millisecond
	// mgrHelp is how often the operator looks for members that have given up.
	mgrHelp = 500 * time.Millisecond
	// mgrWorkers is the server's default; see docs/benchmarks/README.md.
	mgrWorkers = 4
)

// mgrOptions are the settings of a group that loses nothing as far as it can be told to. What is not named has its default.
func mgrOptions() map[string]string {
	return map[string]string{
		"plugin_load_add":                     "group_replication.so",
		"report_host":                         "127.0.0.1",
		"replica_parallel_workers":            strconv.Itoa(mgrWorkers),
		"group_replication_group_name":        "7d2f5b1e-6c3a-4c59-9d0e-1a2b3c4d5e6f",
		"group_replication_consistency":       "BEFORE_ON_PRIMARY_FAILOVER",
		"group_replication_flow_control_mode": "DISABLED",
		"group_replication_start_on_boot":     "OFF",
		"group_replication_ssl_mode":          "DISABLED",
		// Without TLS the password of the recovery channel is encrypted with the donor's key.
		"group_replication_recovery_get_public_key": "ON",
	}
}

// startMGR makes a group of three.
func startMGR(ctx context.Context, e *environment, dir string) (_ contender, err error) {
	m := &mgr{views: map[*mgrNode]mgrView{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	base := e.takePorts(5)
	xcom := func(i int) string { return "127.0.0.1:" + strconv.Itoa(base+i) }
	for i := range 3 {
		o := rivalOptions()
		maps.Copy(o, mgrOptions())
		o["group_replication_group_seeds"] = strings.Join([]string{xcom(0), xcom(1), xcom(2)}, ",")
		o["group_replication_local_address"] = xcom(i)
		name := "s" + strconv.Itoa(i+1)
		s, err := e.startServer(ctx, filepath.Join(dir, name), i+1, o)
		if err != nil {
			return nil, err
		}
		m.nodes = append(m.nodes, &mgrNode{name: name, server: s})
		if err := s.exec(ctx, "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'bench', SOURCE_PASSWORD = '"+rivalPass+"' FOR CHANNEL 'group_replication_recovery'"); err != nil {
			return nil, err
		}
		if i == 0 {
			err = s.exec(ctx, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF")
		} else {
			err = s.exec(ctx, "START GROUP_REPLICATION")
		}
		if err != nil {
			return nil, err
		}
		for j, a := range s.command.Args { // from now on it joins by itself
			if a == "--group_replication_start_on_boot=OFF" {
				s.command.Args[j] = "--group_replication_start_on_boot=ON"
			}
		}
	}
	m.router = router.New(router.Config{RWListen: "127.0.0.1:" + strconv.Itoa(base+3), ROListen: "127.0.0.1:" + strconv.Itoa(base+4),
		HoldTimeout: faultLimit, Logger: slog.New(slog.DiscardHandler)})
	if err := m.router.Start(); err != nil {
		return nil, err
	}
	for _, n := range m.nodes {
		for _, f := range []func(*mgrNode){m.watch, m.keep, m.help} {
			m.wg.Add(1)
			go func() {
				defer m.wg.Done()
				f(n)
			}()
		}
	}
	_, err = m.settled(ctx)
	return m, err
}

func (m *mgr) login() verify.Login {
	return verify.Login{Addr: verify.Fixed(m.router.RWAddr()), User: "bench", Password: rivalPass}
}

// leader is who takes writes now; without a name nobody does, as far as is known.
func (m *mgr) leader(context.Context) (lead, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lead, nil
}

func (m *mgr) names() []string {
	var out []string
	for _, n := range m.nodes {
		out = append(out, n.name)
	}
	return out
}

func (m *mgr) node(name string) *mgrNode {
	for _, n := range m.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// settled waits until all members are ONLINE in the view of each.
func (m *mgr) settled(ctx context.Context) (lead, error) {
	err := poll(ctx, faultLimit, "all members ONLINE", func(context.Context) (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range m.nodes {
			if v := m.views[n]; time.Since(v.at) > mgrFresh || v.online != len(m.nodes) || v.state != "ONLINE" {
				return false, fmt.Errorf("%s is %s and sees %d of %d members ONLINE", n.name, v.state, v.online, v.members)
			}
		}
		return m.lead.Name != "", nil
	})
	l, _ := m.leader(ctx)
	return l, err
}

// healthy says whether a member is ONLINE as the primary sees it: the others learn that it is gone before it can say so.
func (m *mgr) healthy(_ context.Context, name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.views[m.node(name)]
	return v.state == "ONLINE" && time.Since(v.at) <= mgrFresh, nil
}

func (m *mgr) behind(context.Context) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := 0
	for _, v := range m.views {
		most = max(most, v.queue)
	}
	return most
}

// watch asks a member what it is, and leads the router accordingly.
func (m *mgr) watch(n *mgrNode) {
	for m.ctx.Err() == nil {
		v, err := n.ask(m.ctx)
		m.mu.Lock()
		if err == nil {
			m.views[n] = v
		} else if !errors.Is(err, context.DeadlineExceeded) { // it is gone; one that is slow keeps its last answer while that is fresh
			delete(m.views, n)
		}
		m.choose()
		m.mu.Unlock()
		_ = pause(m.ctx, mgrPoll)
	}
}

func (n *mgrNode) ask(ctx context.Context) (v mgrView, err error) {
	ctx, cancel := context.WithTimeout(ctx, mgrPatience)
	defer cancel()
	var role, view string
	err = n.db.QueryRowContext(ctx, "SELECT m.member_state, m.member_role, @@GLOBAL.super_read_only, "+
		"(SELECT COUNT(*) FROM performance_schema.replication_group_members), "+
		"(SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE'), "+
		"COALESCE((SELECT MAX(view_id) FROM performance_schema.replication_group_member_stats), ''), "+
		"COALESCE((SELECT MAX(count_transactions_remote_in_applier_queue) FROM performance_schema.replication_group_member_stats WHERE member_id = @@GLOBAL.server_uuid), 0) "+
		"FROM performance_schema.replication_group_members m WHERE m.member_id IN (@@GLOBAL.server_uuid, '') LIMIT 1").
		Scan(&v.state, &role, &v.readOnly, &v.members, &v.online, &view, &v.queue)
	v.at, v.primary = time.Now(), role == "PRIMARY"
	if _, number, ok := strings.Cut(view, ":"); ok {
		v.view, _ = strconv.Atoi(number)
	}
	return v, err
}

// choose leads the router to the member that is the primary in the newest view; called with mu held.
func (m *mgr) choose() {
	var best *mgrNode
	for n, v := range m.views {
		if time.Since(v.at) > mgrFresh || !v.primary || v.readOnly || v.state != "ONLINE" || 2*v.online <= v.members {
			continue
		}
		if best == nil || v.view > m.views[best].view {
			best = n
		}
	}
	if best == nil {
		m.lead.open = false
		m.router.SetView(router.View{KeepRW: true})
		return
	}
	pid := best.pid()
	if m.lead.Name != best.name || m.lead.pid != pid {
		m.lead = lead{Name: best.name, Term: m.lead.Term + 1, pid: pid}
	}
	m.lead.open = true
	m.router.SetView(router.View{RW: &router.Target{Name: best.name, Addr: "127.0.0.1:" + strconv.Itoa(best.port), Epoch: strconv.Itoa(pid)}})
}

func (n *mgrNode) process() *demo.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

func (n *mgrNode) pid() int { return n.process().PID }

// keep starts the server again whenever it has ended, as a service manager does, but a primary's not before there is another one: a member
// that asks to join while the group holds its old incarnation for alive is refused, and waits for a minute.
func (m *mgr) keep(n *mgrNode) {
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-n.process().Done():
		}
		for wait := true; wait; wait = m.leads(n) {
			if pause(m.ctx, restartPause) != nil {
				return
			}
		}
		p, err := demo.StartProcess(n.command)
		if err != nil {
			return // settled says what is missing
		}
		n.mu.Lock()
		n.proc = p
		ended := m.ctx.Err() != nil
		n.mu.Unlock()
		if ended { // stop did not see it
			p.Kill()
			return
		}
	}
}

// leads says whether a member is the primary as far as the router knows.
func (m *mgr) leads(n *mgrNode) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lead.Name == n.name
}

// help is the operator: START GROUP_REPLICATION on a member that has given up. A server that is back before the group has expelled its
// old incarnation is refused, and does not try again by itself.
func (m *mgr) help(n *mgrNode) {
	for pause(m.ctx, mgrHelp) == nil {
		m.mu.Lock()
		v, primary := m.views[n], m.lead
		m.mu.Unlock()
		if time.Since(v.at) > mgrFresh || !primary.open || primary.Name == n.name || v.state != "OFFLINE" && v.state != "ERROR" {
			continue
		}
		ctx, cancel := context.WithTimeout(m.ctx, faultLimit)
		if v.state == "ERROR" {
			_ = n.exec(ctx, "STOP GROUP_REPLICATION")
		}
		_ = n.exec(ctx, "START GROUP_REPLICATION") // an error is seen by settled
		cancel()
	}
}

// set changes a dynamic setting of every member.
func (m *mgr) set(ctx context.Context, name, value string) error {
	for _, n := range m.nodes {
		if err := n.exec(ctx, "SET GLOBAL "+name+" = "+value); err != nil {
			return err
		}
	}
	return nil
}

func (m *mgr) do(ctx context.Context, f fault, name string) error {
	n := m.node(name)
	switch f {
	case faultKillMySQL:
		return n.process().Signal(syscall.SIGKILL)
	case faultStopHost:
		return n.process().Signal(syscall.SIGSTOP)
	case faultSwitchover:
		return m.switchover(ctx, name)
	}
	return fmt.Errorf("%s has nothing like this", n.name)
}

func (m *mgr) undo(_ context.Context, name string) error {
	return m.node(name).process().Signal(syscall.SIGCONT)
}

// switchover moves the primary to the next member.
func (m *mgr) switchover(ctx context.Context, from string) error {
	for i, n := range m.nodes {
		if n.name != from {
			continue
		}
		var uuid string
		if err := m.nodes[(i+1)%len(m.nodes)].db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&uuid); err != nil {
			return err
		}
		return n.exec(ctx, "SELECT group_replication_set_as_primary('"+uuid+"')")
	}
	return nil
}

func (m *mgr) processes(name string) []int { return []int{m.node(name).pid()} }

func (m *mgr) endpoints() ([]verify.Endpoint, error) {
	var out []verify.Endpoint
	for _, n := range m.nodes {
		login := m.login()
		login.Addr, login.StatementTimeout = verify.Fixed("127.0.0.1:"+strconv.Itoa(n.port)), time.Minute
		db, err := login.Open("")
		if err != nil {
			demo.CloseEndpoints(out)
			return nil, err
		}
		out = append(out, verify.Endpoint{Name: n.name, DB: db})
	}
	return out, nil
}

func (m *mgr) stop() {
	m.cancel()
	for _, n := range m.nodes {
		n.mu.Lock() // with keep: either it sees that ctx has ended, or its process is killed here
		p := n.proc
		n.mu.Unlock()
		p.Kill()
	}
	m.wg.Wait()
	if m.router != nil && m.router.RWAddr() != "" {
		m.router.Close()
	}
	for _, n := range m.nodes {
		n.server.stop()
	}
}
