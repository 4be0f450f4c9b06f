package ha

import (
	"testing"
	"time"
)

func TestFlowDelay(t *testing.T) {
	for _, c := range []struct{ objective, backlog, least, most time.Duration }{
		{0, time.Hour, 0, 0},
		{4 * time.Second, time.Second, 0, 0},
		{4 * time.Second, 1300 * time.Millisecond, 1 * time.Millisecond, 1 * time.Millisecond},
		{4 * time.Second, 2500 * time.Millisecond, 125 * time.Millisecond, 125 * time.Millisecond},
		{4 * time.Second, 4 * time.Second, maxFlowDelay, maxFlowDelay},
		{4 * time.Second, time.Hour, maxFlowDelay, maxFlowDelay},
	} {
		if d := FlowDelay(c.objective, c.backlog).Round(time.Millisecond); d < c.least || d > c.most {
			t.Errorf("objective %v, backlog %v: %v", c.objective, c.backlog, d)
		}
	}
}

// TestLaggard: whose backlog counts, one look each half a second, of a mysqld that applies 1000 bytes a second.
func TestLaggard(t *testing.T) {
	const objective = 4 * time.Second
	type phase struct {
		looks    int
		writes   uint64 // bytes at each look
		applies  uint64 // at each look, if there is as much
		sick     bool
		never    bool // it must not ask in this phase
		asksLast bool // it must at its last look
	}
	keepsUp := phase{looks: 10, writes: 500, applies: 500, never: true}
	fallsBehind := phase{looks: 10, writes: 700, applies: 500, asksLast: true} // 2 s in the end
	for name, phases := range map[string][]phase{
		"keeps up":     {keepsUp},
		"falls behind": {keepsUp, fallsBehind, {looks: 10, applies: 500}, keepsUp},
		"comes back": {{looks: 1, writes: 3 << 20, applies: 1 << 20, sick: true, never: true},
			{looks: 10, writes: 0, applies: 500, never: true}},
		"is seeded": {keepsUp, fallsBehind, {looks: 5, writes: 700, applies: 500, sick: true, never: true},
			{looks: 2, writes: 500, applies: 500, never: true}},
		"stands still": {keepsUp, fallsBehind, {looks: 2, writes: 500}, {looks: 6, writes: 500, never: true}},
		"goes on": {keepsUp, fallsBehind, {looks: 2, writes: 500}, {looks: 2, writes: 500, never: true},
			{looks: 1, applies: 500, asksLast: true}},
		"is not to be helped": {keepsUp, {looks: 30, writes: 1500, applies: 500},
			{looks: 20, writes: 1500, applies: 500, never: true}, {looks: 40, applies: 500, never: true}},
		"is helped again later": {keepsUp, {looks: 50, writes: 1500, applies: 500}, {looks: 100, applies: 500, never: true},
			{looks: 2, writes: 500, applies: 500, never: true}, fallsBehind},
		"was idle": {keepsUp, {looks: 100, never: true}, fallsBehind},
	} {
		var (
			f               Laggard
			now             = time.Hour
			committed, left uint64
		)
		for i, p := range phases {
			for k := range p.looks {
				now += 500 * time.Millisecond
				committed, left = committed+p.writes, left+p.writes
				left -= min(left, p.applies)
				left = max(left, 1) // something is always under way
				got := f.Ask(now, objective, committed, left, !p.sick)
				if got != 0 && p.never || got == 0 && p.asksLast && k == p.looks-1 {
					t.Errorf("%s, phase %d, look %d: asks for %v, %d bytes left (%+v)", name, i, k, got, left, f)
				}
			}
		}
	}
	var off Laggard
	if off.Ask(time.Second, 0, 5000, 5000, true) != 0 || off.Ask(2*time.Second, 0, 9000, 8000, true) != 0 {
		t.Error("without an objective")
	}
}

// TestFlowModel runs sessions that write as fast as they get their OKs against a follower that applies less. The
// backlog stays below the objective, writers are slowed down no more than the follower requires, and a follower that
// keeps up costs nothing.
func TestFlowModel(t *testing.T) {
	const (
		tick  = 20 * time.Millisecond
		look  = 200 * time.Millisecond
		heard = 160 * time.Millisecond // from a look to the leader's delay
		alone = 5 * time.Millisecond   // a commit without delay
		run   = 2 * time.Minute
		size  = 1000 // bytes of a transaction
	)
	for _, c := range []struct {
		objective time.Duration
		sessions  float64
		applies   float64 // transactions per second; the leader can five times as many
	}{
		{2 * time.Second, 16, 1000}, {5 * time.Second, 16, 1000}, {5 * time.Second, 64, 5000}, {10 * time.Second, 256, 1000},
		{5 * time.Second, 16, 100}, {30 * time.Second, 64, 1000}, {5 * time.Second, 4, 2000}, {3 * time.Second, 2000, 3000},
	} {
		var (
			f              Laggard
			total, applied float64
			asks           []time.Duration // at each tick
			most           time.Duration
			settled        float64
		)
		for at := time.Duration(0); at < run; at += tick {
			delay := time.Duration(0)
			if k := len(asks) - int(heard/tick); k >= 0 {
				delay = FlowDelay(c.objective, asks[k])
			}
			total += min(c.sessions/(alone+delay).Seconds(), 5*c.applies) * tick.Seconds()
			applied = min(applied+c.applies*tick.Seconds(), total)
			ask := time.Duration(0)
			if len(asks) > 0 {
				ask = asks[len(asks)-1]
			}
			if at%look == 0 {
				ask = f.Ask(time.Hour+at, c.objective, uint64(total*size), uint64((total-applied)*size), true)
			}
			asks = append(asks, ask)
			most = max(most, time.Duration((total-applied)/c.applies*float64(time.Second)))
			if at == run/3 {
				settled = total
			}
		}
		rate := (total - settled) / (run - run/3).Seconds()
		could := min(c.applies, c.sessions/alone.Seconds())
		if most > c.objective+c.objective/10 || rate < 0.97*could {
			t.Errorf("%+v: a backlog of at most %v, %.0f of %.0f transactions per second", c, most, rate, could)
		}
	}
}
