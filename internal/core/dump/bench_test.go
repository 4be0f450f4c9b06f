package dump

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// sysbenchGroup is how many transactions the fake server commits together.
const sysbenchGroup = 8

// BenchmarkSource reads groups of sysbench transactions from a fake mysqld over a unix socket and acknowledges every
// payload at once; one operation is one transaction.
func BenchmarkSource(b *testing.B) {
	b.ReportAllocs()
	n, ready := b.N, make(chan struct{})
	src := attach(b, fakeMysqld(b, func(nc net.Conn, e *events) {
		_, _ = nc.Write(opening(e))
		go hang(nc)
		var groups [][]byte
		for sent := 0; sent < n; {
			var out []byte
			for i := 0; i < sysbenchGroup && sent < n; i++ {
				sent++
				out = packets(out, i == sysbenchGroup-1 || sent == n, e.trx()...)
			}
			groups = append(groups, out)
		}
		close(ready)
		for _, out := range groups {
			if _, err := nc.Write(out); err != nil {
				return
			}
		}
	}))
	<-ready
	b.ResetTimer()
	b.ReportMetric(float64(n)/float64(acknowledgeAll(b, src, n)), "trx/payload")
}

// acknowledgeAll runs src until n transactions have come, and acknowledges each payload at once.
func acknowledgeAll(b *testing.B, src *Source, n int) (payloads int) {
	ctx, cancel := context.WithCancel(b.Context())
	err := src.Run(ctx, func(p Payload) bool {
		payloads++
		if err := src.Ack(1, p.Meta.End); err != nil {
			b.Error(err)
		}
		if p.Meta.GTIDs[len(p.Meta.GTIDs)-1].Last >= int64(n) {
			cancel()
		}
		return true
	})
	if !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	return payloads
}

// BenchmarkSourceParse is BenchmarkSource without sockets: what the package itself costs.
func BenchmarkSourceParse(b *testing.B) {
	const trxs = 4096
	e := &events{uuid: fakeUUID, pos: freshStart}
	var block []byte
	for i := range trxs {
		block = packets(block, (i+1)%sysbenchGroup == 0, e.trx()...)
	}
	group := len(block) / (trxs / sysbenchGroup)
	b.ReportAllocs()
	b.SetBytes(int64(len(block) / trxs))
	s := NewSource(SourceConfig{Node: 1, Incarnation: 1, ServerUUID: fakeUUID})
	s.st = newStream(s.cfg.ChunkBytes + streamSlackBytes)
	for done := 0; done < b.N; done += trxs {
		s.settle(cutter{pos: freshStart, placed: true})
		s.b.cutter = s.settled
		for rest := block; s.settled.lastGNO < trxs; {
			_, ok, err := s.scan()
			if err != nil {
				b.Fatal(err)
			}
			if !ok {
				rest = rest[s.bring(rest[:min(group, len(rest))]):]
			}
		}
	}
}

// benchLog makes a log of n sysbench transactions, sysbenchGroup to an entry.
func benchLog(n int) *memLog {
	log := newMemLog()
	e := &events{uuid: fakeUUID, pos: freshStart}
	fde, err := normalFDE(e.fde())
	if err != nil {
		panic(err)
	}
	log.barrier(1, 1, 1, fde)
	for done := 0; done < n; done += sysbenchGroup {
		m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 1, Start: e.pos}
		var evs []byte
		for range sysbenchGroup {
			for _, ev := range e.trx() {
				evs = append(evs, ev...)
			}
			m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: fakeUUID}, GNO: e.gno})
		}
		m.End = e.pos
		log.append(1, append(raftlog.AppendMeta(nil, &m), evs...), true)
	}
	return log
}

// fakeReceiver logs in to a feed and asks for everything.
func fakeReceiver(t testing.TB, f *Feed, set gtid.Set) *mysqlwire.Client {
	t.Helper()
	nc, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c, err := mysqlwire.Login(limit(t, 10*time.Second), nc, mysqlwire.ClientConfig{User: "feed", Password: feedPassword})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, dumpArgument(7, set)); err != nil {
		t.Fatal(err)
	}
	return c
}

// dumpArgument encodes what parseDumpRequest reads.
func dumpArgument(serverID uint32, set gtid.Set) []byte {
	_, b := wideDumpCommand(&SourceConfig{ReplicaServerID: serverID}, raftlog.Pos{File: 1, Off: 4})
	b = b[:len(b)-4-8] // the empty set
	encoded := set.AppendBinary(nil)
	b = append(b, byte(len(encoded)), byte(len(encoded)>>8), byte(len(encoded)>>16), byte(len(encoded)>>24))
	return append(b, encoded...)
}

// BenchmarkFeed serves a log that is there already to a receiver that reads and discards; one operation is one
// transaction.
func BenchmarkFeed(b *testing.B) {
	log := benchLog(min(b.N, 1<<15))
	rounds := (b.N + 1<<15 - 1) >> 15
	b.ReportAllocs()
	f, err := NewFeed(FeedConfig{Listen: "127.0.0.1:0", User: "feed", Password: feedPassword, UID: os.Getuid(),
		ServerID: 9, ServerUUID: gtid.IncarnationUUID(testCluster, 9, 0)}, log)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.ResetTimer()
	for range rounds {
		sent := f.stats.bytes.Load()
		c := fakeReceiver(b, f, gtid.Set{})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, c.NetConn()) })
		for f.stats.next.Load() <= log.Committed() || f.stats.bytes.Load() == sent {
			time.Sleep(50 * time.Microsecond)
		}
		f.stats.next.Store(0)
		c.Close()
		wg.Wait()
	}
}

// BenchmarkFeedTrickle commits one entry of one group at a time and waits until it is on its way, as under light load.
func BenchmarkFeedTrickle(b *testing.B) {
	all := benchLog(b.N * sysbenchGroup)
	log := newMemLog()
	log.append(1, all.entries[0].Data, true)
	b.ReportAllocs()
	f, err := NewFeed(FeedConfig{Listen: "127.0.0.1:0", User: "feed", Password: feedPassword, UID: os.Getuid(),
		ServerID: 9, ServerUUID: gtid.IncarnationUUID(testCluster, 9, 0)}, log)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	c := fakeReceiver(b, f, gtid.Set{})
	b.ResetTimer()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range b.N {
			log.append(1, all.entries[i+1].Data, true)
		}
	})
	buf := make([]byte, 64<<10)
	for f.stats.transactions.Load() < uint64(b.N*sysbenchGroup) {
		if _, err := c.NetConn().Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	wg.Wait()
}

// BenchmarkSourcePingPong is one client alone: the fake mysqld sends one transaction and waits for its ACK. The time is
// that of both sides.
func BenchmarkSourcePingPong(b *testing.B) {
	b.ReportAllocs()
	n, ready := b.N, make(chan struct{})
	src := attach(b, fakeMysqld(b, func(nc net.Conn, e *events) {
		_, _ = nc.Write(opening(e))
		var trxs [][]byte
		for range n {
			trxs = append(trxs, packets(nil, true, e.trx()...))
		}
		close(ready)
		ack := make([]byte, 64)
		for _, trx := range trxs {
			if _, err := nc.Write(trx); err != nil {
				return
			}
			if _, err := nc.Read(ack); err != nil {
				return
			}
		}
		hang(nc)
	}))
	<-ready
	b.ResetTimer()
	acknowledgeAll(b, src, n)
}
