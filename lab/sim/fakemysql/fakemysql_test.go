package fakemysql

import (
	"errors"
	"fmt"
	"testing"

	"trireme/internal/mysql/gtid"
)

// The sections named here are those of MYSQL-FACTS.md: what releases a waiting commit (2), the dump stream (3),
// recovery (4), settings (5), the replica's side (6), promotion and seeding (7).

func uuid(node uint16, life uint64) gtid.UUID { return gtid.IncarnationUUID(7, node, life) }

func g(node uint16, life uint64, gno int64) gtid.GTID {
	return gtid.GTID{SID: gtid.SID{UUID: uuid(node, life)}, GNO: gno}
}

// leader is a server that takes writes and waits for acknowledgements.
func leader(t *testing.T) *Server {
	t.Helper()
	s := New(1)
	s.Start(uuid(1, 1), false)
	s.SetSemiSync(true)
	s.SetReadOnly(false)
	return s
}

// insert commits a row as client number row, or leaves it waiting.
func insert(t *testing.T, s *Server, row uint64) {
	t.Helper()
	if err := s.Execute(row, Stmt{Kind: Insert, Rows: []uint64{row}}, false); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, s *Server, st Stmt) {
	t.Helper()
	if err := s.Execute(0, st, false); err != nil {
		t.Fatalf("%v: %v", st, err)
	}
}

// rows counts table 0.
func rows(s *Server) int { return len(s.Tables()[0]) }

func never() bool  { return false }
func always() bool { return true }

// A commit waits in AFTER_SYNC: logged, not visible, not in gtid_executed, and its client hears nothing (section 2).
func TestWaits(t *testing.T) {
	s := leader(t)
	before := s.End()
	insert(t, s, 1)
	if rows(s) != 0 || len(s.Outcomes()) != 0 || !s.Executed().Empty() || len(s.Waiting()) != 1 {
		t.Fatal("it did not wait")
	}
	if !before.Less(s.End()) {
		t.Error("it is not in the binary log")
	}
	s.Ack(before)
	if rows(s) != 0 {
		t.Fatal("an acknowledgement of what came before it has released it")
	}
	insert(t, s, 2)
	s.Ack(s.End()) // cumulative
	if out := s.Outcomes(); rows(s) != 2 || len(out) != 2 || !out[0].OK || out[0].Client != 1 || s.Executed().
		Count() != 2 {
		t.Fatalf("not released: %v", out)
	}
}

// What releases a waiting commit without an acknowledgement (section 2).
func TestReleases(t *testing.T) {
	for what, f := range map[string]func(s *Server){
		"semi-sync off":                 func(s *Server) { s.SetSemiSync(false) },
		"SIGTERM":                       func(s *Server) { s.Shutdown() },
		"position never sent":           func(s *Server) { s.Ack(Pos{99, 4}) },
		"dump that begins after it":     func(s *Server) { s.Dump(s.End(), true) },
		"restart on the old binary log": func(s *Server) { s.Crash(0, never); s.Start(uuid(1, 1), true) },
	} {
		t.Run(what, func(t *testing.T) {
			s := leader(t)
			insert(t, s, 1)
			f(s)
			if rows(s) != 1 {
				t.Error("still waiting")
			}
		})
	}
	for what, f := range map[string]func(s *Server){
		"KILL, client gone":          func(s *Server) { s.Disconnect() },
		"dump that begins before it": func(s *Server) { s.Dump(Pos{1, 4}, true) },
		"super_read_only":            func(s *Server) { s.SetReadOnly(true) },
		"rotation":                   func(s *Server) { s.Rotate() },
		"engine logs flushed":        func(s *Server) { s.FlushEngineLogs() },
		"restart without binary log": func(s *Server) { s.Crash(s.Records(), never); s.Start(uuid(1, 2), false) },
	} {
		t.Run(what, func(t *testing.T) {
			s := leader(t)
			insert(t, s, 1)
			f(s)
			if rows(s) != 0 {
				t.Error("released")
			}
		})
	}
	s := leader(t)
	s.Ack(Pos{99, 4})
	insert(t, s, 1)
	if rows(s) != 1 {
		t.Error("an acknowledgement of the future is not believed for what comes later")
	}
}

