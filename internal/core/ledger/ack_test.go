package ledger

import (
	"testing"

	"trireme/internal/core/raftlog"
)

func TestAck(t *testing.T) {
	a := Ack{Node: 2, Incarnation: 7, Serving: 5, Term: 5}
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 2, Incarnation: 7}
	if !a.Allows(5, &m) {
		t.Error("its own entry, in its own term, is not acknowledged")
	}
	for what, ack := range map[string]Ack{
		"another node's":             {Node: 1, Incarnation: 7, Serving: 5, Term: 5},
		"another life's":             {Node: 2, Incarnation: 8, Serving: 5, Term: 5},
		"the term has moved on":      {Node: 2, Incarnation: 7, Serving: 5, Term: 6},
		"it serves another term":     {Node: 2, Incarnation: 7, Serving: 6, Term: 6},
		"it does not serve any more": {Node: 2, Incarnation: 7, Term: 5},
	} {
		if ack.Allows(5, &m) {
			t.Errorf("%s: acknowledged", what)
		}
	}
}
