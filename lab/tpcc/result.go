package tpcc

import (
	"math/bits"
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

// Latency within 2 %; Max is exact.
type Latency struct {
	Average time.Duration `json:"average_ns"`
	P50     time.Duration `json:"p50_ns"`
	P95     time.Duration `json:"p95_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
}

// stepBits: a histogram has 2^stepBits buckets per power of two.
const stepBits = 6

// histogram of durations in microseconds, logarithmic in steps.
type histogram struct {
	buckets [(40 - stepBits) << stepBits]uint32
	n       int64
	sum     time.Duration
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.sum += d
	h.max = max(h.max, d)
	h.buckets[min(bucketOf(uint64(d.Microseconds())), len(h.buckets)-1)]++
}

// bucketOf is us itself below 2^(stepBits+1); above, the power of two and the stepBits bits below it.
func bucketOf(us uint64) int {
	shift := max(bits.Len64(us)-stepBits-1, 0)
	return shift<<stepBits + int(us>>shift)
}

// middle of a bucket.
func middle(bucket int) time.Duration {
	shift := max(bucket>>stepBits-1, 0)
	low := (bucket - shift<<stepBits) << shift
	return time.Duration(low+(1<<shift)/2) * time.Microsecond
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// quantile by the nearest rank.
func (h *histogram) quantile(percent int64) time.Duration {
	rank := (h.n*percent + 99) / 100
	for i, n := range h.buckets {
		if rank -= int64(n); rank <= 0 {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

func (h *histogram) latency() Latency {
	if h.n == 0 {
		return Latency{}
	}
	return Latency{Average: h.sum / time.Duration(h.n), P50: h.quantile(50), P95: h.quantile(95), P99: h.quantile(99),
		Max: h.max}
}

// tally is what one terminal counts.
type tally struct {
	latency    [kinds]histogram
	rolledBack [kinds]int64
	conflicts  [kinds][conflicts]int64
	perSecond  []int64
	skipped    int64
}

func (t *tally) merge(o *tally) {
	for k := range kinds {
		t.latency[k].merge(&o.latency[k])
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
	var all histogram
	for k := range kinds {
		c := t.conflicts[k]
		r.Types = append(r.Types, TypeResult{Name: k.String(), Committed: t.latency[k].n, RolledBack: t.rolledBack[k],
			Latency: t.latency[k].latency(),
			Retries: Retries{Deadlocks: c[deadlock], LockWaits: c[lockWait], Certification: c[certification]}})
		all.merge(&t.latency[k])
	}
	r.Latency = all.latency()
	r.TPS = float64(all.n) / length.Seconds()
	r.TpmC = float64(t.latency[NewOrder].n) / length.Minutes()
	return r
}