// super_read_only waits for a waiting commit, and new writes wait for super_read_only (section 2).
func TestReadOnlyBlocks(t *testing.T) {
	s := leader(t)
	insert(t, s, 1)
	if s.SetReadOnly(true) {
		t.Fatal("it did not wait")
	}
	if err := s.Execute(2, Stmt{Kind: Insert, Rows: []uint64{2}}, false); !errors.Is(err, ErrBlocked) {
		t.Fatal(err)
	}
	s.Ack(s.End())
	if !s.ReadOnly() {
		t.Fatal("it is still not read-only")
	}
	if err := s.Execute(2, Stmt{Kind: Insert, Rows: []uint64{2}}, false); !errors.Is(err, ErrReadOnly) {
		t.Fatal(err)
	}
	run(t, s, Stmt{Kind: Analyze}) // super_read_only does not stop it, and it takes a number (section 4)
	if got := s.Waiting(); len(got) != 1 || got[0].GNO != 2 {
		t.Fatalf("waiting: %v", got)
	}
}

// A waiting account statement makes every new login hang; a session that is open goes on (section 2).
func TestAccountHangsLogins(t *testing.T) {
	s := leader(t)
	run(t, s, Stmt{Kind: Account, User: 1})
	if !s.LoginsHang() || s.Dump(Pos{1, 4}, false) != nil {
		t.Fatal("logins do not hang")
	}
	if s.Dump(Pos{1, 4}, true) == nil {
		t.Fatal("a spare session cannot dump")
	}
	s.Ack(s.End())
	if s.LoginsHang() {
		t.Fatal("logins hang for ever")
	}
}

// read gives the transactions of a dump and whether the last event asks for an acknowledgement.
func read(t *testing.T, d *Dump) (got []gtid.GTID, needAck bool) {
	t.Helper()
	for {
		ev, need, ok, lost := d.Next()
		if lost {
			t.Fatal("lost")
		}
		if !ok {
			return got, needAck
		}
		needAck = need
		if l := d.s.log[max(d.next-1, 0)]; l.trx != nil && string(l.data) == string(ev) {
			got = append(got, l.trx.GTID)
		}
	}
}

// Only the last event of a flush group asks for an acknowledgement (section 3).
func TestGroup(t *testing.T) {
	s := leader(t)
	for i, more := range []bool{true, true, false} {
		if err := s.Execute(0, Stmt{Kind: Insert, Rows: []uint64{uint64(i)}}, more); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	for _, l := range s.log {
		if l.needAck {
			asked++
		}
	}
	if asked != 1 || !s.log[len(s.log)-1].needAck || len(s.Waiting()) != 3 {
		t.Errorf("%d requests for an acknowledgement, %d waiting", asked, len(s.Waiting()))
	}
}

// A dump by file and position sends again what waits, with its request; one by GTID set skips it in silence, and after
// a rotation never sends transactions without an XID: the next acknowledgement releases them all the same (section 3).
func TestResume(t *testing.T) {
	s := leader(t)
	insert(t, s, 1)
	s.Ack(s.End())
	from := s.End()
	run(t, s, Stmt{Kind: DropIfExists, Table: 5})
	if !s.Rotate() {
		t.Fatal("a transaction without an XID holds the rotation back")
	}
	insert(t, s, 2)
	if s.Rotate() {
		t.Fatal("a rotation went past a prepared transaction")
	}
	if got, need := read(t, s.Dump(from, true)); fmt.Sprint(got) != fmt.Sprint([]gtid.GTID{g(1, 1, 2), g(1, 1, 3)}) ||
		!need {
		t.Errorf("by position: %v, acknowledgement asked for %t", got, need)
	}
	if got, _ := read(t, s.DumpByGTID(gtid.SetOf(g(1, 1, 1)))); fmt.Sprint(got) != fmt.Sprint([]gtid.GTID{g(1, 1, 3)}) {
		t.Errorf("by GTID set: %v; the one before the rotation should be missing", got)
	}
	s.Ack(s.End())
	if len(s.Waiting()) != 0 {
		t.Error("it was not released")
	}
}

// Without its binary log, what InnoDB holds after a crash is a prefix of what was acknowledged: a little less in any
// flush mode, more less when it flushes lazily and the power goes (section 4).
func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		mode        FlushMode
		kill, power int // rows that survive at least, of 10
	}{{FlushEach, 8, 8}, {FlushWrite, 8, 0}, {FlushLazy, 0, 0}} {
		for _, power := range []bool{false, true} {
			s := leader(t)
			s.Flush = c.mode
			for i := range uint64(10) {
				insert(t, s, i)
			}
			s.Ack(s.End())
			insert(t, s, 10) // in doubt
			want := c.kill
			if power {
				want = c.power
			}
			if got := s.CrashFloor(power); got != want {
				t.Errorf("mode %d, power %t: at least %d, want %d", c.mode, power, got, want)
			}
			keep := s.CrashFloor(power) + 1
			s.Crash(keep, never)
			s.Start(uuid(1, 2), false)
			if rows(s) != keep || s.Executed().Count() != uint64(keep) || s.Executed().
				Last(gtid.SID{UUID: uuid(1, 1)}) != int64(keep) {
				t.Errorf("mode %d: %d rows, %v executed; want the first %d", c.mode, rows(s), s.Executed(), keep)
			}
		}
	}
}

