package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// txn writes a transaction short: "r1[1 2]" reads key 1, "a1:3" appends 3 to it, "r1!" tries to read it without
// success. Times are milliseconds.
func txn(begin, end int64, o Outcome, ops string) Txn {
	ms := int64(time.Millisecond)
	t := Txn{Span: Span{Begin: begin * ms, End: end * ms, Outcome: o}}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	for op := range strings.SplitSeq(ops, "; ") {
		if key, e, ok := strings.Cut(op, ":"); ok {
			t.Ops = append(t.Ops, ListOp{Key: number(key[1:]), Append: number(e)})
			continue
		}
		if key, ok := strings.CutSuffix(op, "!"); ok {
			t.Ops = append(t.Ops, ListOp{Key: number(key[1:]), Failed: true})
			continue
		}
		key, list, _ := strings.Cut(strings.TrimSuffix(op, "]"), "[")
		r := ListOp{Key: number(key[1:])}
		for _, e := range strings.Fields(list) {
			r.List = append(r.List, number(e))
		}
		t.Ops = append(t.Ops, r)
	}
	return t
}

// final is what a node holds at the end.
func final(node, ops string) Txn {
	t := txn(9000, 9001, Acked, ops)
	t.Node = node
	return t
}

func TestJudgeAppend(t *testing.T) {
	const margin = 100 * time.Millisecond
	for _, c := range []struct {
		name string
		txns []Txn
		rr   []Kind // problems at REPEATABLE READ
		ser  []Kind // and at SERIALIZABLE
	}{
		{"nothing", nil, nil, nil},
		{"one after the other", []Txn{txn(0, 1, Acked, "a1:1; r1[1]"), txn(2, 3, Acked, "r1[1]; a1:2; r1[1 2]"),
			final("n1", "r1[1 2]")}, nil, nil},
		{"without an answer, and there", []Txn{txn(0, 1, Unknown, "a1:1; a2:2"), txn(500, 501, Acked, "r1[1]; r2[2]"),
			final("n1", "r1[1]; r2[2]")}, nil, nil},
		{"without an answer, and there late", []Txn{txn(0, 1, Unknown, "a1:1"), txn(500, 501, Acked, "r1[]"),
			txn(600, 601, Acked, "r1[1]")}, nil, nil},
		{"without an answer, and not there", []Txn{txn(0, 1, Unknown, "a1:1"), txn(2, 3, Pending, "a1:2"),
			final("n1", "r1[]")}, nil, nil},
		{"refused, and not there", []Txn{txn(0, 1, Failed, "a1:1"), final("n1", "r1[]")}, nil, nil},
		{"an unanswered read says nothing", []Txn{txn(0, 1, Acked, "a1:1"), txn(500, 501, Failed, "r1[1]; a1:2; r1!"),
			final("n1", "r1[1]")}, nil, nil},
		{"what a refused one saw is a beginning", []Txn{txn(0, 1, Acked, "a1:1"), txn(2, 3, Failed, "r1[1]; a1:2; r1[1 2]"),
			txn(4, 5, Acked, "a1:3"), final("n1", "r1[1 3]")}, nil, nil},
		{"what one without an answer saw is a beginning", []Txn{txn(0, 1, Acked, "a1:1"), txn(2, 3, Unknown, "a1:2; r1[1 2]"),
			txn(4, 5, Unknown, "r1[1]; a1:3; r1[1 3]"), final("n1", "r1[1 3]")}, nil, nil},
		{"a refused one saw what has no answer and is there", []Txn{txn(0, 1, Unknown, "a1:1"), txn(2, 3, Failed, "r1[1]"),
			final("n1", "r1[1]")}, nil, nil},
		{"a refused one saw more than anybody else", []Txn{txn(0, 1, Unknown, "a1:1"), txn(2, 3, Failed, "r1[1]")}, nil, nil},
		{"at the same time", []Txn{txn(0, 9, Acked, "a1:1; r2[2]"), txn(0, 9, Acked, "a2:2; r1[]"),
			final("n1", "r1[1]; r2[2]")}, nil, nil},
		{"old within the margin", []Txn{txn(0, 1, Acked, "a1:1"), txn(50, 51, Acked, "r1[]"), final("n1", "r1[1]")}, nil,
			nil},

		{"G0 by interleaved appends", []Txn{txn(0, 9, Acked, "a1:1; a2:2"), txn(0, 9, Acked, "a1:3; a2:4"),
			final("n1", "r1[1 3]; r2[4 2]")},
			[]Kind{G0}, []Kind{G0}},
		{"G0 against its own order", []Txn{txn(0, 9, Acked, "a1:1; a1:2"), final("n1", "r1[2 1]")}, []Kind{G0, G1b},
			[]Kind{G0, G1b}},
		{"G1a", []Txn{txn(0, 1, Failed, "a1:1"), txn(2, 3, Acked, "r1[1]")}, []Kind{G1a}, []Kind{G1a}},
		{"refused, and there at the end", []Txn{txn(0, 1, Failed, "a1:1"), final("n1", "r1[1]")}, []Kind{G1a}, []Kind{G1a}},
		{"G1a by one that was refused itself", []Txn{txn(0, 1, Failed, "a1:1"), txn(2, 3, Failed, "r1[1]"),
			final("n1", "r1[]")}, []Kind{G1a}, []Kind{G1a}},
		{"G1a, a cut-off leader shows what had no answer", []Txn{txn(0, 1, Unknown, "a1:1"),
			txn(2, 3, Unknown, "r1[1]; a2:2"), final("n1", "r1[]")}, []Kind{G1a}, []Kind{G1a}},
		{"G1a, shown after its own lock", []Txn{txn(0, 1, Unknown, "a1:1"), txn(2, 3, Failed, "a1:2; r1[1 2]"),
			final("n1", "r1[]")}, []Kind{G1a}, []Kind{G1a}},
		{"G1a, shown to one that was committed", []Txn{txn(0, 1, Unknown, "a1:1"), txn(2, 3, Acked, "r1[1]"),
			final("n1", "r1[]")}, []Kind{G1a}, []Kind{G1a}},
		{"an order shown to a refused one only", []Txn{txn(0, 9, Acked, "a1:1"), txn(0, 9, Acked, "a1:2"),
			txn(10, 11, Failed, "r1[2]"), final("n1", "r1[1 2]")},
			[]Kind{Incompatible}, []Kind{Incompatible}},
		{"the same without an end", []Txn{txn(0, 9, Acked, "a1:1"), txn(0, 9, Acked, "a1:2"), txn(10, 11, Failed, "r1[2]"),
			txn(10, 11, Acked, "r1[1 2]")},
			[]Kind{Incompatible}, []Kind{Incompatible}},
		{"shown twice to a refused one", []Txn{txn(0, 1, Acked, "a1:1"), txn(2, 3, Failed, "r1[1 1]"), final("n1", "r1[1]")},
			[]Kind{Doubled, Incompatible}, []Kind{Doubled, Incompatible}},
		{"a read that does not repeat, refused later", []Txn{txn(0, 5, Acked, "a1:1"), txn(0, 9, Failed, "r1[]; r1[1]"),
			final("n1", "r1[1]")}, []Kind{Internal}, []Kind{Internal}},
		{"G1b", []Txn{txn(0, 9, Acked, "a1:1; a1:2"), txn(0, 9, Acked, "r1[1]"), final("n1", "r1[1 2]")},
			[]Kind{G1b, GSingle}, []Kind{G1b, GSingle}},
		{"G1c", []Txn{txn(0, 9, Acked, "a1:1; r2[2]"), txn(0, 9, Acked, "a2:2; r1[1]"), final("n1", "r1[1]; r2[2]")},
			[]Kind{G1c}, []Kind{G1c}},
		{"G1c by a write", []Txn{txn(0, 9, Acked, "a1:1; a2:2"), txn(0, 9, Acked, "a1:3; r2[2]; a2:4"),
			txn(0, 9, Acked, "a1:5; r2[2 4]"), final("n1", "r1[5 1 3]; r2[2 4]")},
			[]Kind{G1c}, []Kind{G1c}},
		{"G-single within a snapshot", []Txn{txn(0, 9, Acked, "a1:1; a2:2"), txn(0, 9, Acked, "r1[1]; r2[]"),
			final("n1", "r1[1]; r2[2]")},
			[]Kind{GSingle}, []Kind{GSingle}},
		{"lost update", []Txn{txn(0, 9, Acked, "r1[]; a1:1"), txn(0, 9, Acked, "r1[]; a1:2"), final("n1", "r1[1 2]")}, nil,
			[]Kind{GSingle, LostUpdate}},
		{"G-single by a write", []Txn{txn(0, 9, Acked, "a1:1; a2:2"), txn(0, 9, Acked, "r2[]; a1:3"),
			final("n1", "r1[1 3]; r2[2]")}, nil, []Kind{GSingle}},
		{"write skew", []Txn{txn(0, 9, Acked, "r1[]; a2:1"), txn(0, 9, Acked, "r2[]; a1:2"), final("n1", "r1[2]; r2[1]")},
			nil, []Kind{G2}},
		{"a list that grows once it is written to", []Txn{txn(0, 5, Acked, "a1:1"), txn(0, 9, Acked, "r1[]; a1:2; r1[1 2]"),
			final("n1", "r1[1 2]")},
			nil, []Kind{GSingle, Internal}},
		{"a read that does not repeat", []Txn{txn(0, 5, Acked, "a1:1"), txn(0, 9, Acked, "r1[]; r1[1]"),
			final("n1", "r1[1]")}, []Kind{Internal}, []Kind{Internal}},
		{"a lock that did not hold", []Txn{txn(0, 5, Acked, "a1:1"), txn(0, 9, Acked, "a1:2; r1[2]; r1[1 2]"),
			final("n1", "r1[1 2]")},
			[]Kind{Incompatible, Internal}, []Kind{Incompatible, Internal}},
		{"its own append not seen", []Txn{txn(0, 1, Acked, "a1:1; r1[]"), final("n1", "r1[1]")}, []Kind{Internal},
			[]Kind{Internal}},

		{"G1c in real time", []Txn{txn(0, 1, Acked, "r1[1]"), txn(500, 501, Acked, "a1:1"), final("n1", "r1[1]")},
			[]Kind{G1cRealtime}, []Kind{G1cRealtime}},
		{"written before an older one", []Txn{txn(0, 1, Acked, "a1:1"), txn(500, 501, Acked, "a1:2"), final("n1", "r1[2 1]")},
			[]Kind{G1cRealtime}, []Kind{G1cRealtime}},
		{"stale", []Txn{txn(0, 1, Acked, "a1:1"), txn(500, 501, Acked, "r1[]"), final("n1", "r1[1]")}, []Kind{GSingleReal},
			[]Kind{GSingleReal}},
		{"stale, and permitted otherwise", []Txn{txn(0, 1, Acked, "a1:1; a2:2"), txn(500, 501, Acked, "r2[]; a1:3"),
			final("n1", "r1[1 3]; r2[2]")},
			[]Kind{GSingleReal}, []Kind{GSingle}},
		{"long fork in real time", []Txn{txn(0, 900, Acked, "a1:1"), txn(0, 900, Acked, "a2:2"),
			txn(200, 201, Acked, "r1[1]; r2[]"), txn(400, 401, Acked, "r1[]; r2[2]"), final("n1", "r1[1]; r2[2]")},
			[]Kind{GSingleReal}, []Kind{G2}},

		{"write skew in real time", []Txn{txn(0, 1, Acked, "a2:1"), txn(0, 900, Acked, "r2[]; a1:2"),
			txn(200, 201, Acked, "r1[]"), final("n1", "r1[2]; r2[1]")},
			nil, []Kind{G2Realtime}},

		{"lost, as a later read shows", []Txn{txn(0, 1, Acked, "a1:1"), txn(500, 501, Acked, "r1[]")}, []Kind{Lost},
			[]Kind{Lost}},
		{"not read later", []Txn{txn(0, 1, Acked, "a1:1"), txn(50, 51, Acked, "r1[]"), txn(500, 501, Acked, "r2[]")}, nil,
			nil},
		{"lost on one node", []Txn{txn(0, 1, Acked, "a1:1"), final("n1", "r1[1]"), final("n2", "r1[]")}, []Kind{Lost},
			[]Kind{Lost}},
		{"lost everywhere", []Txn{txn(0, 1, Acked, "a1:1; a2:2"), final("n1", "r2[2]")}, []Kind{Lost}, []Kind{Lost}},
		{"half of it", []Txn{txn(0, 1, Unknown, "a1:1; a2:2"), final("n1", "r1[1]; r2[]")}, []Kind{Torn}, []Kind{Torn}},
		{"twice", []Txn{txn(0, 1, Acked, "a1:1"), final("n1", "r1[1 1]")}, []Kind{Doubled}, []Kind{Doubled}},
		{"two orders", []Txn{txn(0, 9, Acked, "a1:1"), txn(0, 9, Acked, "a1:2"), txn(3, 4, Acked, "r1[1 2]"),
			txn(5, 6, Acked, "r1[2]"), final("n1", "r1[1 2]")},
			[]Kind{Incompatible}, []Kind{Incompatible}},
		{"from nowhere", []Txn{txn(0, 1, Acked, "r1[5]")}, []Kind{NeverAppended}, []Kind{NeverAppended}},
		{"in the wrong list", []Txn{txn(0, 1, Acked, "a1:1"), final("n1", "r1[]; r2[1]")}, []Kind{NeverAppended},
			[]Kind{NeverAppended}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for level, want := range map[Level][]Kind{RepeatableRead: c.rr, Serializable: c.ser} {
				p := JudgeAppend(c.txns, level, margin)
				got := kinds(p.Problems)
				slices.Sort(want)
				if !slices.Equal(got, want) || len(p.Undecided) > 0 {
					t.Errorf("%s: found %q, want %q\n%v", level, got, want, p.Problems)
				}
			}
		})
	}
}

