package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// registerPart reads, writes and compares-and-sets rows of one value each, one autocommit statement at a time through the
// read-write address, and checks that what its clients saw is linearizable.
type registerPart struct {
	set     *Set
	history history[RegisterOp]
	value   atomic.Int64 // the last one that was given to a write
}

const (
	// registerKeys are in use at one time, for registerTurn; then come new ones. So the history of one key is short, which the
	// time to check it hangs on.
	registerKeys = 3
	registerTurn = 5 * time.Second
)

func (p *registerPart) name() string { return "register" }

func (p *registerPart) schema() []string {
	return []string{"CREATE TABLE " + p.set.cfg.Database + ".registers (k BIGINT PRIMARY KEY, v BIGINT NOT NULL)"}
}

func (p *registerPart) clients() []client {
	var out []client
	for i := range p.set.cfg.Clients {
		seen := map[int64]int64{} // the value that this client saw last, of each key in use
		out = append(out, p.set.loop(p.set.cfg.Login, nil, p.set.cfg.Rate, p.set.random(p.name(), i), func(s *session, rng *rand.Rand) error {
			return p.step(s, rng, i, seen)
		}))
	}
	return out
}

// step does one operation. A compare-and-set expects what this client saw last, which another one may have changed.
func (p *registerPart) step(s *session, rng *rand.Rand, id int, seen map[int64]int64) error {
	turn := p.set.now() / int64(registerTurn)
	op := RegisterOp{Span: Span{Client: id}, Key: turn*registerKeys + rng.Int64N(registerKeys), Kind: ReadRegister}
	for k := range seen {
		if k < turn*registerKeys {
			delete(seen, k)
		}
	}
	choice := rng.IntN(10)
	switch old := seen[op.Key]; {
	case choice < 5:
	case choice < 8 || old == 0: // there is no row to compare with while the value is 0
		op.Kind, op.Value = WriteRegister, p.value.Add(1)
	default:
		op.Kind, op.Value, op.Old = SwapRegister, p.value.Add(1), old
	}
	op.Begin = p.set.now()
	err := op.run(s)
	op.End, op.Outcome = p.set.now(), commitOutcome(err)
	if errors.Is(err, errGarbled) {
		return err
	}
	if op.Outcome == Acked && (op.Kind != SwapRegister || op.Swapped) {
		seen[op.Key] = op.Value
	}
	if op.Kind != ReadRegister {
		p.set.measure(op.Span)
	}
	return p.history.add(op)
}

// run sends the operation's statement and fills in what it told.
func (op *RegisterOp) run(s *session) error {
	switch op.Kind {
	case WriteRegister:
		return s.exec("INSERT INTO registers VALUES (?, ?) ON DUPLICATE KEY UPDATE v = ?", op.Key, op.Value, op.Value)
	case SwapRegister:
		n, err := s.change("UPDATE registers SET v = ? WHERE k = ? AND v = ?", op.Value, op.Key, op.Old)
		op.Swapped = n > 0
		return err
	}
	rows, err := s.query("SELECT v FROM registers WHERE k = ?", op.Key)
	if err != nil || len(rows) == 0 {
		return err // no row: 0
	}
	v, ok := rows[0][0].(int64)
	if !ok {
		return fmt.Errorf("%w: register %d holds %v", errGarbled, op.Key, rows[0][0])
	}
	op.Value = v
	return nil
}

func (p *registerPart) counts() Counts { return p.history.counts() }

// ackedWrites counts what changed something: reads alone would leave nothing to check.
func (p *registerPart) ackedWrites() (n int64) {
	for _, op := range p.history.ops {
		if op.Outcome == Acked && (op.Kind == WriteRegister || op.Swapped) {
			n++
		}
	}
	return n
}

func (p *registerPart) finish(context.Context) error { return nil }

func (p *registerPart) collect(context.Context, []Endpoint) error { return nil }

func (p *registerPart) judge() Part { return JudgeRegisters(p.history.ops, p.set.cfg.StaleMargin) }

func (p *registerPart) save(dir string) error { return p.history.saveTo(dir, "register.jsonl") }

func (p *registerPart) load(dir string) error { return p.history.loadFrom(dir, "register.jsonl") }
