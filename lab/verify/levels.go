package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// LevelOp is one write or read of a counter at a consistency level. Each counter is written by one client only,
// upwards.
type LevelOp struct {
	Span
	Key   int64 `json:"k"` // the client whose counter it is
	Write bool  `json:"w,omitempty"`
	Value int64 `json:"v"`
	// Before: the read shows all that anybody was answered before it began. After: of a write, that it is shown
	// everywhere when it is answered; of a read, that it shows what was answered so.
	Before bool `json:"before,omitempty"`
	After  bool `json:"after,omitempty"`
}

// NotCurrent is a read at BEFORE or AFTER that does not show what its level promises.
const NotCurrent Kind = "older than its level allows"

const workloadLevels = "levels"

// levels of the clients' sessions, in turn. The last one asks in each statement.
var sessionLevels = []string{"BEFORE", "AFTER", "BEFORE_AND_AFTER", ""}

// levelsPart: clients count upwards and read each other's counters at BEFORE, AFTER and both, asked for by session and
// by statement, on the splitting port and on the read-write one.
type levelsPart struct {
	set     *Set
	history history[LevelOp]
	held    map[string]map[int64]int64 // counters by node
}

func (p *levelsPart) name() string { return workloadLevels }

func (p *levelsPart) schema() []string {
	return []string{countersTable(p.set.cfg.Database, "leveled")}
}

func (p *levelsPart) clients() []client {
	if p.set.cfg.Split == nil {
		return []client{func(context.Context) error { return errors.New("there is no splitting port to connect to") }}
	}
	var out []client
	for i := range p.set.cfg.Clients {
		login := p.set.cfg.Login
		if i/len(sessionLevels)%2 == 0 {
			login.Addr = p.set.cfg.Split
		}
		c := &levelsClient{part: p, id: int64(i), level: sessionLevels[i%len(sessionLevels)]}
		var setup []string
		if c.level != "" {
			setup = []string{"SET @@trireme_consistency = '" + c.level + "'"}
		}
		out = append(out, p.set.loop(login, setup, p.set.cfg.Rate, p.set.random(p.name(), i), c.step))
	}
	return out
}

type levelsClient struct {
	part  *levelsPart
	id    int64
	level string // of its sessions; empty: each statement's own
	value int64  // the last one that it has tried to write
}

func (c *levelsClient) step(s *session, rng *rand.Rand) error {
	level, hint := c.level, ""
	if level == "" {
		level = sessionLevels[rng.IntN(len(sessionLevels)-1)]
		hint = "/*+ trireme_consistency(" + level + ") */ "
	}
	op := LevelOp{Span: Span{Client: int(c.id)}, Before: level != "AFTER", After: level != "BEFORE"}
	if rng.IntN(3) == 0 {
		return c.write(s, op, hint)
	}
	return c.read(s, op, hint, rng)
}

func (c *levelsClient) write(s *session, op LevelOp, hint string) error {
	c.value++
	op.Key, op.Write, op.Value, op.Begin = c.id, true, c.value, c.part.set.now()
	op.Outcome = s.countTo("leveled", hint, c.id, c.value)
	op.End = c.part.set.now()
	c.part.set.measure(op.Span)
	return c.part.history.add(op)
}

func (c *levelsClient) read(s *session, op LevelOp, hint string, rng *rand.Rand) error {
	op.Key, op.Begin = rng.Int64N(int64(c.part.set.cfg.Clients)), c.part.set.now()
	var err error
	op.Value, op.Outcome, err = s.counter("leveled", hint, op.Key)
	op.End = c.part.set.now()
	if err != nil {
		return err
	}
	return c.part.history.add(op)
}

func (p *levelsPart) counts() Counts { return p.history.counts() }

// ackedWrites leaves reads out.
func (p *levelsPart) ackedWrites() int64 {
	return p.history.count(func(op LevelOp) bool { return op.Write && op.Outcome == Acked })
}

// lack: reads that had nothing to show prove nothing.
func (p *levelsPart) lack() string {
	f := JudgeLevels(p.history.all(), nil).Figures
	for _, what := range []string{readsBefore, readsAfter} {
		if f[what] < leastPromised {
			return fmt.Sprintf("%d %s; %d are needed", f[what], what, leastPromised)
		}
	}
	return ""
}

