package node

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/routing"
)

// entryStamped is an entry of one transaction that mysqld stamped at a time.
func entryStamped(at time.Time, end uint64) (raftlog.Meta, []byte) {
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 7, Start: raftlog.Pos{File: 1, Off: 4},
		End: raftlog.Pos{File: 1, Off: end}}
	m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.UUID{1}}, GNO: int64(end)})
	body := make([]byte, 0, 64)
	body = append(body, 0)
	body = append(body, make([]byte, 16)...)
	body = binary.LittleEndian.AppendUint64(body, end) // GNO
	body = append(body, 2)
	body = append(body, make([]byte, 16)...) // logical clock
	stamp := binary.LittleEndian.AppendUint64(nil, uint64(at.UnixMicro()))
	body = append(body, stamp[:7]...)
	body = append(body, 0)          // length
	body = append(body, 0, 0, 0, 0) // version
	ev := binlog.AppendEvent(nil, binlog.Header{Type: binlog.TypeGTID}, body)
	return m, append(raftlog.AppendMeta(nil, &m), ev...)
}

// TestCommitStages: a sample is counted once it is acknowledged, with all stages or not at all.
func TestCommitStages(t *testing.T) {
	l := &load{began: time.Now().Add(-time.Hour)}
	m, data := entryStamped(time.Now().Add(-20*time.Millisecond), 500)
	counted := func() uint64 { return l.stages[0].view().Count }
	write := func(last uint64) { l.wrote(last, time.Millisecond) }

	l.begin(&m, data)
	if !l.watch.busy.Load() {
		t.Fatal("no sample was begun")
	}
	other, _ := entryStamped(time.Now(), 400)
	write(8)
	l.committing(8, &other)
	l.acknowledged(&m) // an ACK does not count before the commit
	if counted() != 0 {
		t.Fatal("counted before it was committed")
	}
	write(10) // the sample is entry 9
	write(12)
	began := time.Now().Add(-30 * time.Millisecond)
	l.watch.writes[1].at = began
	l.committing(9, &m)
	foreign := m
	foreign.Incarnation++
	l.acknowledged(&foreign)
	l.acknowledged(&other) // up to where it does not cover the sample
	if counted() != 0 {
		t.Fatal("counted without its acknowledgement")
	}
	later := m
	later.End.Off += 100 // an acknowledgement covers all before it
	l.acknowledged(&later)
	if counted() != 1 || l.watch.busy.Load() {
		t.Fatalf("%d samples", counted())
	}
	if got := l.stages[0].view().SumS; got < 0.02 || got > 10 {
		t.Errorf("mysqld took %v s", got)
	}
	if got := l.stages[2].view().SumS; got < 0.03 || got > time.Since(began).Seconds() {
		t.Errorf("the majority took %v s after the write of the own log", got)
	}
	if got, parts := l.total.view().SumS, l.stages[0].view().SumS+l.stages[1].view().SumS+l.stages[2].view().
		SumS+l.stages[3].view().SumS; math.Abs(got-parts) > 1e-9 {
		t.Errorf("the stages add up to %v of %v s", parts, got)
	}
	if got := l.writes.view(); got.Count != 3 || math.Abs(got.SumS-0.003) > 1e-9 {
		t.Errorf("writes: %+v", got)
	}

	// The next one comes no sooner than the interval, and one that a majority has before this log has no time of the
	// majority's.
	l.watch.last.Store(int64(time.Since(l.began)) + int64(time.Minute))
	l.begin(&m, data)
	if l.watch.busy.Load() {
		t.Error("two samples within the interval")
	}
	before := l.stages[2].view().SumS
	l.watch.last.Store(0)
	l.begin(&m, data)
	write(8)
	l.committing(9, &m)
	write(9)
	l.acknowledged(&m)
	if got := l.stages[2].view(); got.Count != 2 || got.SumS != before {
		t.Errorf("majority: %+v", got)
	}

	// One whose acknowledgement will never come makes room for that of the next life.
	l.watch.last.Store(0)
	l.begin(&m, data)
	l.drop()
	if l.watch.busy.Load() {
		t.Error("a sample outlives its mysqld")
	}

	// A commit that waits for long is not remembered with every write meanwhile.
	l.watch.last.Store(0)
	l.begin(&m, data)
	for i := range 10 * maxWrites {
		write(uint64(i))
	}
	if n := len(l.watch.writes); n > maxWrites {
		t.Errorf("%d writes are remembered", n)
	}
}

// TestNoStageOfWhatCannotBeTimed: pieces of a transaction, entries that are no transaction, and stamps of a clock that
// was set.
func TestNoStageOfWhatCannotBeTimed(t *testing.T) {
	for name, change := range map[string]func(*raftlog.Meta, []byte) []byte{
		"a piece":          func(m *raftlog.Meta, b []byte) []byte { m.Flags = raftlog.FlagUnfinished; return b },
		"a later piece":    func(m *raftlog.Meta, b []byte) []byte { m.Flags = raftlog.FlagContinues; return b },
		"no events":        func(m *raftlog.Meta, _ []byte) []byte { return raftlog.AppendMeta(nil, m) },
		"nothing":          func(*raftlog.Meta, []byte) []byte { return nil },
		"an event cut off": func(_ *raftlog.Meta, b []byte) []byte { return b[:len(b)-10] },
		"the future": func(*raftlog.Meta, []byte) []byte {
			_, b := entryStamped(time.Now().Add(time.Hour), 500)
			return b
		},
		"the past": func(*raftlog.Meta, []byte) []byte {
			_, b := entryStamped(time.Now().Add(-time.Hour), 500)
			return b
		},
	} {
		l := &load{began: time.Now().Add(-time.Hour)}
		m, data := entryStamped(time.Now(), 500)
		data = change(&m, data)
		l.begin(&m, data)
		if l.watch.busy.Load() {
			t.Errorf("%s: timed", name)
		}
	}
}