func TestStaleReadsOfListsHaveAnAge(t *testing.T) {
	p := JudgeAppend([]Txn{txn(0, 1, Acked, "a1:1"), txn(2, 3, Acked, "a1:2"), txn(50, 51, Acked, "r1[]"),
		final("n1", "r1[1 2]")}, Serializable, time.Second)
	if len(p.Stale) != 1 || p.Stale[0].Age != 49*time.Millisecond || len(p.Problems) > 0 {
		t.Fatalf("%+v", p)
	}
}

func TestProblemsOfOneKindAreBounded(t *testing.T) {
	var txns []Txn
	for i := range int64(100) {
		txns = append(txns, txn(i, i+1, Acked, fmt.Sprintf("a1:%d", i+1)))
	}
	p := JudgeAppend(append(txns, final("n1", "r1[]")), Serializable, 0)
	if len(p.Problems) != maxKindPrinted+1 || !strings.Contains(p.Problems[maxKindPrinted].Detail, "80 more") {
		t.Fatalf("%d problems, the last %v", len(p.Problems), p.Problems[len(p.Problems)-1])
	}
}

// innodb is a server that keeps to a level: snapshots and row locks as InnoDB has them, one statement at a time. A
// transaction that meets a lock is rolled back.
type innodb struct {
	rng     *rand.Rand
	level   Level
	now     int64
	element int64
	data    map[int64][]int64
	locks   map[int64]map[*openTxn]bool // who holds a lock on the key; true: an exclusive one
	fault   string                      // what it does wrong
	older   []map[int64][]int64         // states before
}

