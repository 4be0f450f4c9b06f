package raftlog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// benchTrx makes an entry of n transactions of 1,746 bytes in 11 events each: sysbench's write_only.
func benchTrx(s *stream, index uint64, n int) *raftpb.Entry {
	const events, size = 11, 1746
	m := Meta{Kind: Trx, Node: s.node, Incarnation: s.inc, Start: s.pos}
	s.pos.Off += uint64(n * size)
	m.End = s.pos
	for range n {
		s.gno++
		m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: s.uuid()}, GNO: s.gno})
	}
	data := AppendMeta(make([]byte, 0, MetaSize(&m)+n*size), &m)
	var body [size/events - binlog.MinEventSize + 8]byte
	for range n {
		for i := range events {
			b := body[:size/events-binlog.MinEventSize]
			if i == 0 {
				b = body[:size/events-binlog.MinEventSize+size%events]
			}
			data = binlog.AppendEvent(data, binlog.Header{Type: binlog.TypeRowsQuery}, b)
		}
	}
	return entry(index, 1, data)
}

// BenchmarkAppendSync is the whole durable cost of a commit: one Append and one Sync per batch.
func BenchmarkAppendSync(b *testing.B) {
	for _, zeros := range []int64{1, 0} {
		for _, n := range []int{1, 4, 16, 64} {
			b.Run(fmt.Sprintf("zeros=%t/trx=%d", zeros == 0, n), func(b *testing.B) {
				benchAppend(b, Options{ZeroAheadBytes: zeros}, n, true)
			})
		}
	}
}

// BenchmarkAppend is the CPU part of it.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 16, 64, 600} {
		b.Run(fmt.Sprintf("trx=%d", n), func(b *testing.B) { benchAppend(b, Options{CacheBytes: 1 << 20}, n, false) })
	}
}

// BenchmarkEncrypted is the same, and reading back, with and without encryption.
func BenchmarkEncrypted(b *testing.B) {
	text, err := AddKey(nil, "bench")
	check(b, err)
	keys, err := ParseKeys(text)
	check(b, err)
	for _, k := range []*Keys{nil, keys} {
		name := fmt.Sprintf("encrypted=%t", k != nil)
		for _, n := range []int{1, 16, 600} {
			b.Run(fmt.Sprintf("append/trx=%d/%s", n, name),
				func(b *testing.B) { benchAppend(b, Options{CacheBytes: 1 << 20, Keys: k}, n, false) })
			b.Run(fmt.Sprintf("sync/trx=%d/%s", n, name),
				func(b *testing.B) { benchAppend(b, Options{CacheBytes: 1 << 20, Keys: k}, n, true) })
		}
		b.Run("read/"+name, func(b *testing.B) { benchReader(b, k) })
	}
}

func benchAppend(b *testing.B, opts Options, n int, sync bool) {
	opts.Dir, opts.Cluster, opts.NodeID = b.TempDir(), testCluster, testNode
	l := mustOpen(b, opts)
	defer l.Close()
	setTerm(b, l, 1, 0)
	s := newStream(1, 1)
	check(b, l.Append([]*raftpb.Entry{s.barrier(1, 1)}))
	entries := make([]*raftpb.Entry, b.N)
	for i := range entries {
		entries[i] = benchTrx(s, uint64(i)+2, n)
	}
	b.SetBytes(int64(len(entries[0].Data)))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range entries {
		check(b, l.Append(entries[i:i+1]))
		if sync {
			check(b, l.Sync())
		}
	}
}

// BenchmarkReader reads entries back from the page cache, past the log's own cache.
func BenchmarkReader(b *testing.B) { benchReader(b, nil) }