// TestLoadCounts: transactions are counted where they end, and what is under way is told.
func TestLoadCounts(t *testing.T) {
	n := newTestNode(t)
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, time.Now())
	if err == nil {
		err = errors.Join(ca.Save(n.cfg.TLSDir()), b.Save(n.cfg.TLSDir()), n.certs.Open())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.routing.Counted(routing.Clients{Ports: map[string]api.PortView{"rw": {Sessions: 3}}})
	defer n.routing.Elsewhere.Follow("app")()
	n.load.began = time.Now()
	l := &n.load
	whole, _ := entryStamped(time.Now(), 500)
	piece := raftlog.Meta{Kind: raftlog.Trx, Flags: raftlog.FlagUnfinished}
	l.committedEntry(&whole, 100, nil)
	l.committedEntry(&raftlog.Meta{Kind: raftlog.Settings}, 100, nil)
	l.committedEntry(&piece, 1000, nil)
	piece.Flags |= raftlog.FlagContinues
	l.committedEntry(&piece, 1000, nil)
	v := n.Load()
	if v.Ports["rw"].Sessions != 3 || v.Routers != 1 || v.CertificateEnd != n.certs.Bundle().NotAfter() {
		t.Errorf("ports %+v, %d routers, certificate until %v", v.Ports, v.Routers, v.CertificateEnd)
	}
	if v.Transactions != 1 || v.Bytes != 2100 || v.Large == nil || v.Large.Bytes != 2000 {
		t.Errorf("%+v, large %+v", v, v.Large)
	}
	l.committedEntry(&raftlog.Meta{Kind: raftlog.Barrier}, 100, nil)
	if v = n.Load(); v.Large != nil {
		t.Errorf("after a barrier: %+v", v.Large)
	}
	disks := []api.DiskView{{Holds: "log, data", FreeBytes: 5, TotalBytes: 9}}
	l.disks.Store(&disks)
	l.writes.add(3 * time.Millisecond)
	l.writes.add(time.Minute)

	r := prometheus.NewPedanticRegistry()
	l.register(r)
	families, err := r.Gather()
	if err != nil || len(families) != 10 {
		t.Fatal(len(families), err)
	}
	for _, f := range families {
		switch m := f.GetMetric()[0]; f.GetName() {
		case "trireme_transactions_total":
			if m.GetCounter().GetValue() != 1 {
				t.Error(m)
			}
		case "trireme_disk_free_bytes":
			if m.GetGauge().GetValue() != 5 || m.GetLabel()[0].GetValue() != "log, data" {
				t.Error(m)
			}
		case "trireme_commit_stage_seconds":
			if len(f.GetMetric()) != len(api.Stages) {
				t.Error(f)
			}
		case "trireme_raft_log_write_seconds":
			if h := m.GetHistogram(); h.GetSampleCount() != 2 || h.GetBucket()[len(api.LatencyBounds)-1].GetCumulativeCount() !=
				1 {
				t.Error(m)
			}
		}
	}
	if got := l.writes.view(); got.Count != 2 || got.Buckets[len(got.Buckets)-1] != 1 || got.Quantile(0.25) <= 2e-3 ||
		got.Quantile(0.25) > 3.5e-3 {
		t.Errorf("%+v", got)
	}
}

// TestMetricsAreDocumented: docs/metrics.md lists exactly what the node registers.
func TestMetricsAreDocumented(t *testing.T) {
	registered := map[string]bool{}
	for _, file := range []string{"metrics.go", "load.go", "stream.go", "gossip/backup.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:gauge|locked)\("(\w+)"|NewDesc\("trireme_(\w+)"|Name: "(\w+)"`).
			FindAllSubmatch(source, -1) {
			registered["trireme_"+string(m[1])+string(m[2])+string(m[3])] = true
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)").FindAllSubmatch(page, -1) {
		listed[string(m[1])] = true
	}
	if len(registered) < 20 || !maps.Equal(registered, listed) {
		t.Errorf("registered: %v\nlisted: %v", slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(listed)))
	}
}

// TestRouterMetrics: the router's series of each port; of what ties sessions there are those that there are.
func TestRouterMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	n := newTestNode(t)
	if err := n.routing.Start(router.Config{}, false); err != nil {
		t.Fatal(err)
	}
	defer n.routing.Close()
	reg.MustRegister(routerCollector{n})
	families, err := reg.Gather()
	series := 0
	for _, f := range families {
		series += len(f.Metric)
	}
	if err != nil || len(families) != 7 || series != 28 {
		t.Errorf("%d series of %d metrics, %v: %v", series, len(families), err, families)
	}
}
