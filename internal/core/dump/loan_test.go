package dump

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// feedOnLoop is a feed whose transactions a loop sends, and its receiver, which has nothing yet.
func feedOnLoop(t *testing.T, s *script, change func(*FeedConfig)) (f *Feed, c *mysqlwire.Client) {
	t.Helper()
	l, err := loop.New(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s.log.wake = l.Wake
	l.Start()
	t.Cleanup(func() {
		l.Stop()
		l.Wait()
	})
	cfg := FeedConfig{Listen: "127.0.0.1:0", User: "feed", Password: feedPassword, UID: os.Getuid(), ServerID: 1<<20 + 1,
		ServerUUID: gtid.IncarnationUUID(testCluster, 9, 0), Loop: l, Cached: s.log.cached}
	if change != nil {
		change(&cfg)
	}
	if f, err = NewFeed(cfg, s.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	c = loggedIn(t, f)
	if _, err := c.Exec(limit(t, 20*time.Second), "SET @source_heartbeat_period=10000000"); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, dumpArgument(5, gtid.Set{})); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the walker is lent", func() bool { return lent(f) != nil })
	return f, c
}

// lent tells one loan of f's walker from the next; nil: it is not lent.
func lent(f *Feed) (back chan error) {
	on(f.cfg.Loop, func() {
		if f.server.loan.walker != nil {
			back = f.server.loan.back
		}
	})
	return back
}

// ends reads until k transactions have ended, and returns their GTIDs.
func ends(t *testing.T, c *mysqlwire.Client, k int) (got []gtid.GTID) {
	t.Helper()
	var asm binlog.Assembler
	for len(got) < k {
		ev, err := nextEvent(t, c)
		if err != nil {
			t.Fatal(err)
		}
		h, err := binlog.ParseHeader(ev)
		if err != nil {
			t.Fatal(err)
		}
		if h.Type == binlog.TypeHeartbeat || h.Type == binlog.TypeHeartbeatV2 {
			continue
		}
		if b, err := asm.Feed(h, ev); err != nil {
			t.Fatal(err)
		} else if b == binlog.End {
			got = append(got, asm.Trx().GTID)
		}
	}
	return got
}

func expectEnds(t *testing.T, c *mysqlwire.Client, s *script, first, last int64) {
	t.Helper()
	for i, g := range ends(t, c, int(last-first+1)) {
		if want := s.gtid(first + int64(i)); g != want {
			t.Fatalf("%s came, %s was next", g, want)
		}
	}
}

// TestFeedOnLoop: small transactions are sent by the loop, what might wait by the goroutine, and each once and in
// order.
func TestFeedOnLoop(t *testing.T) {
	s := newScript(1)
	f, c := feedOnLoop(t, s, nil)
	walker := lent(f)
	for range 10 {
		s.entry(1, 0, append(s.e.trx(), s.e.trx()...)...)
	}
	expectEnds(t, c, s, 1, 20)
	if lent(f) != walker {
		t.Error("the goroutine has sent small transactions")
	}
	s.entry(1, raftlog.FlagSpecial, s.e.trx()...)
	expectEnds(t, c, s, 21, 21)
	eventually(t, 20*time.Second, "the walker is lent again", func() bool {
		x := lent(f)
		return x != nil && x != walker
	})
	walker = lent(f)
	s.entry(1, 0, s.e.trx()...)
	expectEnds(t, c, s, 22, 22)
	if lent(f) != walker {
		t.Error("the goroutine has sent a small transaction after a special one")
	}
	f.Again() // a walker that is lent ends as well
	eventually(t, 20*time.Second, "the dump has ended", func() bool { return !connected(f) })
}

// TestLateLoan: the walker of a dump that has been replaced does not take the place of the next one's, to which nothing
// would be sent any more.
func TestLateLoan(t *testing.T) {
	s := newScript(1)
	f, c := feedOnLoop(t, s, nil)
	back := lent(f)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late := &walker{o: &f.server, next: 1 << 20}
	if err := late.await(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the late walker: %v", err)
	}
	if lent(f) != back {
		t.Fatal("it has taken the place of the one that was lent")
	}
	s.entry(1, 0, s.e.trx()...)
	expectEnds(t, c, s, 1, 1)
}

// TestFeedOnLoopInTurns: what is more than the loop sends in a turn follows in the next ones, though nothing else
// happens.
func TestFeedOnLoopInTurns(t *testing.T) {
	s := newScript(1)
	f, c := feedOnLoop(t, s, nil)
	walker := lent(f)
	s.log.held = true
	last := int64(0)
	for size := 0; size < 3*loanBytes; {
		evs := s.e.trx()
		s.entry(1, 0, evs...)
		last++
		for _, ev := range evs {
			size += len(ev)
		}
	}
	s.log.setCommitted(s.log.first + uint64(len(s.log.entries)) - 1)
	expectEnds(t, c, s, 1, last)
	if lent(f) != walker {
		t.Error("the goroutine has sent small transactions")
	}
}

// TestFeedOnLoopIsHeld: a gate that holds back the second of two transactions of an entry does not hold up the loop,
// and none of them is sent twice.
func TestFeedOnLoopIsHeld(t *testing.T) {
	s := newScript(1)
	d := &door{changed: make(chan struct{}), left: 2}
	f, c := feedOnLoop(t, s, func(cfg *FeedConfig) { cfg.Gate = d })
	s.entry(1, 0, append(s.e.trx(), s.e.trx()...)...)
	expectEnds(t, c, s, 1, 2)
	d.open(1)
	s.entry(1, 0, append(s.e.trx(), s.e.trx()...)...)
	eventually(t, 20*time.Second, "the goroutine has the walker", func() bool { return lent(f) == nil })
	d.open(10) // the one that passed on the loop is asked about again
	expectEnds(t, c, s, 3, 4)
	s.entry(1, 0, s.e.trx()...)
	expectEnds(t, c, s, 5, 5)
}

// TestFeedOnLoopWaitsForNobody: while a receiver takes nothing the loop goes on, and the receiver gets all in the end.
func TestFeedOnLoopWaitsForNobody(t *testing.T) {
	s := newScript(1)
	f, c := feedOnLoop(t, s, nil)
	l, last := f.cfg.Loop, int64(0)
	write := func() {
		var evs [][]byte
		for range 50 {
			evs = append(evs, s.e.trx()...)
			last++
		}
		s.entry(1, 0, evs...)
	}
	for lent(f) != nil { // until the goroutine waits for the receiver
		write()
		on(l, func() {}) // the loop goes on
	}
	for range 10 {
		write()
	}
	expectEnds(t, c, s, 1, last)
}

// TestHeartbeatsBesideTheLoop: heartbeats and the loop take turns with the receiver (the race detector looks on).
func TestHeartbeatsBesideTheLoop(t *testing.T) {
	s := newScript(1)
	_, c := feedOnLoop(t, s, nil)
	for i := range int64(5) {
		s.entry(1, 0, s.e.trx()...)
		expectEnds(t, c, s, i+1, i+1)
		for {
			ev, err := nextEvent(t, c)
			if err != nil {
				t.Fatal(err)
			}
			if h, err := binlog.ParseHeader(ev); err != nil || h.Type == binlog.TypeHeartbeat {
				break
			}
		}
	}
}
