package tpcc

import (
	"slices"
	"time"
)

// Result of a run: what was completed between the end of the warm-up and the end of the run.
type Result struct {
	Length time.Duration `json:"length_ns"`
	Types  []TypeResult  `json:"types"` // of all five, in the order of Kind
	// TpmC is the number of committed New-Orders per minute; "like", see the package comment. TPS is of all types,
	// committed.
	TpmC      float64 `json:"tpmc_like"`
	TPS       float64 `json:"tps"`
	PerSecond []int64 `json:"tps_per_second"` // committed in each second
	// Latency of all committed transactions.
	Latency Latency `json:"latency"`
	// Skipped are districts that a Delivery found without a new order; more than 1 % of them make a run invalid (clause
	// 2.7.4.2).
	Skipped int64 `json:"skipped_deliveries"`
}

// TypeResult is of one type of transaction.
type TypeResult struct {
	Name       string  `json:"name"`
	Committed  int64   `json:"committed"`
	RolledBack int64   `json:"rolled_back"` // as clause 2.4.1.4 wants it
	Latency    Latency `json:"latency"`     // of the committed ones, from the first try
	Retries    Retries `json:"retries"`
}

// Retries counts attempts that the server aborted, of transactions that were completed after all.
type Retries struct {
	Deadlocks     int64 `json:"deadlocks"`     // 1213
	LockWaits     int64 `json:"lock_waits"`    // 1205
	Certification int64 `json:"certification"` // 3101, Group Replication
}

// All of them.
func (r Retries) All() int64 {
	return r.Deadlocks + r.LockWaits + r.Certification
}

// Latency has quantiles by the nearest rank.
type Latency struct {
	Average time.Duration `json:"average_ns"`
	P50     time.Duration `json:"p50_ns"`
	P95     time.Duration `json:"p95_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
}

func latencyOf(all []time.Duration) (l Latency) {
	n := len(all)
	if n == 0 {
		return l
	}
	slices.Sort(all)
	for _, d := range all {
		l.Average += d
	}
	rank := func(percent int) time.Duration { return all[(n*percent+99)/100-1] }
	return Latency{l.Average / time.Duration(n), rank(50), rank(95), rank(99), all[n-1]}
}

// tally is what one terminal counts.
type tally struct {
	latency    [kinds][]time.Duration // of committed ones
	rolledBack [kinds]int64
	conflicts  [kinds][conflicts]int64
	perSecond  []int64
	skipped    int64
}

func (t *tally) merge(o *tally) {
	for k := range kinds {
		t.latency[k] = append(t.latency[k], o.latency[k]...)
		t.rolledBack[k] += o.rolledBack[k]
		for c, n := range o.conflicts[k] {
			t.conflicts[k][c] += n
		}
	}
	for i, n := range o.perSecond {
		t.perSecond[i] += n
	}
	t.skipped += o.skipped
}

func (t *tally) result(length time.Duration) Result {
	r := Result{Length: length, PerSecond: t.perSecond, Skipped: t.skipped}
	for k := range kinds {
		c := t.conflicts[k]
		r.Types = append(r.Types, TypeResult{Name: k.String(), Committed: int64(len(t.latency[k])), RolledBack: t.rolledBack[k],
			Latency: latencyOf(t.latency[k]),
			Retries: Retries{Deadlocks: c[deadlock], LockWaits: c[lockWait], Certification: c[certification]}})
	}
	all := slices.Concat(t.latency[:]...)
	r.Latency = latencyOf(all)
	r.TPS = float64(len(all)) / length.Seconds()
	r.TpmC = float64(len(t.latency[NewOrder])) / length.Minutes()
	return r
}
