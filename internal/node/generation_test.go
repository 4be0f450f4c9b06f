package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/binlog"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/gtid"
	"trireme/internal/raftlog"
)

// atRest is a node without any running part, whose log has entries of certain terms: a barrier, then a transaction each.
func atRest(t *testing.T, id uint64, terms ...uint64) *Node {
	t.Helper()
	n := newTestNode(t, as(id))
	openTestLog(t, n)
	var ents []*raftpb.Entry
	var before uint64
	pos := raftlog.Pos{File: 1, Off: 4}
	for i, term := range terms {
		m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: term, Start: pos}
		if term != before {
			pos = raftlog.Pos{File: 1, Off: 4}
			m = raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: term, Start: pos}
		} else {
			pos.Off += 100
			m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, term)}, GNO: int64(i + 1)})
		}
		m.End, before = pos, term
		ents = append(ents, &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(term), Data: append(raftlog.AppendMeta(nil, &m), make([]byte, 100)...)})
	}
	if err := errors.Join(n.rlog.SetHardState(&raftpb.HardState{Term: new(before), Vote: new(id)}), n.rlog.Append(ents), n.rlog.Sync()); err != nil {
		t.Fatal(err)
	}
	return n
}

// A node goes over to a generation that names it, if its log ends where that begins or before. Any other one is left behind for good.
func TestBarsFollowing(t *testing.T) {
	gen := func(change func(*config.Generation)) *config.Generation {
		g := &config.Generation{Number: 2, ID: 77, Source: 2, Base: 4, BaseTerm: 2, Commit: 2, Members: []uint64{1, 2}, At: time.Unix(1e9, 0), By: "root@h"}
		change(g)
		return g
	}
	for name, c := range map[string]struct {
		terms []uint64
		gen   *config.Generation
		why   string
	}{
		"the same log":             {[]uint64{1, 1, 2, 2}, gen(func(*config.Generation) {}), ""},
		"a shorter one":            {[]uint64{1, 1, 2}, gen(func(*config.Generation) {}), ""},
		"longer, of an older term": {[]uint64{1, 1, 1, 1, 1, 1}, gen(func(*config.Generation) {}), ""},
		"longer":                   {[]uint64{1, 1, 2, 2, 2}, gen(func(*config.Generation) {}), "goes beyond"},
		"of a later term":          {[]uint64{1, 3}, gen(func(*config.Generation) {}), "goes beyond"},
		"given up":                 {[]uint64{1}, gen(func(g *config.Generation) { g.Members = []uint64{2, 3} }), "it was given up"},
		"two generations later":    {[]uint64{1}, gen(func(g *config.Generation) { g.Number, g.Parent = 3, 76 }), "belongs to generation 1"},
	} {
		n := atRest(t, 1, c.terms...)
		why, err := n.barsFollowing(c.gen)
		if err != nil || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}

// A node that was left behind names what it holds beyond the cluster, and never starts again.
func TestLeave(t *testing.T) {
	base := config.Generation{Number: 2, ID: 77, Source: 2, Base: 4, BaseTerm: 2, Commit: 2, Members: []uint64{2}, At: time.Unix(1e9, 0), By: "root@h"}
	for name, c := range map[string]struct {
		terms []uint64
		says  string
	}{
		"nothing more":   {[]uint64{1, 1, 2, 2}, "holds nothing beyond"},
		"longer":         {[]uint64{1, 1, 2, 2, 2, 2}, "000000000002:5-6 (entries 5 to 6;"},
		"of two lives":   {[]uint64{1, 1, 2, 2, 2, 4, 4}, "000000000002:5,00000000-0000-8005-8001-000000000004:7 (entries 5 to 7;"},
		"another branch": {[]uint64{1, 1, 3, 3}, "000000000003:4 (entries 3 to 4;"},
	} {
		n := atRest(t, 1, c.terms...)
		err := n.giveUp(&base, "it was given up")
		if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "given up by force-quorum") || !errors.Is(err, ErrFinal) {
			t.Errorf("%s: %v", name, err)
		}
		again := n.openGeneration()
		if again == nil || again.Error() != err.Error() {
			t.Errorf("%s: at the next start: %v", name, again)
		}
	}
}