// FLUSH LOCAL ENGINE LOGS is a durability barrier (section 4).
func TestFlushBarrier(t *testing.T) {
	s := leader(t)
	s.Flush = FlushLazy
	insert(t, s, 1)
	s.Ack(s.End())
	s.FlushEngineLogs()
	insert(t, s, 2)
	s.Ack(s.End())
	if s.CrashFloor(true) != 1 {
		t.Error(s.CrashFloor(true))
	}
}

// Keeping the binary log with lazy flushing is silent loss: GTIDs are claimed whose rows are gone (section 4).
func TestKeptBinaryLogClaims(t *testing.T) {
	s := leader(t)
	s.Flush = FlushLazy
	for i := range uint64(5) {
		insert(t, s, i)
	}
	s.Ack(s.End())
	s.Crash(2, never)
	s.Start(uuid(1, 1), true)
	if rows(s) != 2 || s.Executed().Count() != 5 {
		t.Errorf("%d rows, executed %v", rows(s), s.Executed())
	}
}

// Statements without a trace run and leave holes, on the server that logged them; a rotation or a clean shutdown saves
// their GTIDs (section 4).
func TestHoles(t *testing.T) {
	for what, st := range map[string]Stmt{"drop if exists": {Kind: DropIfExists, Table: 9},
		"account that changes nothing": {Kind: Account, User: 1}} {
		for how, save := range map[string]func(s *Server){"crash": func(s *Server) { s.Crash(s.Records(), never) },
			"rotation": func(s *Server) { s.Rotate(); s.Crash(s.Records(), never) },
			"shutdown": func(s *Server) { s.Shutdown() }} {
			s := leader(t)
			run(t, s, Stmt{Kind: Account, User: 1})
			run(t, s, Stmt{Kind: CreateTable, Table: 2})
			s.Ack(s.End())
			run(t, s, st)
			s.Ack(s.End())
			insert(t, s, 1)
			s.Ack(s.End())
			save(s)
			s.Start(uuid(1, 2), false)
			hole := !s.Executed().Contains(g(1, 1, 3))
			if hole != (how == "crash") || s.Executed().Count() < 3 || rows(s) != 1 {
				t.Errorf("%s, %s: executed %v", what, how, s.Executed())
			}
		}
	}
}

// A server that has the same uuid again gives a local statement the number of a hole (section 4).
func TestReusedNumber(t *testing.T) {
	s := leader(t)
	run(t, s, Stmt{Kind: DropIfExists, Table: 9})
	insert(t, s, 1)
	s.Ack(s.End())
	s.Crash(s.Records(), never)
	s.Start(uuid(1, 1), false)
	run(t, s, Stmt{Kind: Analyze})
	if got := s.Executed().Last(gtid.SID{UUID: uuid(1, 1)}); got != 2 {
		t.Errorf("the local statement has number %d", got)
	}
	if !s.Executed().Contains(g(1, 1, 1)) {
		t.Error("it did not take the hole's")
	}
}

// feed gives a follower what a leader has logged and committed.
func feed(t *testing.T, from, to *Server) {
	t.Helper()
	var trx []byte
	for _, l := range from.log {
		if l.trx == nil && len(trx) == 0 && !isGTID(l.data) {
			continue
		}
		trx = append(trx, l.data...)
		if l.trx != nil {
			if err := to.Receive(trx); err != nil {
				t.Fatal(err)
			}
			trx = nil
		}
	}
}