// openTxn is an open transaction.
type openTxn struct {
	txn      Txn
	left     int
	snapshot map[int64][]int64
	own      map[int64][]int64
}

func clone(m map[int64][]int64) map[int64][]int64 {
	out := map[int64][]int64{}
	for k, v := range m {
		out[k] = slices.Clone(v)
	}
	return out
}

// lock takes a lock for a session; false if another one is in the way.
func (db *innodb) lock(s *openTxn, key int64, exclusive bool) bool {
	if db.fault == "no locks" {
		return true
	}
	for other, x := range db.locks[key] {
		if other != s && (x || exclusive) {
			return false
		}
	}
	if db.locks[key] == nil {
		db.locks[key] = map[*openTxn]bool{}
	}
	db.locks[key][s] = db.locks[key][s] || exclusive
	return true
}

// statement runs one of a session; false: it was rolled back.
func (db *innodb) statement(s *openTxn) bool {
	key := db.rng.Int64N(3)
	if db.rng.IntN(2) == 0 {
		if !db.lock(s, key, true) {
			return false
		}
		db.element++
		s.own[key] = append(s.own[key], db.element)
		s.txn.Ops = append(s.txn.Ops, ListOp{Key: key, Append: db.element})
		return true
	}
	if db.level == Serializable && !db.lock(s, key, false) {
		return false
	}
	if s.snapshot == nil {
		s.snapshot = clone(db.data)
		if db.fault == "old snapshots" && len(db.older) > 4 {
			s.snapshot = db.older[len(db.older)-4]
		}
	}
	list := s.snapshot[key]
	if db.level == Serializable && db.fault != "old snapshots" || len(s.own[key]) > 0 {
		list = db.data[key]
	}
	s.txn.Ops = append(s.txn.Ops, ListOp{Key: key, List: append(slices.Clone(list), s.own[key]...)})
	return true
}