// What was decided and not carried out is when the daemon starts; a torn write of the decision is none.
func TestDecisionSurvivesTheDaemon(t *testing.T) {
	n := atRest(t, 2, 1, 1, 2, 2)
	if err := n.openGeneration(); err != nil || n.generation != nil {
		t.Fatal(err, n.generation)
	}
	if err := n.carryOutTakeover(); err != nil {
		t.Fatal(err)
	}
	if err := n.rlog.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1); err != nil {
		t.Fatal(err)
	}
	s := decided(t, n)
	if err := s.save(n.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(n.openGeneration(), n.carryOutTakeover()); err != nil {
			t.Fatal(err)
		}
		_, cs, _ := n.rlog.InitialState()
		if last, _ := n.rlog.LastIndex(); last != s.Takeover.End() || len(cs.GetVoters()) != 1 || n.generation.NumberOf() != 2 {
			t.Fatalf("last %d, %v, generation %d", last, cs, n.generation.NumberOf())
		}
		if got := len(n.history.all()); got != 1 {
			t.Fatalf("%d events", got)
		}
	}
}

func decided(t *testing.T, n *Node) *generationState {
	t.Helper()
	takeover, err := consensus.PlanTakeover(n.rlog, 0, 3, nil, consensus.ForcedConf{Voters: []uint64{2}})
	if err != nil {
		t.Fatal(err)
	}
	return &generationState{Generation: &config.Generation{Number: 2, ID: 77, Source: 2, Base: 4, BaseTerm: 2, Members: []uint64{2}}, Takeover: takeover,
		Event: &api.Event{Time: time.Unix(1e9, 1), Kind: "force-quorum", Term: 3, Message: "root@h made generation 2"}}
}

// The time of the last write is that of the last transaction, whatever else follows it in the log.
func TestLastWrite(t *testing.T) {
	n := atRest(t, 1, 1, 1, 1)
	if at := n.lastWrite(1, 3); !at.IsZero() {
		t.Errorf("%v, of bytes that are no events", at)
	}
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 1, Start: raftlog.Pos{File: 1, Off: 204}}
	ev := binlog.AppendEvent(nil, binlog.Header{Timestamp: 1700000001, Type: binlog.TypeRowsQuery}, make([]byte, 20))
	m.End = raftlog.Pos{File: 1, Off: 204 + uint64(len(ev))}
	ents := []*raftpb.Entry{{Index: new(uint64(4)), Term: new(uint64(1)), Data: append(raftlog.AppendMeta(nil, &m), ev...)}, {Index: new(uint64(5)), Term: new(uint64(1))}}
	if err := errors.Join(n.rlog.Append(ents), n.rlog.Sync()); err != nil {
		t.Fatal(err)
	}
	if at := n.lastWrite(1, 5); at.Unix() != 1700000001 {
		t.Errorf("%v", at)
	}
	if at := n.lastWrite(5, 5); !at.IsZero() {
		t.Errorf("%v, though that entry is gone", at)
	}
}

// runRaft runs the raft of a node at rest, one of three voters.
func runRaft(t *testing.T, n *Node) {
	t.Helper()
	if err := n.rlog.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1); err != nil {
		t.Fatal(err)
	}
	startTestRaft(t, n, nil)
}

// What was begun in an older term is refused.
func TestStillTerm(t *testing.T) {
	n := atRest(t, 1, 1, 1, 2)
	runRaft(t, n)
	if err := n.stillTerm(2); err != nil {
		t.Error(err)
	}
	if err := n.stillTerm(1); err == nil || !strings.Contains(err.Error(), "it is term 2, not 1") {
		t.Error(err)
	}
}
