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

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/lab/child"
	"trireme/lab/wan"
)

func TestMain(m *testing.M) {
	child.Main(wan.Forwarder)
	goleak.VerifyTestMain(m)
}

const operatorToken = "the-operator"

// backend is a node that only remembers what it was asked.
type backend struct {
	members []MemberView // others
	mu      sync.Mutex
	health  Health
	leader  Leader
	source  Leader // of a force-quorum
	asked   []string
	err     error // of the next control verb
	block   chan struct{}
	route   RouteView
	moved   chan struct{} // closed when route has changed
	record  []Audited

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
	return ClusterView{Cluster: "c1", Term: 3, Leader: b.Leader().Name,
		Members: append([]MemberView{b.Self(ctx)}, b.members...)}
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

func (b *backend) switchover(ctx context.Context, req SwitchoverRequest) (SwitchoverResult, error) {
	if b.block != nil {
		select {
		case <-b.block:
		case <-ctx.Done():
			return SwitchoverResult{}, ctx.Err()
		}
	}
	return SwitchoverResult{To: req.To, DryRun: req.DryRun}, b.note("switchover " + req.To)
}

func (b *backend) WhyNot(_ context.Context, node string) (WhyNotView, error) {
	return WhyNotView{Node: node, SeenBy: b.Local().Name}, b.note("why-not " + node)
}

func (b *backend) ForceQuorum(_ context.Context, req ForceRequest) (ForceReport, Leader, error) {
	b.mu.Lock()
	at := b.source
	b.mu.Unlock()
	return ForceReport{Term: 3, Done: at.Self && req.Confirm == 3}, at, b.note("force-quorum")
}

// noted answers a verb, and notes what of it.
func noted[Req, Res any](b *backend, v Verb[Req, Res], what func(Req) (string, Res)) Answer {
	return v.By(func(ctx context.Context, req Req) (Res, error) {
		text, res := what(req)
		if v.Path == RollbackConfig.Path {
			text += AskedBy(ctx)
		}
		return res, b.note(text)
	})
}

// answers to all verbs and queries.
func (b *backend) answers() []Answer {
	member := func(verb Verb[MemberRequest, MemberResult]) Answer {
		return noted(b, verb, func(req MemberRequest) (string, MemberResult) {
			return verb.Path[1:] + " " + req.Name, MemberResult{Name: req.Name}
		})
	}
	entry := func(verb Verb[VoidRequest, VoidReport]) Answer {
		return noted(b, verb, func(req VoidRequest) (string, VoidReport) {
			return verb.Path[1:] + " " + req.GTID, VoidReport{Done: req.GTID != ""}
		})
	}
	return []Answer{
		Switchover.By(b.switchover), member(Remove), member(Reinit), member(Demote), entry(Void), entry(ForceApply),
		noted(b, Failover, func(req FailoverRequest) (string, FailoverResult) {
			return "failover " + req.To, FailoverResult{To: req.To}
		}),
		noted(b, Delay, func(req DelayRequest) (string, DelayResult) {
			return "delay " + req.Name, DelayResult{Name: req.Name, DelayView: DelayView{Order: req.Order, GTID: req.GTID}}
		}),
		noted(b, NoteBackup, func(r BackupReport) (string, BackupResult) {
			return fmt.Sprintf("backup %v", r), BackupResult{Noted: true}
		}),
		noted(b, ChangeConfig,
			func(req ConfigChange) (string, ConfigView) { return "config", ConfigView{Version: req.Version + 1} }),
		noted(b, RollbackConfig, func(req ConfigRollback) (string, ConfigRollbackResult) {
			return "rollback by ", ConfigRollbackResult{To: req.To, Version: req.Version}
		}),
		noted(b, Pause, func(PauseRequest) (string, PauseResult) { return "pause", PauseResult{} }),
		noted(b, Resume, func(ResumeRequest) (string, PauseResult) { return "resume", PauseResult{} }),
		noted(b, Leave, func(req LeaveRequest) (string, LeaveResult) { return "leave", LeaveResult{DryRun: req.DryRun} }),
		noted(b, NewJoinToken, func(req JoinTokenRequest) (string, JoinTokenResult) {
			return "join-token " + req.Name, JoinTokenResult{Name: req.Name, Role: req.Role, Token: "t"}
		}),
		noted(b, Join, func(req JoinRequest) (string, JoinResult) { return "join " + req.Member.Name, JoinResult{ID: 7} }),
		noted(b, Promote, func(req PromoteRequest) (string, MemberResult) {
			return "promote " + req.Names[0], MemberResult{Name: req.Names[0]}
		}),
		noted(b, NewToken,
			func(req TokenRequest) (string, TokenResult) { return "token " + req.Name, TokenResult{Token: "hush"} }),
		noted(b, RemoveToken, func(req TokenName) (string, TokenView) { return "remove-token " + req.Name, TokenView{} }),
		noted(b, Revoke, func(req RevokeRequest) (string, RevokeResult) { return "revoke " + req.What, RevokeResult{} }),
		noted(b, ReplacePassword, func(ReplaceRequest) (string, ReplaceResult) { return "replace", ReplaceResult{} }),
		noted(b, ChangeCA, func(req CARequest) (string, CAView) { return "ca " + req.Step, CAView{} }),
		Config.By(func(context.Context) ConfigView { return ConfigView{Cluster: "c1", Version: 3} }),
		ConfigHistory.By(func(context.Context) ConfigHistoryView { return ConfigHistoryView{Cluster: "c1", Version: 3} }),
		Tokens.By(func(context.Context) []TokenView { return []TokenView{} }),
		CA.By(func(context.Context) CAView { return CAView{} }),
	}
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
		c.APITokens = append(c.APITokens, config.APIToken{Name: "a-" + string(r), Role: string(r),
			Hash: pki.HashToken("the-" + string(r) + "s")})
	}
	c.APITokens = append(c.APITokens, config.APIToken{Name: "old", Role: "admin", Hash: pki.HashToken("the-old"),
		Expires: time.Now().Add(-time.Second)})
	return c
}

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
		Name: name, Listen: "127.0.0.1:0", Backend: b, Answers: b.answers(), TLS: bundle.ServerJoinTLS(), ClientTLS: trust,
		NodeToken: "node-to-node", MaxConns: 20, Audit: b.audit, Logger: slog.New(slog.DiscardHandler),
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