func benchReader(b *testing.B, keys *Keys) {
	l := mustOpen(b, Options{Dir: b.TempDir(), CacheBytes: 1, Cluster: testCluster, NodeID: testNode, Keys: keys})
	defer l.Close()
	setTerm(b, l, 1, 0)
	s := newStream(1, 1)
	const count = 20000
	entries := []*raftpb.Entry{s.barrier(1, 1)}
	for i := uint64(2); i <= count; i++ {
		entries = append(entries, benchTrx(s, i, 1))
	}
	check(b, l.Append(entries))
	b.SetBytes(1746)
	b.ReportAllocs()
	b.ResetTimer()
	r := l.NewReader(1)
	for i := 0; i < b.N; {
		es, err := r.Next(count, 64<<10)
		check(b, err)
		i += len(es)
		if len(es) == 0 {
			r = l.NewReader(1)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	opts := Options{Dir: b.TempDir(), Cluster: testCluster, NodeID: testNode}
	l := mustOpen(b, opts)
	setTerm(b, l, 1, 0)
	s := newStream(1, 1)
	entries := []*raftpb.Entry{s.barrier(1, 1)}
	for i := uint64(2); i <= 60000; i++ {
		entries = append(entries, benchTrx(s, i, 1))
	}
	check(b, l.Append(entries))
	check(b, l.Close())
	b.SetBytes(l.Size())
	b.ResetTimer()
	for range b.N {
		l := mustOpen(b, opts)
		check(b, l.Close())
	}
}

// BenchmarkAppendTail shows the slowest commits while segments of 64 MiB are closed, and purged at the same time if
// asked.
func BenchmarkAppendTail(b *testing.B) {
	for _, purge := range []bool{false, true} {
		b.Run(fmt.Sprintf("purge=%t", purge), func(b *testing.B) {
			l, err := Open(Options{Dir: b.TempDir(), Cluster: 1, NodeID: 1})
			check(b, err)
			check(b, l.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(0))}))
			s := newStream(1, 1)
			index := uint64(1)
			check(b, errors.Join(l.Append([]*raftpb.Entry{s.barrier(index, 1)}), l.Sync()))
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for purge {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						last, _ := l.LastIndex()
						_, err := l.Purge(last, 0)
						check(b, err)
					}
				}
			}()
			var took []time.Duration
			for b.Loop() {
				index++
				e := benchTrx(s, index, 16)
				check(b, l.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(index - 1)}))
				began := time.Now()
				check(b, errors.Join(l.Append([]*raftpb.Entry{e}), l.Sync()))
				took = append(took, time.Since(began))
			}
			close(stop)
			<-stopped
			check(b, l.Close())
			slices.Sort(took)
			us := func(part float64) float64 { return float64(took[int(part*float64(len(took)-1))].Microseconds()) }
			b.ReportMetric(us(0.5), "p50-us")
			b.ReportMetric(us(0.99), "p99-us")
			b.ReportMetric(us(0.999), "p99.9-us")
			b.ReportMetric(us(1), "max-us")
		})
	}
}

// BenchmarkRotation shows the commits that close a segment of 1 MiB, and all others, with a purge of what is old.
func BenchmarkRotation(b *testing.B) {
	l := mustOpen(b, Options{Dir: b.TempDir(), SegmentBytes: 1 << 20, Cluster: testCluster, NodeID: testNode})
	setTerm(b, l, 1, 0)
	s := newStream(1, 1)
	index := uint64(1)
	check(b, errors.Join(l.Append([]*raftpb.Entry{s.barrier(index, 1)}), l.Sync()))
	var closing, other []time.Duration
	for b.Loop() {
		index++
		e, segment := benchTrx(s, index, 64), l.active()
		began := time.Now()
		check(b, errors.Join(l.Append([]*raftpb.Entry{e}), l.Sync()))
		if took := time.Since(began); l.active() != segment {
			closing = append(closing, took)
		} else {
			other = append(other, took)
		}
		if index%1000 == 0 {
			setTerm(b, l, 1, index)
			_, err := l.Purge(index-500, 0)
			check(b, err)
		}
	}
	check(b, l.Close())
	for name, took := range map[string][]time.Duration{"closing": closing, "other": other} {
		slices.Sort(took)
		for _, p := range []float64{50, 99, 99.9} {
			if n := len(took); n > 0 {
				b.ReportMetric(float64(took[int(p/100*float64(n-1))].Microseconds()), fmt.Sprintf("%s-p%v-us", name, p))
			}
		}
	}
}
