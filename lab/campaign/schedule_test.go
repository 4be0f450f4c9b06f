package campaign

import (
	"reflect"
	"testing"
)

func deal(seed uint64, of []Kind, n int) []Step {
	s := NewSchedule(seed, of)
	var out []Step
	for range n {
		out = append(out, s.Next())
	}
	return out
}

// TestSchedule: it is a function of seed and kinds, and another seed gives another one.
func TestSchedule(t *testing.T) {
	all, err := Kinds(nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		a, b := deal(seed, all, 300), deal(seed, all, 300)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d deals two different sequences", seed)
		}
		if reflect.DeepEqual(a, deal(seed+1, all, 300)) {
			t.Errorf("seeds %d and %d deal the same", seed, seed+1)
		}
	}
	if reflect.DeepEqual(deal(1, all, 50), deal(1, all[:5], 50)) {
		t.Error("fewer kinds deal the same")
	}
}

// TestScheduleCoversAll: every kind comes among the first so many faults, whatever the seed, each role of each kind in
// the long run, alone and together with another, and leader kills, partitions and power losses in the proportions that
// are wanted of them.
func TestScheduleCoversAll(t *testing.T) {
	all, _ := Kinds(nil)
	for seed := range uint64(200) {
		seen := map[Kind]bool{}
		faults := 0
		for s := NewSchedule(seed, all); faults < len(all); {
			for _, f := range s.Next().Faults {
				seen[f.Kind] = true
				faults++
			}
		}
		if len(seen) < len(all)-1 { // the last one may be the second of a pair that was put back
			t.Errorf("seed %d: only %d of %d kinds among the first %d faults", seed, len(seen), len(all), faults)
		}
	}
	roles, classes, demanded := map[string]int{}, map[class]int{}, map[string]bool{}
	demands, lasting := 0, 0
	pairs, lags, healthy, leaders := 0, 0, 0, 0
	steps := deal(7, all, 5000)
	for i, s := range steps {
		if s.Number != i+1 || len(s.Faults) == 0 || len(s.Faults) > 2 {
			t.Fatalf("step %d: %+v", i+1, s)
		}
		if len(s.Faults) == 2 {
			pairs++
			if s.Faults[0].Kind == s.Faults[1].Kind {
				t.Errorf("%v: the same kind twice", s)
			}
			if s.Faults[1].Lag > 0 {
				lags++
			}
		}
		if s.Rest == UntilHealthy {
			healthy++
		}
		for _, f := range s.Faults {
			k := kindOf(f.Kind)
			roles[string(f.Kind)+" "+string(f.Whom)]++
			classes[k.class]++
			if k.class == classKill && f.Whom != Follower && f.Whom != Logger {
				leaders++
			}
			if k.whole && (!s.Whole || f.Lag > 0 && !kindOf(s.Faults[0].Kind).whole) {
				t.Errorf("%v: it cannot be made where nodes are not healthy", s)
			}
			if k.heavy && s.Rest == UntilWrites {
				t.Errorf("%v: the next fault does not wait for a system that can stand it", s)
			}
			if f.demands() {
				demands++
				demanded[string(f.Kind)+" "+string(f.Whom)] = true
				if !s.Whole || f.Whom == Majority || f.Whom == All || f.Hold > k.limit(f.Whom)+demandMost {
					t.Errorf("%v demands writes", f)
				}
			} else if f.Hold < k.hold[0] || f.Hold > k.hold[1] {
				t.Errorf("%v lasts outside of %v", f, k.hold)
			}
			if k.hold[1] > 0 && f.Whom != Majority && f.Whom != All {
				lasting++
			}
		}
	}
	for _, k := range kinds {
		for _, w := range k.whom {
			if roles[string(k.name)+" "+string(w)] == 0 {
				t.Errorf("%s never hits: %s", k.name, w)
			}
			if k.hold[1] > 0 && w != Majority && w != All && !demanded[string(k.name)+" "+string(w)] {
				t.Errorf("%s of a %s never lasts so long that writes must go on meanwhile", k.name, w)
			}
		}
	}
	if pairs < len(steps)/20 || pairs > len(steps)/4 || lags < pairs/3 || lags > pairs*2/3 || healthy < len(steps)/40 ||
		healthy > len(steps)/10 {
		t.Errorf("%d pairs, %d of them with a lag, and %d waits for health in %d steps", pairs, lags, healthy, len(steps))
	}
	if demands < lasting/5 || demands > lasting/3 {
		t.Errorf("writes are demanded of %d of %d faults", demands, lasting)
	}
	// 2,000 leader kills, 500 partitions, 300 power losses
	if p, l := classes[classPartition], classes[classPower]; leaders*500 > p*2000*2 || p*2000 < leaders*500 ||
		l*2000 < leaders*300 {
		t.Errorf("%d kills of leaders, %d partitions, %d power losses", leaders, p, l)
	}
}

func TestKinds(t *testing.T) {
	if got, err := Kinds([]string{"power", "kill-host"}); err != nil || len(got) != 2 || got[0] != Power {
		t.Error(got, err)
	}
	for _, bad := range [][]string{{"kill"}, {"power", "power"}, {""}} {
		if got, err := Kinds(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}
