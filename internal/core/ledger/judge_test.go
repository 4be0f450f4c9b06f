package ledger

import (
	"strings"
	"testing"

	"trireme/internal/mysql/gtid"
)

// testSID is the stream of a dead incarnation of node n.
func testSID(n uint16, incarnation uint64) gtid.SID {
	return gtid.SID{UUID: gtid.IncarnationUUID(7, n, incarnation)}
}

// testLog reads a log, one entry a line:
//
//	plain 1-5      a run of row transactions (or a single one)
//	traceless 6    a single QUERY without XID, or an account statement that changed nothing
//	prepare 7 x    XA PREPARE 'x'
//	end 8 x        XA COMMIT 'x' or XA ROLLBACK 'x'
//
// A GTID is "n" of incarnation a, or "b:n" of incarnation b, and so on. Entries have the indexes 11, 12, …; a line that
// begins with + is in the same entry as the one above it.
func testLog(t *testing.T, text string) []Txn {
	t.Helper()
	classes := map[string]Class{"plain": Plain, "traceless": Traceless, "prepare": XAPrepare, "end": XAEnd}
	var log []Txn
	index := uint64(10)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0] == "+" {
			f = f[1:]
		} else {
			index++
		}
		class, ok := classes[f[0]]
		rs := testSet(t, f[1]).Ranges()
		if !ok || len(rs) != 1 {
			t.Fatalf("bad line %q", line)
		}
		x := Txn{Index: index, GTIDs: rs[0], Class: class}
		if len(f) > 2 {
			x.XID = f[2]
		}
		log = append(log, x)
	}
	return log
}

// testSet reads "1-5 7 b:3": GTIDs of incarnations a (the default), b, … of node 1.
func testSet(t *testing.T, text string) gtid.Set {
	t.Helper()
	var s gtid.Set
	for f := range strings.FieldsSeq(text) {
		name, gnos, ok := strings.Cut(f, ":")
		if !ok {
			name, gnos = "a", f
		}
		one, err := gtid.ParseSet(testSID(1, uint64(name[0]-'a'+1)).String() + ":" + gnos)
		if err != nil {
			t.Fatal(err)
		}
		s.AddSet(one)
	}
	return s
}