func (db *innodb) end(s *openTxn, commit bool) {
	if commit {
		db.older = append(db.older, clone(db.data))
		for key, own := range s.own {
			if db.fault == "loses appends" && db.rng.IntN(5) == 0 {
				continue
			}
			db.data[key] = append(db.data[key], own...)
		}
	}
	for _, holders := range db.locks {
		delete(holders, s)
	}
}

// run does some transactions of several clients, a few of them without an answer, and reads all at the end.
func (db *innodb) run(transactions int) []Txn {
	const clients = 4
	open := [clients]*openTxn{}
	var waiting []*openTxn
	var out []Txn
	for done := 0; done < transactions; {
		db.now += 1 + db.rng.Int64N(5)
		if len(waiting) > 0 && db.rng.IntN(10) == 0 { // an old commit comes through, or never does
			db.end(waiting[0], db.rng.IntN(2) == 0)
			waiting = waiting[1:]
		}
		c := db.rng.IntN(clients)
		s := open[c]
		switch {
		case s == nil:
			open[c] = &openTxn{txn: Txn{Span: Span{Client: c, Begin: db.now}}, left: 1 + db.rng.IntN(4),
				own: map[int64][]int64{}}
			continue
		case s.left > 0:
			s.left--
			if db.statement(s) {
				continue
			}
			s.txn.Outcome = Failed
			db.end(s, false)
		case db.rng.IntN(8) == 0:
			s.txn.Outcome = Unknown
			waiting = append(waiting, s)
		default:
			s.txn.Outcome = Acked
			db.end(s, true)
		}
		s.txn.End = db.now + 1
		out, open[c] = append(out, s.txn), nil
		done++
	}
	last := Txn{Span: Span{Begin: db.now + 5, End: db.now + 6, Outcome: Acked}, Node: "n1"}
	for key := range int64(3) {
		last.Ops = append(last.Ops, ListOp{Key: key, List: db.data[key]})
	}
	for _, s := range open { // cut
		if s != nil {
			s.txn.Outcome, s.txn.End = Unknown, db.now+1
			out = append(out, s.txn)
		}
	}
	return append(out, last)
}