func isGTID(ev []byte) bool { return ev[4] == 33 }

func follower(t *testing.T) *Server {
	t.Helper()
	s := New(2)
	s.Start(uuid(2, 1), false)
	return s
}

// A receiver takes whole transactions only, skips doubles by their GTID, and loses its relay log with the process
// (section 6).
func TestReceiver(t *testing.T) {
	a, b := leader(t), follower(t)
	insert(t, a, 1)
	insert(t, a, 2)
	feed(t, a, b)
	feed(t, a, b)
	if b.Backlog() != 2 || b.Held().Count() != 2 || !b.Executed().Empty() {
		t.Fatalf("%d in the relay log", b.Backlog())
	}
	b.Apply(0)
	feed(t, a, b)
	if b.Backlog() != 1 || rows(b) != 1 {
		t.Fatalf("%d in the relay log, %d rows", b.Backlog(), rows(b))
	}
	b.Crash(b.Records(), never)
	b.Start(uuid(2, 2), false)
	if b.Backlog() != 0 || b.Held().Count() != 1 {
		t.Error("the relay log has survived")
	}
	if err := b.Receive(a.log[2].data); !errors.Is(err, ErrPartial) {
		t.Errorf("a part of a transaction: %v", err)
	}
}

// The applier keeps the log's order, unless it is told not to: then there are holes below the highest (section 5).
func TestApplierOrder(t *testing.T) {
	for _, anyOrder := range []bool{false, true} {
		a, b := leader(t), follower(t)
		b.AnyOrder = anyOrder
		for i := range uint64(3) {
			insert(t, a, i)
		}
		feed(t, a, b)
		b.Apply(2)
		if hole := b.Executed().Contains(g(1, 1, 3)); hole != anyOrder {
			t.Errorf("any order %t: executed %v", anyOrder, b.Executed())
		}
	}
}

// A follower's statements without a trace are exact: the applier saves each GTID (section 4).
func TestFollowerKeepsTraces(t *testing.T) {
	a, b := leader(t), follower(t)
	run(t, a, Stmt{Kind: DropIfExists, Table: 9})
	feed(t, a, b)
	b.Apply(0)
	b.Crash(b.Records(), never)
	b.Start(uuid(2, 2), false)
	if !b.Executed().Contains(g(1, 1, 1)) {
		t.Error(b.Executed())
	}
}

// XA PREPARE survives on a leader. On a follower any restart, a clean one too, loses what is prepared and every XA
// PREPARE's GTID, and nothing else (section 4).
func TestXA(t *testing.T) {
	for _, clean := range []bool{false, true} {
		a, b := leader(t), follower(t)
		prepare := func(xid string, row uint64) {
			run(t, a, Stmt{Kind: XAPrepare, XID: xid, Rows: []uint64{row}})
			a.Ack(a.End())
		}
		prepare("x", 1)
		prepare("y", 2)
		run(t, a, Stmt{Kind: XACommit, XID: "y"})
		a.Ack(a.End())
		feed(t, a, b)
		for range 3 {
			b.Apply(0)
		}
		if len(b.Prepared()) != 1 || rows(b) != 1 {
			t.Fatalf("prepared %v, %v", b.Prepared(), b.ApplyError())
		}
		if clean {
			a.Shutdown()
			b.Shutdown()
		} else {
			a.Crash(a.Records(), never)
			b.Crash(b.Records(), never)
		}
		a.Start(uuid(1, 2), false)
		b.Start(uuid(2, 2), false)
		if len(a.Prepared()) != 1 || rows(a) != 1 || a.Executed().Count() != 3 {
			t.Errorf("leader, clean %t: prepared %v, executed %v", clean, a.Prepared(), a.Executed())
		}
		if len(b.Prepared()) != 0 || rows(b) != 1 || !b.Executed().Equal(gtid.SetOf(g(1, 1, 3))) {
			t.Errorf("follower, clean %t: prepared %v, executed %v", clean, b.Prepared(), b.Executed())
		}
	}
}

