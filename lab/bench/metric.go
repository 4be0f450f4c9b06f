package bench

import (
	"slices"
	"strconv"
	"time"
)

// Names of values in records.
const (
	valTPS        = "tps"
	valSustained  = "sustained_tps"
	valQPS        = "qps"
	valAverage    = "average_ms"
	valP95        = "p95_ms"
	valP99        = "p99_ms"
	valErrors     = "ignored_errors"
	valNotApplied = "behind"          // transactions that the slowest server had not applied when the load ended
	valCatchUp    = "catch_up_s"      // until it had
	valCPUAll     = "cpu_relative"    // of all hosts per transaction, in units of the load generator's own
	valCPULeader  = "cpu_leader"      // the same of the leader's host
	valCPUAllUS   = "cpu_us"          // microseconds per transaction, all hosts
	valClientUS   = "client_cpu_us"   // of the load generator
	valShare      = "client_share"    // CPU of the load generator, percent of one; derived, see workDone
	valVariation  = "variation"       // coefficient of variation of TPS per second, percent
	valNetworkUS  = "network_cpu_us"  // of the process that carries packets, per transaction
	valWritten    = "written_bytes"   // to block devices per transaction, all hosts
	valSent       = "sent_bytes"      // to other hosts per transaction, all hosts
	valDaemonRSS  = "daemon_rss_mib"  // highest resident memory of the leader's daemon
	valDaemonRSS2 = "daemon_rss2_mib" // of the other daemons
	valThrottled  = "throttled"       // percent of the time that the leader's host had used its CPU budget up

	valGap       = "gap_ms"        // longest time without an acknowledged write
	valSteadyGap = "steady_gap_ms" // the same before a fault
	valRate      = "writes_per_s"  // acknowledged, before a fault
	valFailed    = "failed"        // attempts refused or without an answer
	valHealthy   = "healthy_s"     // from the fault until every member was healthy again
	// the same from when the node's first process was started again, or what lasted was over
	valBack    = "back_s"
	valDip     = "dip"        // percent of the rate lost in the second after the fault
	valAcked   = "acked"      // writes
	valLost    = "acked_lost" // of them
	valDoubled = "doubled"    // writes that were applied twice
	valOutage  = "outage_s"   // without an acknowledged write, what a human has to do included
)

// metric is how a value is shown and compared.
type metric struct {
	Name   string
	Title  string // with the unit
	Unit   string // after a number in a line of progress
	Lower  bool   // less is better
	Digits int
	Brief  bool // shown in a line of progress
}

// metrics are all that suites have.
var metrics = slices.Concat(commonMetrics, replayMetrics, lagMetrics, backupMetrics, tpccMetrics)

var commonMetrics = []metric{
	{Name: valTPS, Title: "TPS", Unit: " TPS", Brief: true},
	{Name: valSustained, Title: "sustained TPS", Unit: " sustained", Brief: true},
	{Name: valQPS, Title: "QPS"},
	{Name: valAverage, Title: "average ms", Unit: " ms average", Lower: true, Digits: 2},
	{Name: valP95, Title: "p95 ms", Unit: " ms p95", Lower: true, Digits: 1, Brief: true},
	{Name: valP99, Title: "p99 ms", Unit: " ms p99", Lower: true, Digits: 1},
	{Name: valErrors, Title: "ignored errors", Lower: true},
	{Name: valNotApplied, Title: "not applied", Unit: " not applied", Lower: true, Brief: true},
	{Name: valCatchUp, Title: "catch-up s", Lower: true, Digits: 1},
	{Name: valCPUAll, Title: "CPU, all hosts", Unit: "x CPU", Lower: true, Digits: 2, Brief: true},
	{Name: valCPULeader, Title: "CPU, leader's host", Lower: true, Digits: 2},
	{Name: valCPUAllUS, Title: "CPU µs", Lower: true},
	{Name: valClientUS, Title: "client's CPU µs", Lower: true},
	{Name: valShare, Title: "client's CPU %", Digits: 1},
	{Name: valVariation, Title: "variation %", Unit: " % variation", Lower: true, Digits: 1},
	{Name: valNetworkUS, Title: "network's CPU µs", Lower: true},
	{Name: valWritten, Title: "bytes written", Lower: true},
	{Name: valSent, Title: "bytes sent", Lower: true},
	{Name: valDaemonRSS, Title: "leader's daemon MiB", Lower: true},
	{Name: valGap, Title: "write gap ms", Unit: " ms gap", Lower: true, Brief: true},
	{Name: valSteadyGap, Title: "longest pause without a fault, ms", Lower: true},
	{Name: valRate, Title: "writes per second", Unit: " writes/s before", Brief: true},
	{Name: valFailed, Title: "failed attempts", Unit: " failed", Lower: true, Brief: true},
	{Name: valHealthy, Title: "whole again s", Unit: " s until whole", Lower: true, Digits: 1, Brief: true},
	{Name: valBack, Title: "back s", Lower: true, Digits: 1},
	{Name: valDip, Title: "dip %", Lower: true, Digits: 1},
	{Name: valAcked, Title: "acknowledged", Unit: " acknowledged", Brief: true},
	{Name: valLost, Title: "lost", Unit: " lost", Lower: true, Brief: true},
	{Name: valOutage, Title: "without writes, s", Unit: " s without writes", Lower: true, Digits: 1, Brief: true},
	{Name: valDoubled, Title: "doubled", Unit: " doubled", Lower: true},
	{Name: valDaemonRSS2, Title: "other daemons MiB", Lower: true},
	{Name: valThrottled, Title: "leader out of CPU %", Lower: true},
}

// metricOf looks a value's metric up.
func metricOf(name string) metric {
	for _, m := range metrics {
		if m.Name == name {
			return m
		}
	}
	return metric{Name: name, Title: name, Digits: 2}
}

func (m metric) number(v float64) string { return strconv.FormatFloat(v, 'f', m.Digits, 64) }

func (m metric) text(v float64) string { return m.number(v) + m.Unit }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
