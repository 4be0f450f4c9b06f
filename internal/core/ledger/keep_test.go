package ledger

import (
	"strconv"
	"strings"
	"testing"
)

// testRetainers reads "1=500 2=700- 3=l400 4=?0 5=L300": id and what it keeps; - it is away, ? its data is not ready, l
// a logger, L a learner.
func testRetainers(t *testing.T, text string) (m Membership, all []LogRetainer) {
	t.Helper()
	m = Membership{nil}
	for _, f := range strings.Fields(text) {
		id, rest, _ := strings.Cut(f, "=")
		k := LogRetainer{Name: "n" + id, Data: true, Live: true, Ready: true}
		k.ID, _ = strconv.ParseUint(id, 10, 64)
		votes := true
		var digits strings.Builder
		for _, c := range rest {
			switch c {
			case '-':
				k.Live, k.Ready, k.Keep = false, false, 0
			case '?':
				k.Ready = false
			case 'l':
				k.Data, k.Ready = false, false
			case 'L':
				votes = false
			default:
				digits.WriteRune(c)
			}
		}
		if k.Live {
			k.Keep, _ = strconv.ParseUint(digits.String(), 10, 64)
		}
		if votes {
			m[0] = append(m[0], k.ID)
		}
		all = append(all, k)
	}
	return m, all
}

// TestPurgePoint: what is always kept (S8), and what a log at its bound may give up.
func TestPurgePoint(t *testing.T) {
	const commit = 900
	for _, tt := range []struct {
		nodes       string
		safe, bound uint64
		given       string
	}{
		{"1=500 2=700 3=600", 500, 500, ""},
		{"1=500 2=700 3=-", 0, 500, "n3"},
		{"1=500 2=-  3=-", 0, 0, ""},
		{"1=500 2=700 3=l400", 400, 500, ""},
		{"1=500 2=700 3=l-", 500, 500, ""}, // an absent logger does not hold back the purge
		{"1=500 2=- 3=l800", 0, 0, ""},     // with 2 gone for good, {2, 3} would have neither
		{"1=500 2=l800 3=l800", 500, 500, ""},
		{"1=- 2=l800 3=l800", 0, 0, ""},
		{"1=500 2=- 3=600 4=l800 5=l800", 0, 0, ""}, // {2, 4, 5}
		{"1=500 2=- 3=600 4=700 5=l800", 0, 500, "n2"},
		{"1=500 2=- 3=- 4=700 5=600", 0, 500, "n2 n3"},
		{"1=500 2=- 3=- 4=700 5=l800", 0, 0, ""},
		{"1=500 2=700 3=?0", 0, 500, "n3"}, // it is being seeded
		{"1=500 2=0 3=700", 0, 0, ""},      // prepared transactions
		{"1=500 2=700 3=600 4=L300", 300, 500, ""},
		{"1=500 2=700 3=600 4=L-", 500, 500, ""},
		{"1=500 2=700 3=600 4=L?0", 0, 500, ""},
		{"1=950", 900, 900, ""},
	} {
		m, all := testRetainers(t, tt.nodes)
		safe, pin := PurgePoint(commit, m, all)
		bound, given, boundPin := BoundPoint(commit, m, all)
		if safe != tt.safe || bound != tt.bound || strings.Join(given, " ") != tt.given {
			t.Errorf("%s: purge up to %d, at the bound up to %d giving up %v; want %d, %d, %s", tt.nodes, safe, bound, given,
				tt.safe, tt.bound, tt.given)
		}
		if safe == 0 && pin == "" || bound == 0 && boundPin == "" {
			t.Errorf("%s: no node is named: %q, %q", tt.nodes, pin, boundPin)
		}
	}
}

// TestPurgePointJoint: both halves of a joint configuration count.
func TestPurgePointJoint(t *testing.T) {
	_, all := testRetainers(t, "1=500 2=600 3=- 4=l800")
	if safe, given, _ := BoundPoint(900, Membership{{1, 2, 3}, {1, 2, 4}}, all); safe != 500 || len(given) != 1 {
		t.Errorf("%d, given up %v", safe, given)
	}
	if safe, given, pin := BoundPoint(900, Membership{{1, 2, 3}, {1, 3, 4}}, all); safe != 0 || pin == "" {
		t.Errorf("%d, given up %v", safe, given)
	}
	if safe, _ := PurgePoint(900, Membership{{1, 2, 4}, {3}}, all); safe != 0 {
		t.Errorf("purged up to %d although an outgoing voter is away", safe)
	}
}
