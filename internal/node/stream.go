package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/base/config"
	"trireme/internal/core/dump"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/lifecycle"
)

// streamServerID stands in events of the change stream that are in no log.
const streamServerID = 1<<20 + 2

// newPublisher serves this node's log to foreign replicas (docs/change-stream.md). A logger does so like any other
// node.
func (n *Node) newPublisher() *dump.Publisher {
	version := ""
	if n.bin.Path != "" {
		version = n.bin.Version.String() + "-trireme"
	}
	return dump.NewPublisher(dump.PublisherConfig{Cluster: n.id.ClusterID, ServerID: streamServerID,
		ServerVersion: version, Reserved: config.MaxMemberID,
		Open: func() dump.PublishedLog { return lifecycle.NewFeedLog(n.rlog, n.led) }, ReadIndex: n.cons.ReadIndex,
		Void:   n.seeding.DeclaredVoid,
		Report: n.streamFailed, Logger: n.log})
}

// streamFailed is told that the committed log cannot be read as one.
func (n *Node) streamFailed(err error) {
	if errors.Is(err, dump.ErrInvariant) {
		n.fail(fmt.Errorf("the change stream: %w", err))
	}
}

// changeStream is what the router leads those to who ask for a binary log.
type changeStream struct{ *Node }

// Serve implements router.Streams.
func (n changeStream) Serve(ctx context.Context, c dump.Consumer) { n.publisher.Serve(ctx, c) }

// Purged implements router.Streams.
func (n changeStream) Purged() string { return n.rlog.Boundary().GTIDs.String() }

// Known implements router.Streams.
func (n changeStream) Known(ctx context.Context, executed gtid.Set) (gtid.Set, error) {
	return n.publisher.Known(ctx, executed)
}

var (
	consumersDesc = prometheus.NewDesc("trireme_stream_consumers",
		"Consumers of the change stream that this node serves.", nil, nil)
	streamBehind = prometheus.NewDesc("trireme_stream_behind_entries",
		"Committed log entries that the slowest of them has still to be sent.", nil, nil)
	streamDumpsDesc = prometheus.NewDesc("trireme_stream_dumps_total", "Dumps that were begun.", nil, nil)
	streamRefused   = prometheus.NewDesc("trireme_stream_refused_total", "Dumps that were refused.", nil, nil)
	streamTrxDesc   = prometheus.NewDesc("trireme_stream_transactions_total",
		"Transactions sent to consumers of the change stream.", nil, nil)
	streamBytesDesc = prometheus.NewDesc("trireme_stream_bytes_total", "Bytes of their events.", nil, nil)
)

// streamCollector reads the publisher's counters when they are asked for.
type streamCollector struct{ p *dump.Publisher }

// Describe implements prometheus.Collector.
func (c streamCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{consumersDesc, streamBehind, streamDumpsDesc, streamRefused, streamTrxDesc,
		streamBytesDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c streamCollector) Collect(out chan<- prometheus.Metric) {
	s := c.p.Stats()
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(consumersDesc, float64(s.Consumers))
	gauge(streamBehind, float64(s.Behind))
	count(streamDumpsDesc, s.Dumps)
	count(streamRefused, s.Refused)
	count(streamTrxDesc, s.Transactions)
	count(streamBytesDesc, s.Bytes)
}