func (p *levelsPart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	p.held, err = countersOf(ctx, nodes, p.set.cfg.Database, "leveled")
	return err
}

func (p *levelsPart) judge() Part {
	ops, unanswered, problems := p.set.committed.resolveLevels(p.history.ops, p.held)
	v := JudgeLevels(ops, p.held)
	v.lookedUp(unanswered)
	v.Problems = append(v.Problems, problems...)
	return v
}

// Figures of reads that had something to show.
const (
	readsBefore = "reads at BEFORE of what was answered before"
	readsAfter  = "reads at AFTER of what was answered at AFTER before"
)

// answered is the highest value of a counter that was acknowledged until then.
type answered struct{ end, value int64 }

// atLeast is the highest value that was acknowledged before a time, 0 for none; list is by time.
func atLeast(list []answered, begin int64) int64 {
	i, _ := slices.BinarySearchFunc(list, begin, func(a answered, t int64) int { return cmp.Compare(a.end, t) })
	if i == 0 {
		return 0
	}
	return list[i-1].value
}

// answeredBy lists what was acknowledged of each counter, by time, with values that only rise.
func answeredBy(ops []LevelOp, counts func(LevelOp) bool) map[int64][]answered {
	out := map[int64][]answered{}
	for _, op := range ops {
		if op.Write && op.Outcome == Acked && counts(op) {
			out[op.Key] = append(out[op.Key], answered{op.End, op.Value})
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b answered) int { return cmp.Compare(a.end, b.end) })
		for i := 1; i < len(list); i++ {
			list[i].value = max(list[i].value, list[i-1].value)
		}
	}
	return out
}

// JudgeLevels checks four things. A read at BEFORE shows everything that any client was answered before the read began,
// at whatever level it was written. A read at AFTER shows everything that was answered at AFTER before the read began.
// No read shows what no client had tried to write yet. At the end each node holds of each counter the last acknowledged
// value, or a later one that was tried.
func JudgeLevels(ops []LevelOp, nodes map[string]map[int64]int64) Part {
	p, found := Part{Figures: map[string]int64{}}, findings{}
	all := answeredBy(ops, func(LevelOp) bool { return true })
	after := answeredBy(ops, func(op LevelOp) bool { return op.After })
	begun, tried := map[int64]map[int64]int64{}, map[int64]int64{} // when each value was first tried, and the highest
	for _, op := range ops {
		if op.Write {
			if begun[op.Key] == nil {
				begun[op.Key] = map[int64]int64{}
			}
			begun[op.Key][op.Value], tried[op.Key] = op.Begin, max(tried[op.Key], op.Value)
		}
	}
	for _, op := range ops {
		if op.Write || op.Outcome != Acked {
			continue
		}
		at := time.Duration(op.Begin)
		check := func(asked bool, list []answered, figure, level string) {
			want := atLeast(list, op.Begin)
			if !asked || want == 0 {
				return
			}
			p.Figures[figure]++
			if op.Value < want {
				found.report(NotCurrent, "", Attempt{},
					"at %v client %d reads %d of client %d at %s, and %d was acknowledged before", at, op.Client, op.Value, op.Key,
					level, want)
			}
		}
		check(op.Before, all[op.Key], readsBefore, "BEFORE")
		check(op.After, after[op.Key], readsAfter, "AFTER")
		if op.Value != 0 {
			if begin, ok := begun[op.Key][op.Value]; !ok || begin > op.End {
				found.report(Resurrected, "", Attempt{}, "at %v client %d reads %d of client %d, which had not written that",
					at, op.Client, op.Value, op.Key)
			}
		}
	}
	acked := map[int64]int64{}
	for key, list := range all {
		acked[key] = list[len(list)-1].value
	}
	found.judgeCounters(nodes, tried, acked)
	p.Problems = found.all()
	return p
}

func (p *levelsPart) save(dir string) error {
	return errors.Join(p.history.saveTo(dir, "levels.jsonl"), saveJSON(dir, "levels.end.json", p.held))
}
