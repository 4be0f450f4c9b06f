package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/base/config"
)

// Leader is where requests for the leader go.
type Leader struct {
	Name string // empty: no leader now
	API  string // host:port
	Self bool   // this node is the leader
}

// Backend is the node that the API serves. Methods are called from many goroutines, return when ctx ends, and report
// failures that an operator should understand as *Error; any other error is shown as an internal one.
type Backend interface {
	RouterQuestions
	// Local is the health of this node, from memory: no I/O, no waiting.
	Local() Health
	// Leader is the present leader as this node knows it.
	Leader() Leader
	// Self is this node's part of a ClusterView.
	Self(ctx context.Context) MemberView
	// Load is what this node has counted, from memory: no I/O, no waiting.
	Load() LoadView
	// Route is where this node's router leads, and a channel that is closed when that has changed.
	Route() (RouteView, <-chan struct{})
	// Serves fails unless this node's mysqld takes writes in an epoch of RouteTarget, and the lease is held, after the
	// call. Every commit that mysqld had answered in it before lies at or below index.
	Serves(ctx context.Context, epoch string) (index uint64, err error)
	// View is the whole cluster, as far as this node has heard of it: it asks no other node.
	View(ctx context.Context) ClusterView
	// Period is what this node has recorded between two times.
	Period(ctx context.Context, from, to time.Time) (PeriodView, error)
	// History is the latest events, oldest first.
	History(ctx context.Context) ([]Event, error)
	// WhyNot says why a node does not lead, as this node sees it.
	WhyNot(ctx context.Context, node string) (WhyNotView, error)
	// ForceQuorum makes a cluster out of the survivors of a lost majority, or reports what that would mean. If at is
	// not this node, nothing was done, and the caller must ask at.
	ForceQuorum(ctx context.Context, req ForceRequest) (rep ForceReport, at Leader, err error)
	// Settings are those of the cluster, from memory. They are not to be changed.
	Settings() *config.Cluster
	// Metrics is the node's registry.
	Metrics() prometheus.Gatherer
}