func newInnodb(seed uint64, level Level, fault string) *innodb {
	return &innodb{rng: rand.New(rand.NewPCG(seed, 3)), level: level, fault: fault, data: map[int64][]int64{},
		locks: map[int64]map[*openTxn]bool{}}
}

func TestCorrectTransactionsAreNeverFlagged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		level := rapid.SampledFrom([]Level{RepeatableRead, Serializable}).Draw(t, "level")
		db := newInnodb(rapid.Uint64().Draw(t, "seed"), level, "")
		p := JudgeAppend(db.run(rapid.IntRange(1, 80).Draw(t, "transactions")), level, 0)
		if len(p.Problems) > 0 || len(p.Stale) > 0 || len(p.Undecided) > 0 {
			t.Fatalf("%v %v %v", p.Problems, p.Stale, p.Undecided)
		}
	})
}

// TestBrokenServersAreFlagged runs servers with one fault each. Each must be found in nearly every history, by what it
// breaks.
func TestBrokenServersAreFlagged(t *testing.T) {
	for _, c := range []struct {
		fault        string
		level, judge Level
		want         []Kind // one of these
	}{
		{"no locks", RepeatableRead, RepeatableRead, []Kind{G0, G1c, Internal, Incompatible}},
		{"loses appends", RepeatableRead, RepeatableRead, []Kind{Lost}},
		{"loses appends", Serializable, Serializable, []Kind{Lost}},
		{"old snapshots", RepeatableRead, RepeatableRead, []Kind{GSingleReal}},
		{"old snapshots", Serializable, Serializable, []Kind{GSingle, GSingleReal}},
		{"", RepeatableRead, Serializable, []Kind{GSingle, G2, LostUpdate}},
	} {
		found := 0
		for seed := range uint64(20) {
			got := kinds(JudgeAppend(newInnodb(seed, c.level, c.fault).run(150), c.judge, 0).Problems)
			if slices.ContainsFunc(got, func(k Kind) bool { return slices.Contains(c.want, k) }) {
				found++
			}
		}
		if found < 18 {
			t.Errorf("%q at %s judged as %s: found in %d of 20 histories", c.fault, c.level, c.judge, found)
		}
	}
}

// TestLargeHistoryIsJudgedInTime: real time must not cost a square of the history.
func TestLargeHistoryIsJudgedInTime(t *testing.T) {
	var txns []Txn
	for i := range int64(100_000) {
		key := i / 50
		if i%2 == 0 {
			txns = append(txns, Txn{Span: Span{Begin: 2 * i, End: 2*i + 1, Outcome: Acked},
				Ops: []ListOp{{Key: key, Append: i + 1}}})
			continue
		}
		var list []int64
		for e := key * 50; e < i; e += 2 {
			list = append(list, e+1)
		}
		txns = append(txns, Txn{Span: Span{Begin: 2 * i, End: 2*i + 1, Outcome: Acked},
			Ops: []ListOp{{Key: key, List: list}}})
	}
	begin := cpuTime(t)
	p := JudgeAppend(txns, Serializable, 0)
	if len(p.Problems) > 0 || len(p.Undecided) > 0 {
		t.Fatalf("%v %v", p.Problems, p.Undecided)
	}
	if d := cpuTime(t) - begin; d > 20*time.Second { // some 0.4 s, and ten times that with -race
		t.Fatalf("took %v of CPU time", d)
	}
}

// cpuTime is what this process has used: a busy machine does not change it.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
