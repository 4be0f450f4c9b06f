package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"trireme/internal/config"
	"trireme/internal/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operatorToken = "the-operator"

// backend is a node that only remembers what it was asked.
type backend struct {
	mu     sync.Mutex
	health Health
	leader Leader
	source Leader // of a force-quorum
	asked  []string
	err    error // of the next control verb
	block  chan struct{}
	route  RouteView
	moved  chan struct{} // closed when route has changed
	record []Audited

	readLogin bool
	revoked   []config.Revocation
	gone      uint64 // id of a node that was removed
	untoken   bool   // all tokens but the operator's were removed
}

func (b *backend) audit(a Audited) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record = append(b.record, a)
}

func (b *backend) audits() []Audited {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.record)
}

func (b *backend) Local() Health  { b.mu.Lock(); defer b.mu.Unlock(); return b.health }
func (b *backend) Leader() Leader { b.mu.Lock(); defer b.mu.Unlock(); return b.leader }

func (b *backend) Route() (RouteView, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.route, b.moved
}

// move changes the route.
func (b *backend) move(v RouteView) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moved != nil {
		close(b.moved)
	}
	b.route, b.moved = v, make(chan struct{})
}

func (b *backend) Serves(_ context.Context, epoch string) (uint64, error) {
	if rw := b.route.RW; rw == nil || rw.Epoch != epoch {
		return 0, errors.New("not in that epoch")
	}
	return 42, nil
}

func (b *backend) Self(context.Context) MemberView {
	return MemberView{Name: b.Local().Name, Role: b.Local().Role, State: b.Local().State}
}

func (b *backend) Load() LoadView { return LoadView{Node: b.Local().Name, Transactions: 5} }

func (b *backend) View(ctx context.Context) ClusterView {
	return ClusterView{Cluster: "c1", Term: 3, Leader: b.Leader().Name, Members: []MemberView{b.Self(ctx)}}
}

func (b *backend) Period(_ context.Context, from, to time.Time) (PeriodView, error) {
	return PeriodView{Node: b.Local().Name, From: from, To: to}, b.note("period")
}

func (b *backend) History(context.Context) ([]Event, error) { return nil, b.note("history") }

func (b *backend) Outcome(_ context.Context, q OutcomeQuery) (Outcome, error) {
	return Outcome{Result: Committed, GTID: q.After, Index: q.Index}, b.note(fmt.Sprintf("outcome %+v", q))
}

func (b *backend) ReadIndex(_ context.Context, q ReadIndexQuery) (ReadIndexView, error) {
	if q.Live {
		return ReadIndexView{Index: 6, Live: []string{"n1", "n3"}}, b.note("live")
	}
	return ReadIndexView{Index: 7, GTIDs: map[bool]string{true: "a:1-7"}[q.GTIDs]}, b.note("read-index")
}

func (b *backend) Applied(ctx context.Context, q AppliedQuery) (AppliedView, error) {
	if q.Index > 100 {
		<-ctx.Done()
		return AppliedView{}, ctx.Err()
	}
	return AppliedView{Index: q.Index}, b.note(fmt.Sprintf("applied %+v", q))
}

func (b *backend) Switchover(ctx context.Context, req SwitchoverRequest) (SwitchoverResult, error) {
	if b.block != nil {
		select {
		case <-b.block:
		case <-ctx.Done():
			return SwitchoverResult{}, ctx.Err()
		}
	}
	return SwitchoverResult{To: req.To, DryRun: req.DryRun}, b.note("switchover " + req.To)
}

func (b *backend) Failover(_ context.Context, req FailoverRequest) (FailoverResult, error) {
	return FailoverResult{To: req.To}, b.note("failover " + req.To)
}

func (b *backend) Delay(_ context.Context, req DelayRequest) (DelayResult, error) {
	return DelayResult{Name: req.Name, DelayView: DelayView{Order: req.Order, GTID: req.GTID}}, b.note("delay " + req.Name)
}

func (b *backend) WhyNot(_ context.Context, node string) (WhyNotView, error) {
	return WhyNotView{Node: node, SeenBy: b.Local().Name}, b.note("why-not " + node)
}

func (b *backend) Config(context.Context) ConfigView { return ConfigView{Cluster: "c1", Version: 3} }

func (b *backend) ChangeConfig(_ context.Context, req ConfigChange) (ConfigView, error) {
	return ConfigView{Version: req.Version + 1}, b.note("config")
}

func (b *backend) ConfigHistory(context.Context) ConfigHistoryView {
	return ConfigHistoryView{Cluster: "c1", Version: 3}
}

func (b *backend) RollbackConfig(ctx context.Context, req ConfigRollback) (ConfigRollbackResult, error) {
	return ConfigRollbackResult{To: req.To, Version: req.Version}, b.note("rollback by " + AskedBy(ctx))
}

func (b *backend) Pause(context.Context, PauseRequest) (PauseResult, error) {
	return PauseResult{}, b.note("pause")
}

func (b *backend) Resume(context.Context, ResumeRequest) (PauseResult, error) {
	return PauseResult{}, b.note("resume")
}

func (b *backend) Leave(_ context.Context, req LeaveRequest) (LeaveResult, error) {
	return LeaveResult{DryRun: req.DryRun}, b.note("leave")
}

