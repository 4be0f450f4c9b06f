// Package load is what a member measures of its own load: what is committed, how long a sample of its commits spends in
// each stage, and how long the raft log's writes take. GET /load and /metrics show it.
package load

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
)

// Load is what this member counts of its work. Counting is a few additions per entry; only of a sample of entries times
// are taken. The zero value is ready, but for Start.
type Load struct {
	began               time.Time // see Start
	transactions, bytes atomic.Uint64
	stages              [4]histogram             // by api.Stages
	total               histogram                // of the same samples
	writes              histogram                // to the raft log, each with its fsync
	large               atomic.Pointer[largeTrx] // nil: none is under way
	// transactions of transaction_warn bytes; statements beyond transaction_refuse
	warned, refused atomic.Uint64
	watch           stopwatch
}

// Start is called before the member begins to work: ages count from here.
func (l *Load) Start() { l.began = time.Now() }

// CountWarned counts a transaction of transaction_warn bytes; CountRefused counts statements beyond transaction_refuse.
func (l *Load) CountWarned()               { l.warned.Add(1) }
func (l *Load) CountRefused(number uint64) { l.refused.Add(number) }

// Bytes is the size of the log entries of all transactions that this member saw committed.
func (l *Load) Bytes() uint64 { return l.bytes.Load() }

// View is what GET /load shows of all this. rate is what a follower applies of a large transaction, in bytes per
// second; 0: not known.
func (l *Load) View(rate float64) api.LoadView {
	v := api.LoadView{AgeS: time.Since(l.began).Seconds(), Transactions: l.transactions.Load(), Bytes: l.bytes.Load(),
		Commits: map[string]api.Histogram{api.StageTotal: l.total.view()}, LogWrites: l.writes.view(),
		Large: l.Large(rate)}
	for i, stage := range api.Stages {
		v.Commits[stage] = l.stages[i].view()
	}
	return v
}

// histogram counts durations; it may be used from many goroutines.
type histogram struct {
	sum     atomic.Int64 // ns
	buckets [32]atomic.Uint64
}

func (h *histogram) add(d time.Duration) {
	h.sum.Add(int64(d))
	i, _ := slices.BinarySearch(api.LatencyBounds, d.Seconds())
	h.buckets[i].Add(1)
}

func (h *histogram) view() api.Histogram {
	v := api.Histogram{SumS: time.Duration(h.sum.Load()).Seconds(), Buckets: make([]uint64, len(api.LatencyBounds)+1)}
	for i := range v.Buckets {
		v.Buckets[i] = h.buckets[i].Load()
		v.Count += v.Buckets[i]
	}
	return v
}

// Committed counts an entry that was committed, with its meta of size bytes in all.
func (l *Load) Committed(index uint64, m *raftlog.Meta, size int, events []byte) {
	l.committing(index, m)
	if m.Kind == raftlog.Barrier {
		l.large.Store(nil) // what another incarnation had not finished never happened
	}
	if m.Kind != raftlog.Trx {
		return
	}
	var n uint64
	for _, r := range m.GTIDs {
		n += uint64(r.Last - r.First + 1)
	}
	l.transactions.Add(n)
	l.bytes.Add(uint64(size))
	x := l.large.Load()
	switch {
	case m.Flags&raftlog.FlagUnfinished == 0:
		l.large.Store(nil)
	case m.Flags&raftlog.FlagContinues == 0:
		x = &largeTrx{bytes: uint64(size), began: time.Since(l.began)}
		if ev, err := binlog.FirstGTID(events); err == nil {
			x.gtid, x.total = ev.GTID.String(), ev.TransactionLength
		}
		l.large.Store(x)
	case x != nil:
		more := *x
		more.bytes += uint64(size)
		l.large.Store(&more)
	}
}

// largeTrx is a transaction of several entries, of which a part is committed.
type largeTrx struct {
	gtid         string
	bytes, total uint64        // so far; as its GTID event says, 0: not known
	began        time.Duration // when its first piece was committed, since Load.began
}

