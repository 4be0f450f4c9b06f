package campaign

import (
	"path/filepath"
	"testing"
	"time"

	"trireme/lab/verify"
)

// TestStalls: what is demanded while a majority is whole, and what a fault excuses.
func TestStalls(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	gap := func(from, to float64) verify.Gap { return verify.Gap{From: at(from), To: at(to)} }
	hit := func(from, to float64, hosts ...string) hurt {
		h := hurt{what: "isolate leader", hosts: hosts, from: at(from), limit: 10 * time.Second}
		if to > 0 {
			h.to = at(to)
		}
		return h
	}
	three, five := []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3", "n4", "n5"}
	loggers := []string{"n1", "l1", "l2"}
	for _, c := range []struct {
		name   string
		voters []string
		hurts  []hurt
		gaps   []verify.Gap
		want   int
	}{
		{"nothing stops", three, []hurt{hit(10, 25, "n1")}, []verify.Gap{gap(10, 12), gap(25, 26)}, 0},
		{"a failover in time", three, []hurt{hit(10, 25, "n1")}, []verify.Gap{gap(9.9, 19)}, 0},
		{"two in time, each within its limit", three, []hurt{hit(10, 25, "n1")}, []verify.Gap{gap(10, 19), gap(20, 29)}, 0},
		{"no majority", three, []hurt{hit(10, 60, "n1", "n2")}, []verify.Gap{gap(10, 65)}, 0},
		{"no majority for two faults at once", three, []hurt{hit(10, 60, "n1"), hit(10, 60, "n2")}, []verify.Gap{gap(10, 65)},
			0},
		{"everybody", five, []hurt{hit(10, 60, five...)}, []verify.Gap{gap(10, 69)}, 0},
		{"a majority of loggers has no data", loggers, []hurt{hit(10, 60, "n1")}, []verify.Gap{gap(10, 65)}, 0},
		{"one fault after the other", three, []hurt{hit(10, 19, "n1"), hit(19, 28, "n1")}, []verify.Gap{gap(10, 27)}, 0},

		{"a stall that ends with the partition", three, []hurt{hit(10, 25, "n1")}, []verify.Gap{gap(10.1, 25)}, 1},
		{"one that ends shortly after it", three, []hurt{hit(10, 25, "n1")}, []verify.Gap{gap(10.1, 26)}, 1},
		{"one in the middle of a fault", three, []hurt{hit(10, 60, "n1")}, []verify.Gap{gap(20, 31)}, 1},
		{"one that goes on after the fault", three, []hurt{hit(10, 12, "n1")}, []verify.Gap{gap(10, 23)}, 1},
		{"one of a fault that goes on", three, []hurt{hit(10, 0, "n1")}, []verify.Gap{gap(10, 21)}, 1},
		{"two of five", five, []hurt{hit(10, 60, "n1", "n2")}, []verify.Gap{gap(10, 21)}, 1},
		{"two of five, by two faults", five, []hurt{hit(10, 60, "n1"), hit(10, 60, "n2")}, []verify.Gap{gap(10, 21)}, 1},
		{"once a majority is back", three, []hurt{hit(10, 20, "n1", "n2"), hit(10, 60, "n1")}, []verify.Gap{gap(10, 31)}, 1},
		{"a fault that stops no client", three, []hurt{hit(10, 10.1)}, []verify.Gap{gap(10, 21)}, 1},
		{"without any fault", three, nil, []verify.Gap{gap(10, 15.1)}, 1},
		{"long after a fault, its limit holds", three, []hurt{hit(10, 12, "n1")}, []verify.Gap{gap(40, 51)}, 1},
		{"two stalls", three, []hurt{hit(10, 60, "n1")}, []verify.Gap{gap(10, 21), gap(22, 33)}, 2},
	} {
		got := stalls(c.voters, []string{"n1", "n2", "n3", "n4", "n5"}, c.hurts, c.gaps)
		if len(got) != c.want {
			t.Errorf("%s: %v, want %d", c.name, got, c.want)
		}
		for _, s := range got {
			if s.to.Sub(s.from) <= s.limit || 2*len(s.whole) <= len(c.voters) || len(s.faults) == 0 {
				t.Errorf("%s: %v", c.name, s)
			}
		}
	}
}

// TestSleepAfterFullDisk: a leader's commit sleeps on when its disk has room again and the next fault is there, whose
// own limit is shorter.
func TestSleepAfterFullDisk(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	for _, c := range []struct {
		whom     Whom
		from, to float64
		want     int
	}{
		{Leader, 14.5, 21.6, 0}, {Leader, 14.5, 30, 1}, {Leader, 74, 81, 1}, {Follower, 14.5, 21.6, 1},
	} {
		full := strike{fault: Fault{Kind: DiskFull, Whom: c.whom}, whom: c.whom, hosts: []string{"n1"}, at: at(10),
			ended: at(12)}
		hurts := full.hurts()
		hurts[1].to = at(13) // it was seen healthy
		hurts = append(hurts, hurt{what: "disk-error follower", hosts: []string{"n2"}, from: at(14), limit: quietLimit})
		got := stalls([]string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3"}, hurts,
			[]verify.Gap{{From: at(c.from), To: at(c.to)}})
		if len(got) != c.want {
			t.Errorf("%s, %v to %v: %v, want %d", c.whom, c.from, c.to, got, c.want)
		}
	}
}

// TestLongStallsAreKept: of those that are not judged too, but not all of a campaign that has many.
func TestLongStallsAreKept(t *testing.T) {
	c := campaign{dir: t.TempDir()}
	b := batch{campaign: &c}
	from := time.Unix(1000, 0)
	b.keepLong(stall{from: from, to: from.Add(longStall - time.Second)})
	if c.kept != "" {
		t.Error("a short one was kept")
	}
	for range mostLong + 2 {
		b.keepLong(stall{from: from, to: from.Add(longStall)})
	}
	kept, err := filepath.Glob(filepath.Join(c.kept, "stall*"))
	if err != nil || len(kept) != mostLong {
		t.Errorf("%v were kept in %q: %v", kept, c.kept, err)
	}
}

// TestOverdue: who copies another's data counts as not whole for as long as faults keep hitting the donor.
func TestOverdue(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	other := hurt{what: "isolate-in leader", from: at(40), to: at(52)}
	for _, c := range []struct {
		name   string
		copies bool
		now    int
		want   bool
	}{
		{"a fault", false, 60, false},
		{"a fault, for too long", false, 61, true},
		{"a copy that began again", true, 61, false},
		{"a copy, for too long after the last fault", true, 113, true},
	} {
		h := hurt{what: "recovery from reseed follower", from: at(0), copy: c.copies}
		if got := h.overdue([]hurt{h, other}, at(c.now)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