// XA COMMIT of an unknown xid stops the applier (section 4).
func TestUnknownXID(t *testing.T) {
	a, b := leader(t), follower(t)
	run(t, a, Stmt{Kind: XAPrepare, XID: "x", Rows: []uint64{1}})
	a.Ack(a.End())
	b.Plug(gtid.SetOf(g(1, 1, 1)))
	run(t, a, Stmt{Kind: XACommit, XID: "x"})
	feed(t, a, b)
	if b.Apply(0); !errors.Is(b.ApplyError(), ErrUnknownXID) {
		t.Fatal(b.ApplyError())
	}
}

// What the applier has prepared is ended by a leader's session without being logged; AdoptXA cures that
// (mysqld.Admin.AdoptXA).
func TestAdoptXA(t *testing.T) {
	for _, adopt := range []bool{false, true} {
		a, b := leader(t), follower(t)
		run(t, a, Stmt{Kind: XAPrepare, XID: "x", Rows: []uint64{1}})
		feed(t, a, b)
		b.Apply(0)
		if adopt {
			if err := b.AdoptXA(b.Prepared()); err != nil {
				t.Fatal(err)
			}
		}
		b.SetSemiSync(true)
		b.SetReadOnly(false)
		before := b.End()
		run(t, b, Stmt{Kind: XACommit, XID: "x"})
		if logged := before.Less(b.End()); logged != adopt || rows(b) == 1 == adopt {
			t.Errorf("adopted %t: logged %t, %d rows", adopt, logged, rows(b))
		}
		if !adopt {
			continue
		}
		b.Crash(b.Records(), never)
		b.Start(uuid(2, 2), false)
		if len(b.Prepared()) != 1 || b.Executed().Contains(g(1, 1, 1)) {
			t.Errorf("after a restart: prepared %v, executed %v", b.Prepared(), b.Executed())
		}
	}
}

// Plugging marks GTIDs as executed; the feed then skips them (section 4).
func TestPlug(t *testing.T) {
	a, b := leader(t), follower(t)
	run(t, a, Stmt{Kind: CreateTable, Table: 3})
	b.Plug(gtid.SetOf(g(1, 1, 1)))
	feed(t, a, b)
	if _, there := b.Row(3, 1); there || b.Backlog() != 0 {
		t.Error("it ran")
	}
}

// CLONE copies data and gtid_executed, but nothing of the applier's XA; it waits for a donor with waiters (sections 4
// and 7).
func TestClone(t *testing.T) {
	a, b := leader(t), follower(t)
	insert(t, a, 1)
	run(t, a, Stmt{Kind: XAPrepare, XID: "x", Rows: []uint64{2}})
	c := New(3)
	if c.Clone(a) {
		t.Fatal("cloned from a server with waiters")
	}
	a.Ack(a.End())
	feed(t, a, b)
	b.Apply(0)
	b.Apply(0)
	if !c.Clone(b) {
		t.Fatal("not cloned")
	}
	c.Start(uuid(3, 1), false)
	if rows(c) != 1 || len(c.Prepared()) != 0 || !c.Executed().Equal(gtid.SetOf(g(1, 1, 1))) {
		t.Errorf("%d rows, prepared %v, executed %v", rows(c), c.Prepared(), c.Executed())
	}
	c.Crash(0, always)
	c.Start(uuid(3, 2), false)
	if rows(c) != 1 {
		t.Error("the copy is not on disk")
	}
}

// Every statement reads back as it was written.
func TestCodec(t *testing.T) {
	for _, st := range []Stmt{{Kind: Insert, Table: 4, Rows: []uint64{1, 1 << 60}}, {Kind: CreateTable, Table: 7},
		{Kind: DropIfExists, Table: 8}, {Kind: Account, User: 3}, {Kind: XAPrepare, XID: "x1", Rows: []uint64{9}},
		{Kind: XACommit, XID: "x1"}, {Kind: XARollback, XID: "x1"}, {Kind: Analyze}} {
		x := Trx{GTID: g(1, 2, 3), Stmt: st, HasXID: st.Kind == Account || st.Kind == CreateTable}
		var b []byte
		for _, ev := range x.events(1) {
			b = append(b, ev...)
		}
		got, err := Decode(b)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(x) {
			t.Errorf("%v: %v, %v", x, got, err)
		}
	}
}