// Large is the transaction under way, nil without one; rate as for View.
func (l *Load) Large(rate float64) *api.LargeView {
	x := l.large.Load()
	if x == nil {
		return nil
	}
	return &api.LargeView{GTID: x.gtid, Bytes: x.bytes, Total: x.total, AgeS: (time.Since(l.began) - x.began).Seconds(),
		ReplayS: ledger.Heavy{Bytes: int64(max(x.bytes, x.total))}.Time(rate).Seconds()}
}

// Pace of the stopwatch.
const (
	// between the beginnings of two samples: what is measured costs nothing that shows
	watchInterval = 5 * time.Millisecond
	watchPatience = time.Minute // a sample that is not acknowledged by then is given up for a new one
)

// stopwatch follows one entry at a time from mysqld to its acknowledgement. While there is no entry to
// follow, only busy is read.
type stopwatch struct {
	busy atomic.Bool
	last atomic.Int64 // when the last sample began, since Load.began

	mu          sync.Mutex
	node        uint16
	incarnation uint64
	end         raftlog.Pos
	mysqld      time.Duration
	read        time.Time
	writes      []written // to the log since then
	durable     time.Time // when this node's log had it on disk
	committed   time.Time // zero: not yet
}

// written is a write to the log up to an index, with its fsync.
type written struct {
	last uint64
	at   time.Time
}

// maxWrites bounds what a sample waits for: after so many writes its own is not looked for any more.
const maxWrites = 256

