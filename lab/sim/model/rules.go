package model

import (
	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
)

// The decisions of the real node: package ledger. A question is asked once and remembered, since the search comes by it
// often.

// verdict is the outcome of ledger.Judge.
type verdict struct {
	good bool
	plug uint8
}

// question is all that a verdict depends on.
type question struct {
	executed, inDoubt, against uint8
	purged, durable, n         uint8
	chosen                     [maxLog]entry
}

func (m *model) verdict(n *node, s *state, against uint8) verdict {
	q := question{executed: n.executed(), inDoubt: m.inDoubt(n), against: against, purged: s.purged, durable: n.durable,
		n: s.n, chosen: s.chosen}
	v, known := m.judged[q]
	if !known {
		v = m.ask(q)
		m.judged[q] = v
	}
	return v
}

// ask puts the question as a node would.
func (m *model) ask(q question) verdict {
	in := ledger.JudgeInput{Executed: setOf(q.executed), Committed: setOf(q.against),
		Purged: setOf(txs(q.chosen[:q.purged]) & q.against), PurgedTo: uint64(q.purged), Durable: uint64(q.durable),
		XARecover: map[string]bool{}, Local: func(gtid.Range) bool { return false }}
	for t := range m.Script {
		if q.inDoubt&(1<<t) != 0 {
			in.XARecover[m.xid(t)] = true
		}
	}
	j, err := ledger.Judge(in, func(_ gtid.Set, f func(ledger.Txn) error) error {
		for k, e := range q.chosen[:q.n] {
			if !e.isTx() || k < int(q.purged) || q.against&(1<<e.kind()) == 0 {
				continue
			}
			if err := f(m.txn(k, int(e.kind()))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return verdict{}
	}
	v := verdict{good: j.Consistent()}
	for t := range m.Script {
		if j.Plug.Contains(gtidOf(t)) {
			v.plug |= 1 << t
		}
	}
	return v
}

func (m *model) txn(k, t int) ledger.Txn {
	g := gtidOf(t)
	x := ledger.Txn{Index: uint64(k + 1), GTIDs: gtid.Range{SID: g.SID, First: g.GNO, Last: g.GNO}}
	switch m.Script[t] {
	case 'Q':
		x.Class = ledger.Traceless
	case 'P':
		x.Class, x.XID = ledger.XAPrepare, m.xid(t)
	case 'C':
		x.Class, x.XID = ledger.XAEnd, m.xid(m.other(t))
	}
	return x
}

func (m *model) xid(t int) string { return string(rune('a' + t)) }

func gtidOf(t int) gtid.GTID {
	return gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(1, 1, 1)}, GNO: int64(t + 1)}
}

func setOf(bits uint8) (set gtid.Set) {
	for t := range maxTxs {
		if bits&(1<<t) != 0 {
			set.Add(gtidOf(t))
		}
	}
	return set
}

// purge removes what no node needs for recovery (S8).
func (m *model) purge(s *state) bool {
	to := uint64(s.n)
	if !m.broken(S8) {
		var members ledger.Membership = [][]uint64{nil}
		var all []ledger.LogRetainer
		for i := range m.Nodes {
			n := &s.nodes[i]
			members[0] = append(members[0], uint64(i+1))
			all = append(all, ledger.LogRetainer{ID: uint64(i + 1), Data: true, Live: n.up, Ready: n.good(),
				Keep: uint64(n.keep)})
		}
		to, _ = ledger.PurgePoint(uint64(s.n), members, all)
	}
	if to <= uint64(s.purged) {
		return false
	}
	s.purged = uint8(to)
	return true
}