func (b *backend) NewJoinToken(_ context.Context, req JoinTokenRequest) (JoinTokenResult, error) {
	return JoinTokenResult{Name: req.Name, Role: req.Role, Token: "t"}, b.note("join-token " + req.Name)
}

func (b *backend) Join(_ context.Context, req JoinRequest) (JoinResult, error) {
	return JoinResult{ID: 7}, b.note("join " + req.Member.Name)
}

func (b *backend) Remove(_ context.Context, req MemberRequest) (MemberResult, error) {
	return MemberResult{Name: req.Name}, b.note("remove " + req.Name)
}

func (b *backend) Reinit(_ context.Context, req MemberRequest) (MemberResult, error) {
	return MemberResult{Name: req.Name}, b.note("reinit " + req.Name)
}

func (b *backend) Void(_ context.Context, req VoidRequest) (VoidReport, error) {
	return VoidReport{Done: req.GTID != ""}, b.note("void " + req.GTID)
}

func (b *backend) ForceApply(_ context.Context, req VoidRequest) (VoidReport, error) {
	return VoidReport{Done: req.GTID != ""}, b.note("force-apply " + req.GTID)
}

func (b *backend) Promote(_ context.Context, req PromoteRequest) (MemberResult, error) {
	return MemberResult{Name: req.Names[0]}, b.note("promote " + req.Names[0])
}

func (b *backend) Demote(_ context.Context, req MemberRequest) (MemberResult, error) {
	return MemberResult{Name: req.Name}, b.note("demote " + req.Name)
}

func (b *backend) ForceQuorum(_ context.Context, req ForceRequest) (ForceReport, Leader, error) {
	b.mu.Lock()
	at := b.source
	b.mu.Unlock()
	return ForceReport{Term: 3, Done: at.Self && req.Confirm == 3}, at, b.note("force-quorum")
}

// settings of every backend: the operator's token, and one of each role.
func (b *backend) Settings() *config.Cluster {
	c := &config.Cluster{APITokenHash: pki.HashToken(operatorToken), ReadLogin: b.readLogin, NextID: 9}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.RevokedCerts = b.revoked
	for id := range uint64(8) {
		if id+1 != b.gone {
			c.Members = append(c.Members, config.Member{ID: id + 1})
		}
	}
	if b.untoken {
		return c
	}
	for _, r := range pki.Roles {
		c.APITokens = append(c.APITokens, config.APIToken{Name: "a-" + string(r), Role: string(r), Hash: pki.HashToken("the-" + string(r) + "s")})
	}
	c.APITokens = append(c.APITokens, config.APIToken{Name: "old", Role: "admin", Hash: pki.HashToken("the-old"), Expires: time.Now().Add(-time.Second)})
	return c
}

func (b *backend) Tokens(context.Context) []TokenView { return []TokenView{} }

func (b *backend) NewToken(_ context.Context, req TokenRequest) (TokenResult, error) {
	return TokenResult{Token: "hush"}, b.note("token " + req.Name)
}

func (b *backend) RemoveToken(_ context.Context, req TokenName) (TokenView, error) {
	return TokenView{}, b.note("remove-token " + req.Name)
}

func (b *backend) Revoke(_ context.Context, req RevokeRequest) (RevokeResult, error) {
	return RevokeResult{}, b.note("revoke " + req.What)
}

func (b *backend) ChangeCA(_ context.Context, req CARequest) (CAView, error) {
	return CAView{}, b.note("ca " + req.Step)
}

func (b *backend) CA(context.Context) CAView { return CAView{} }

func (b *backend) Metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "trireme_test"})
	g.Set(42)
	r.MustRegister(g)
	return r
}

func (b *backend) note(what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, what)
	return b.err
}

// calls gives what was asked and forgets it.
func (b *backend) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.asked
	b.asked = nil
	return asked
}

// cluster is the certificates of a cluster of test nodes.
type cluster struct {
	t  *testing.T
	ca *pki.CA
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, ca: ca}
}

func (c *cluster) bundle(id uint64, name string) *pki.Bundle {
	c.t.Helper()
	b, err := c.ca.Issue(pki.NodeCert{Name: name, ID: id, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *cluster) trust() *tls.Config {
	c.t.Helper()
	cfg, err := pki.ClientTLS(c.ca.CertPEM())
	if err != nil {
		c.t.Fatal(err)
	}
	return cfg
}

// start runs a server of node name on a free port.
func (c *cluster) start(id uint64, name string, b *backend, changes ...func(*Server)) *Server {
	c.t.Helper()
	b.health.Name = name
	bundle := c.bundle(id, name)
	trust, err := bundle.NodeClientTLS()
	if err != nil {
		c.t.Fatal(err)
	}
	s := NewServer(Options{
		Name: name, Listen: "127.0.0.1:0", Backend: b, TLS: bundle.ServerJoinTLS(), ClientTLS: trust, NodeToken: "node-to-node",
		MaxConns: 20, Audit: b.audit, Logger: slog.New(slog.DiscardHandler),
	})
	for _, change := range changes {
		change(s)
	}
	if err := s.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

func (c *cluster) client(base, token string) *Client {
	cl := NewClient(base, token, c.trust())
	c.t.Cleanup(cl.Close)
	return cl
}