func scanOf(log []Txn) ScanFunc {
	return func(_ gtid.Set, f func(Txn) error) error {
		for _, x := range log {
			if err := f(x); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name     string
		log      string
		purged   string // committed, no longer in the log
		executed string
		xids     string // in XA RECOVER
		durable  uint64
		local    string // incarnations, by letter, that never led
		base     string // the part of purged with which the cluster began
		inherits string // what came with another node's data and is not in the log

		plug, refeed, isLocal, errant, missing string
		high                                   uint64
		// what is missing is no longer in the log, and nothing else is wrong
		behind bool
	}{
		{name: "everything", log: "plain 1-5", executed: "1-5"},
		{name: "nothing yet", log: "plain 1-5\ntraceless 6\nprepare 7 x"},
		{name: "a prefix", log: "plain 1-5\nplain 6\nplain 7", executed: "1-6", high: 12},
		{name: "a prefix that ends in a run", log: "plain 1-5\nplain 6", executed: "1-3", high: 11},
		{name: "a prefix over two incarnations", log: "plain 1-5\nplain b:1-3\nplain b:4", executed: "1-5 b:1", high: 12},

		{name: "traceless below", log: "plain 1\ntraceless 2\nplain 3", executed: "1 3", plug: "2", high: 13},
		{name: "traceless above", log: "plain 1\ntraceless 2\nplain 3", executed: "1", high: 11},
		{name: "traceless below, in the same entry", log: "plain 1\n+ traceless 2\n+ plain 3", executed: "1 3", plug: "2",
			high: 11},
		{name: "traceless above, in the same entry", log: "plain 1\n+ traceless 2\n+ plain 3", executed: "1", high: 11},
		{name: "traceless at both ends", log: "traceless 1\nplain 2\ntraceless 3", executed: "2", plug: "1", high: 12},
		{name: "below is by place in the log, not by number", log: "plain b:1\ntraceless 1\nplain a:2", executed: "b:1 2",
			plug: "1", high: 13},
		{name: "above although its number is lower", log: "plain 5\ntraceless 1\nplain 6", executed: "5", high: 11},
		{name: "only traceless ones are lost", log: "traceless 1\ntraceless 2\nplain 3\ntraceless 4\nplain 5\nplain 6",
			executed: "3 5", plug: "1-2 4", high: 15},

		{name: "a plain hole", log: "plain 1\nplain 2\nplain 3", executed: "1 3", missing: "2", high: 13},
		{name: "a hole in a run", log: "plain 1-5", executed: "1-2 4", missing: "3", high: 11},
		{name: "two holes in a run, and its tail", log: "plain 1-9\nplain 10", executed: "2 4-5", missing: "1 3", high: 11},
		{name: "a tail that turns out to be a hole", log: "plain 1-5\nplain 6", executed: "1-3 6", missing: "4-5", high: 12},
		{name: "a whole run is a hole", log: "plain 1-5\nplain 6-9", executed: "6", missing: "1-5", high: 12},
		{name: "one hole of many is enough", log: "plain 1\nplain 2\nplain 3\nplain 4", executed: "4", missing: "1",
			high: 14},
		{name: "a hole after a plugged one", log: "traceless 1\nplain 2\nplain 3", executed: "3", plug: "1", missing: "2",
			high: 13},
		{name: "a missing XA COMMIT below", log: "prepare 1 x\nend 2 x\nplain 3", executed: "1 3", missing: "2", high: 13},

		// XA PREPARE: followers lose its trace at any restart.
		{name: "XA finished here", log: "prepare 1 x\nplain 2\nend 3 x\nplain 4", executed: "2-3", plug: "1", high: 13},
		{name: "XA alive here", log: "prepare 1 x\nplain 2", executed: "2", xids: "x", plug: "1", high: 12},
		{name: "XA alive here, at the very top", log: "plain 1\nprepare 2 x\nend 3 x", executed: "1", xids: "x", plug: "2",
			high: 11},
		{name: "XA unfinished and lost", log: "prepare 1 x\nplain 2", executed: "2", refeed: "1", high: 12},
		{name: "XA whose end is not executed", log: "prepare 1 x\nplain 2\nend 3 x", executed: "2", refeed: "1", high: 12},
		{name: "XA above", log: "plain 1\nprepare 2 x\nend 3 x", executed: "1", high: 11},
		{name: "XA finished here by its own end only", log: "prepare 1 x\nend 2 x\nprepare 3 x\nplain 4\nend 5 x",
			executed: "2 4", plug: "1", refeed: "3", high: 14},
		{name: "two of them, other names", log: "prepare 1 x\nprepare 2 y\nend 3 y\nplain 4", executed: "3-4", plug: "2",
			refeed: "1", high: 14},
		{name: "the one in XA RECOVER is the first, not the next of that name",
			log:      "plain 1\nprepare 2 x\nend 3 x\nprepare 4 x\nend 5 x",
			executed: "1-2", xids: "x", high: 12},
		{name: "nor when the first has lost its trace", log: "prepare 1 x\nplain 2\nend 3 x\nprepare 4 x", executed: "2",
			xids: "x", plug: "1", high: 12},
		{name: "the one in XA RECOVER is the second", log: "prepare 1 x\nend 2 x\nprepare 3 x\nplain 4", executed: "2 4",
			xids: "x", plug: "1 3", high: 14},

		// Durable index: what is at or below it ran.
		{name: "plain, durable", log: "plain 1\nplain 2\nplain 3", executed: "3", durable: 12, plug: "1-2", high: 13},
		{name: "durable with nothing executed above", log: "plain 1\nplain 2\nplain 3", durable: 12, plug: "1-2"},
		{name: "the hole above it", log: "plain 1\nplain 2\nplain 3", executed: "3", durable: 11, plug: "1", missing: "2",
			high: 13},
		{name: "traceless, durable", log: "traceless 1\nplain 2", durable: 11, plug: "1"},
		{name: "XA unfinished, durable", log: "prepare 1 x\nplain 2", durable: 12, executed: "2", refeed: "1", high: 12},
		{name: "XA finished, durable", log: "prepare 1 x\nend 2 x\nplain 3", durable: 13, executed: "3", plug: "1-2",
			high: 13},
		{name: "XA with its end above", log: "prepare 1 x\nplain 2\nend 3 x", durable: 12, executed: "2", refeed: "1",
			high: 12},

		{name: "purged and executed", purged: "1-100", log: "plain 101", executed: "1-100"},
		{name: "purged and lost", purged: "1-100", log: "plain 101\nplain 102", executed: "1-99 101", missing: "100",
			high: 11, behind: true},
		{name: "purged and lost, but durable", purged: "1-10", log: "plain 11\nplain 12", executed: "2-4 6-11", durable: 10,
			plug: "1 5", high: 11},
		{name: "purged beyond the durable index", purged: "1-10", log: "plain 11\nplain 12", executed: "2-11", durable: 9,
			missing: "1", high: 11, behind: true},
		{name: "purged, and lags far", purged: "1-100", log: "plain 101", executed: "1-50", missing: "51-100", behind: true},
		{name: "purged and empty", purged: "1-100", log: "plain 101", missing: "1-100", behind: true},
		{name: "lags far, with local statements", purged: "1-100", log: "plain 101", executed: "1-50 b:1", local: "b",
			missing: "51-100", isLocal: "b:1", behind: true},
		{name: "lags far and divergent", purged: "1-100", log: "plain 101", executed: "1-50 b:1", missing: "51-100",
			errant: "b:1"},
		{name: "a hole below what the log still has", purged: "1-100", log: "plain 101\nplain 102", executed: "1-50 101",
			missing: "51-100", high: 11, behind: true},
		{name: "holes on both sides of where the log begins", purged: "1-100", log: "plain 101\nplain 102",
			executed: "1-50 102", missing: "51-101", high: 12},

		{name: "adopted, nothing lost", base: "1-10", purged: "1-10", log: "plain 11", executed: "1-10", high: 0},
		{name: "adopted, a part of the base was never here", base: "1-10", purged: "1-10", log: "plain 11", executed: "1-9",
			durable: 10, missing: "10", behind: true},
		{name: "adopted, an empty node", base: "1-10", purged: "1-10", log: "plain 11", durable: 0, missing: "1-10",
			behind: true},
		{name: "adopted, the log was purged since", base: "1-5", purged: "1-10", log: "plain 11", executed: "1-5 7-10",
			durable: 10, plug: "6"},
		{name: "adopted, with more than the base", base: "1-10", purged: "1-10", log: "plain 11", executed: "1-10 b:1",
			errant: "b:1"},
		{name: "adopted, the base is gone and the log is not", base: "1-10", purged: "1-10", log: "plain 11\nplain 12",
			executed: "11", durable: 10, missing: "1-10", high: 11},

		{name: "never committed", log: "plain 1-5", executed: "1-6", errant: "6"},
		{name: "never committed, of another stream", log: "plain 1-5", executed: "1-5 b:1", errant: "b:1"},
		{name: "a local statement of a dead life that never led", log: "plain 1-5", executed: "1-5 b:1-2", local: "b",
			isLocal: "b:1-2"},
		{name: "a copy of another node", log: "plain 1-5", executed: "1-5 b:1-2", inherits: "b:1-4", isLocal: "b:1-2"},
		{name: "a copy, and more than it brought", log: "plain 1-5", executed: "1-5 b:1-3", inherits: "b:1-2",
			isLocal: "b:1-2", errant: "b:3"},
		{name: "both", log: "plain 1-5\nplain 6", executed: "1-5 7 b:1", local: "b", isLocal: "b:1", errant: "7", high: 11},
		{name: "errant does not make holes", log: "plain 1\nplain 2", executed: "9", errant: "9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := testLog(t, tt.log)
			in := JudgeInput{Executed: testSet(t, tt.executed), Committed: testSet(t, tt.purged), Purged: testSet(t, tt.purged),
				Base: testSet(t, tt.base), PurgedTo: 10, Durable: tt.durable,
				Inherited: testSet(t, tt.inherits), XARecover: map[string]bool{}}
			for _, x := range log {
				in.Committed.AddRange(x.GTIDs)
			}
			for xid := range strings.FieldsSeq(tt.xids) {
				in.XARecover[xid] = true
			}
			in.Local = func(s gtid.Range) bool {
				_, _, inc, _ := gtid.ParseIncarnation(s.UUID)
				return strings.ContainsRune(tt.local, rune('a'+inc-1))
			}
			j, err := Judge(in, scanOf(log))
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []struct {
				name string
				got  gtid.Set
				want string
			}{{"plug", j.Plug, tt.plug}, {"refeed", j.Refeed, tt.refeed}, {"local", j.Local, tt.isLocal},
				{"errant", j.Errant, tt.errant}, {"missing", j.Missing, tt.missing}} {
				if want := testSet(t, part.want); !part.got.Equal(want) {
					t.Errorf("%s: got %q, want %q", part.name, part.got, want)
				}
			}
			if j.High != tt.high {
				t.Errorf("high: got %d, want %d", j.High, tt.high)
			}
			if j.Behind != tt.behind {
				t.Errorf("behind: got %t, want %t", j.Behind, tt.behind)
			}
			if want := tt.errant == "" && tt.missing == ""; j.Consistent() != want {
				t.Errorf("consistent: got %t, want %t", j.Consistent(), want)
			}
			if (len(j.Problems) > 0) == j.Consistent() {
				t.Errorf("consistent is %t, problems are %q", j.Consistent(), j.Problems)
			}
		})
	}
}

// TestJudgeForgetsLongBacklog: what the feed will bring anyway takes no room, however much it is.
func TestJudgeForgetsLongBacklog(t *testing.T) {
	b := bench{in: JudgeInput{}, open: map[string]int{}, claimed: map[string]bool{}}
	sid := testSID(1, 1)
	for i := range int64(10000) {
		if err := b.take(Txn{Index: uint64(i + 1), GTIDs: gtid.Range{SID: sid, First: i + 1, Last: i + 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.held) != 1 {
		t.Errorf("%d transactions are held", len(b.held))
	}
}

func TestTailOf(t *testing.T) {
	run := testSet(t, "1-9").Ranges()[0]
	for _, tt := range []struct {
		executed, part string
		want           bool
	}{{"1-3", "4-9", true}, {"1-3 9", "4-8", false}, {"4", "5-9", true}, {"4", "1-3", false}, {"", "1-9", true}} {
		if got := tailOf(testSet(t, tt.executed), run, testSet(t, tt.part).Ranges()[0]); got != tt.want {
			t.Errorf("executed %q, part %q: %t", tt.executed, tt.part, got)
		}
	}
}
