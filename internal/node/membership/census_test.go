package membership

import (
	"strings"
	"testing"

	"trireme/internal/core/ledger"
)

// testCensus reads "1 2 3- 4l 5L": voters with healthy data, - one that is down, ? one whose data is not ready, l a
// logger, L a learner with healthy data.
func testCensus(text string, whole bool) Census {
	c := Census{ledger.Census{Nodes: map[uint64]ledger.CensusNode{}, Whole: whole}}
	for i, f := range strings.Fields(text) {
		s := ledger.CensusNode{Name: "n" + f[:1], Voter: true, Live: true, Data: true, Ready: true}
		for _, flag := range f[1:] {
			switch flag {
			case '-':
				s.Live, s.Ready = false, false
			case '?':
				s.Ready = false
			case 'l':
				s.Data, s.Ready = false, false
			case 'L':
				s.Voter = false
			}
		}
		c.Nodes[uint64(i+1)] = s
	}
	return c
}

// TestMayLeave: a vote is given up only if the rest has a quorum and every majority of it holds the data (S8).
func TestMayLeave(t *testing.T) {
	for _, tt := range []struct {
		nodes string
		id    uint64
		whole bool   // the log begins at its first entry
		why   string // "" may leave
	}{
		{"1 2 3", 3, false, ""},
		{"1 2 3-", 3, false, ""},
		{"1 2 3-", 2, false, "1 of the other 2 voters answer, 2 are needed"},
		{"1 2- 3-", 3, false, "there is no quorum now"},
		{"1", 1, false, "the only voter"},
		{"1 2", 2, false, ""},
		{"1 2-", 2, false, "there is no quorum now"},
		{"1 2 3 4", 4, false, ""},
		{"1 2 3 4-", 3, false, ""},
		{"1 2l 3l", 1, false, "no other voter than n1 has healthy data"},
		{"1 2l 3l", 3, false, ""},
		{"1 2? 3l", 1, false, "no other voter than n1 has healthy data"},
		{"1 2 3 4l 5l", 3, false, ""},
		{"1 2 3l 4l", 2, false, "data of n2 is needed"}, // the two loggers would be a majority
		{"1 2 3l 4l", 2, true, ""},
		{"1 2 3l", 2, false, ""},
		{"1 2 3? 4l 5l", 2, false, ""},
		{"1 2 3? 4l 5?", 2, false, ""}, // no worse than before
		{"1 2 3L", 3, false, ""},
	} {
		err := testCensus(tt.nodes, tt.whole).mayLeave(nil, []uint64{tt.id})
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s, node %d, whole log %t: %v, want %q", tt.nodes, tt.id, tt.whole, err, tt.why)
		}
	}
}

// TestMayMove: the same of several votes at once, for which others come.
func TestMayMove(t *testing.T) {
	for _, tt := range []struct {
		nodes   string
		in, out []uint64
		why     string
	}{
		{"1 2 3-", nil, []uint64{2, 3}, ""},
		{"1 2 3- 4L", []uint64{4}, []uint64{3}, ""},
		{"1 2 3- 4L", []uint64{4}, []uint64{2}, ""}, // no worse than now
		{"1 2 3- 4L", []uint64{4}, []uint64{1, 2}, "1 of the other 2 voters answer"},
		{"1 2 3 4L 5L 6L", []uint64{4, 5, 6}, []uint64{1, 2, 3}, ""},
		{"1 2 3 4L 5L? 6L?", []uint64{4, 5, 6}, []uint64{1, 2, 3}, "the data of n1 n2 n3 is needed"},
		{"1 2 3", nil, []uint64{1, 2, 3}, "are all voters"},
		{"1 2- 3- 4L 5L", []uint64{4, 5}, []uint64{2, 3}, "there is no quorum now"},
	} {
		err := testCensus(tt.nodes, false).mayLeave(tt.in, tt.out)
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s, in %v, out %v: %v, want %q", tt.nodes, tt.in, tt.out, err, tt.why)
		}
	}
}

// TestKeptWithout: data is thrown away only if every majority of the voters still holds it.
func TestKeptWithout(t *testing.T) {
	for _, tt := range []struct {
		nodes string
		id    uint64
		whole bool
		kept  bool
	}{
		{"1 2 3", 3, false, true},
		{"1 2- 3", 3, false, false},
		{"1 2- 3", 3, true, true},
		{"1 2 3l", 2, false, false},
		{"1 2 3 4l 5l", 3, false, false},
		{"1 2 3 4 5l", 4, false, true},
		{"1 2 3L", 3, false, true},
	} {
		if kept := testCensus(tt.nodes, tt.whole).KeptWithout(tt.id); kept != tt.kept {
			t.Errorf("%s, node %d, whole log %t: kept %t", tt.nodes, tt.id, tt.whole, kept)
		}
	}
}