// Proposing takes an entry that was read from mysqld for a sample, if none is under way. Only an entry that begins with
// a transaction says when mysqld stamped it, and only one that ends with one is acknowledged.
func (l *Load) Proposing(m *raftlog.Meta, data []byte) {
	w := &l.watch
	at := time.Since(l.began)
	since := at - time.Duration(w.last.Load())
	if m.Flags&(raftlog.FlagContinues|raftlog.FlagUnfinished) != 0 || since < watchInterval || w.busy.Load() &&
		since < watchPatience {
		return
	}
	_, events, err := raftlog.DecodeMeta(data)
	if err != nil || len(events) == 0 {
		return
	}
	ev, err := binlog.FirstGTID(events)
	now := time.Now()
	stamped := now.Sub(time.UnixMicro(int64(ev.ImmediateCommit)))
	if err != nil || stamped < 0 || stamped > watchPatience { // the time of day was set
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last.Store(int64(at))
	w.node, w.incarnation, w.end, w.mysqld = m.Node, m.Incarnation, m.End, stamped
	w.read, w.committed, w.writes = now, time.Time{}, w.writes[:0]
	w.busy.Store(true)
}

// CarryBegins gives up a sample: the life of mysqld, or the term, that it belongs to is over.
func (l *Load) CarryBegins() {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	l.watch.busy.Store(false)
}

// wrote notes that this node's log is durable up to an entry.
func (l *Load) wrote(durable uint64, took time.Duration) {
	l.writes.add(took)
	w := &l.watch
	if !w.busy.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.committed.IsZero() && len(w.writes) < maxWrites {
		w.writes = append(w.writes, written{durable, time.Now()})
	}
}

// committing notes that an entry is committed. Where it stands in the log, and so which write was its own, is known
// only now.
func (l *Load) committing(index uint64, m *raftlog.Meta) {
	w := &l.watch
	if !w.busy.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Node == w.node && m.Incarnation == w.incarnation && m.End == w.end {
		w.committed = time.Now()
		w.durable = w.committed // unless this log was faster than a majority of the others
		for _, x := range w.writes {
			if x.last >= index {
				w.durable = x.at
				break
			}
		}
	}
}

// Acknowledged notes that mysqld was told to go on up to the end of m: the sample is complete if it was committed by
// then.
func (l *Load) Acknowledged(m *raftlog.Meta) {
	w := &l.watch
	if !w.busy.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy.Load() || w.committed.IsZero() || m.Node != w.node || m.Incarnation != w.incarnation || m.End.Less(w.end) {
		return
	}
	total := time.Duration(0)
	for i, d := range []time.Duration{w.mysqld, w.durable.Sub(w.read), w.committed.Sub(w.durable),
		time.Since(w.committed)} {
		l.stages[i].add(d)
		total += d
	}
	l.total.add(total)
	w.busy.Store(false)
}

// TimedLog is the raft log as consensus uses it; the time that its durable writes take is counted.
func (l *Load) TimedLog(log *raftlog.Log) consensus.Storage { return &timedLog{Log: log, load: l} }

type timedLog struct {
	*raftlog.Log
	load  *Load
	began time.Time // of the first Append since the last Sync
}

// Append implements consensus.Storage.
func (t *timedLog) Append(entries []*raftpb.Entry) error {
	if t.began.IsZero() {
		t.began = time.Now()
	}
	return t.Log.Append(entries)
}

// Sync implements consensus.Storage.
func (t *timedLog) Sync() error {
	err := t.Log.Sync()
	if err == nil && !t.began.IsZero() {
		t.load.wrote(t.Log.DurableIndex(), time.Since(t.began))
		t.began = time.Time{}
	}
	return err
}

var (
	stageDesc = prometheus.NewDesc("trireme_commit_stage_seconds",
		"Time that a commit on this leader spends in a stage, of a sample of the commits.",
		[]string{"stage"}, nil)
	totalDesc = prometheus.NewDesc("trireme_commit_seconds", "Time of all stages of those commits together.", nil, nil)
	writeDesc = prometheus.NewDesc("trireme_raft_log_write_seconds",
		"Time of one write to the raft log with its fsync.", nil, nil)
	trxDesc = prometheus.NewDesc("trireme_transactions_total", "Transactions that this node saw committed.", nil,
		nil)
	trxBytesDesc = prometheus.NewDesc("trireme_transaction_bytes_total",
		"Bytes of the log entries of those transactions.", nil, nil)
	largeDesc = prometheus.NewDesc("trireme_large_transaction_bytes",
		"Size of the transaction of many log entries that is under way; 0: none is.", nil, nil)
	warnedDesc = prometheus.NewDesc("trireme_large_transactions_total",
		"Transactions of this leader's of transaction_warn bytes or more.", nil, nil)
	refusedDesc = prometheus.NewDesc("trireme_refused_transactions_total",
		"Statements that this leader's mysqld refused for transaction_refuse.", nil, nil)
)

// Describe implements prometheus.Collector.
func (l *Load) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stageDesc, totalDesc, writeDesc, trxDesc, trxBytesDesc, largeDesc, warnedDesc,
		refusedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (l *Load) Collect(out chan<- prometheus.Metric) {
	for i, stage := range api.Stages {
		out <- l.stages[i].metric(stageDesc, stage)
	}
	out <- l.total.metric(totalDesc)
	out <- l.writes.metric(writeDesc)
	out <- prometheus.MustNewConstMetric(trxDesc, prometheus.CounterValue, float64(l.transactions.Load()))
	out <- prometheus.MustNewConstMetric(trxBytesDesc, prometheus.CounterValue, float64(l.bytes.Load()))
	x := cmp.Or(l.large.Load(), new(largeTrx))
	out <- prometheus.MustNewConstMetric(largeDesc, prometheus.GaugeValue, float64(max(x.bytes, x.total)))
	out <- prometheus.MustNewConstMetric(warnedDesc, prometheus.CounterValue, float64(l.warned.Load()))
	out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(l.refused.Load()))
}

func (h *histogram) metric(d *prometheus.Desc, labels ...string) prometheus.Metric {
	v := h.view()
	cumulative, sum := map[float64]uint64{}, uint64(0)
	for i, bound := range api.LatencyBounds {
		sum += v.Buckets[i]
		cumulative[bound] = sum
	}
	return prometheus.MustNewConstHistogram(d, v.Count, v.SumS, cumulative, labels...)
}
