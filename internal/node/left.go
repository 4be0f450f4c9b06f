package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/pki"
	"trireme/internal/systemd"
)

// errLeft is why a node that force-quorum left behind does not run.
type errLeft struct{ text string }

func (e *errLeft) Error() string { return e.text }

// tombstone is what is left of the daemon of such a node: an API that says what happened. No raft, no links, no mysqld, no router.
type tombstone struct {
	api.Backend // nil: verbs are for a leader, of which it knows none
	n           *Node
	why         string
}

// serve answers until ctx ends. The daemon of a node that was left behind does not end, so that nobody starts it over and over, and whoever
// asks it learns why.
func (t *tombstone) serve(ctx context.Context, manager *systemd.Manager) (err error) {
	n := t.n
	if n.bundle, err = pki.LoadBundle(n.cfg.TLSDir()); err != nil {
		return errors.Join(errors.New(t.why), err)
	}
	tls, err := n.bundle.NodeClientTLS()
	if err != nil {
		return errors.Join(errors.New(t.why), err)
	}
	s := api.NewServer(api.Options{Name: n.id.Name, Listen: n.cfg.API.Listen, Backend: t, TLS: n.bundle.ServerJoinTLS(), TrustsCA: n.bundle.Trusts, ClientTLS: tls, Logger: n.log})
	if err := s.Start(); err != nil {
		return errors.Join(errors.New(t.why), err)
	}
	manager.Ready("fenced for good: " + t.why)
	<-ctx.Done()
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return s.Close(cctx)
}

// openTombstone reads what the API of a node that was left behind shows.
func openTombstone(cfg config.Node, left *errLeft, log *slog.Logger) (*tombstone, error) {
	id, err := config.LoadIdentity(cfg.Dir)
	if err != nil {
		return nil, errors.Join(left, err)
	}
	cluster, err := config.LoadCluster(cfg.Dir)
	if err != nil {
		return nil, errors.Join(left, err)
	}
	n := newNode(cfg, id, cluster, "", log)
	n.metrics = prometheus.NewRegistry()
	return &tombstone{n: n, why: left.text}, nil
}

func (t *tombstone) Local() api.Health {
	return api.Health{Name: t.n.id.Name, Role: t.Self(context.Background()).Role, State: api.StateFenced, Reason: t.why}
}

func (t *tombstone) Leader() api.Leader { return api.Leader{} }

func (t *tombstone) Self(context.Context) api.MemberView {
	m, _ := t.n.cluster.MemberByID(t.n.id.ID)
	v := api.DownView(m, t.why)
	v.State, v.ReasonCode = api.StateFenced, api.LeftBehind
	return v
}

func (t *tombstone) View(ctx context.Context) api.ClusterView {
	v := api.ClusterView{Cluster: t.n.id.Cluster, Generation: t.n.cluster.Generation.NumberOf(),
		SeenBy: t.n.id.Name, Doubt: t.why,
		Failover: api.FailoverView{Problem: "this node was left behind"}}
	for _, m := range t.n.cluster.Members {
		if m.ID == t.n.id.ID {
			v.Members = append(v.Members, t.Self(ctx))
			continue
		}
		v.Members = append(v.Members, api.DownView(m, "this node was left behind and asks nobody"))
	}
	return v
}

func (t *tombstone) History(context.Context) ([]api.Event, error) { return t.n.history.all(), nil }

func (t *tombstone) WhyNot(context.Context, string) (api.WhyNotView, error) {
	return api.WhyNotView{}, t.refusal()
}

func (t *tombstone) Config(ctx context.Context) api.ConfigView { return t.n.Config(ctx) }

func (t *tombstone) ForceQuorum(context.Context, api.ForceRequest) (api.ForceReport, api.Leader, error) {
	return api.ForceReport{}, api.Leader{}, t.refusal()
}

func (t *tombstone) Failover(context.Context, api.FailoverRequest) (api.FailoverResult, error) {
	return api.FailoverResult{}, t.refusal()
}

func (t *tombstone) CA(ctx context.Context) api.CAView { return t.n.CA(ctx) }

func (t *tombstone) Tokens(ctx context.Context) []api.TokenView { return t.n.Tokens(ctx) }

func (t *tombstone) refusal() error {
	return api.Errorf(api.KindConflict, "%s", t.why).With("ask a node of the cluster that goes on")
}

func (t *tombstone) Settings() *config.Cluster    { return t.n.cluster }
func (t *tombstone) Metrics() prometheus.Gatherer { return t.n.metrics }
