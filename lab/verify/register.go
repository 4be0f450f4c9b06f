package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"trireme/internal/ops/demo"
)

// registerPart reads, writes and compares-and-sets rows of one value each, one autocommit statement at a time through
// the read-write address, and checks that what its clients saw is linearizable.
type registerPart struct {
	set     *Set
	history history[RegisterOp]
	value   atomic.Int64 // the last one that was given to a write
	finals  []RegisterOp // what each node held at the end
	// journals are the values that each node has in its journal, and how often; end is when they were read.
	journals map[string]map[int64]int64
	end      int64
}

const (
	// registerKeys are in use at one time, for registerTurn; then come new ones. So the history of one key is short,
	// which the time to check it hangs on.
	registerKeys = 3
	registerTurn = 5 * time.Second
)

func (p *registerPart) name() string { return "register" }

func (p *registerPart) schema() []string {
	db := p.set.cfg.Database
	// Each write puts its value into a journal, so that what became of one without an answer can be looked up when its
	// value is overwritten.
	journal := "FOR EACH ROW INSERT INTO " + db + ".register_journal (k, v) VALUES (NEW.k, NEW.v)"
	return []string{"CREATE TABLE " + db + ".registers (k BIGINT PRIMARY KEY, v BIGINT NOT NULL)",
		"CREATE TABLE " + db +
			".register_journal (n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, k BIGINT NOT NULL, v BIGINT NOT NULL)",
		"CREATE TRIGGER " + db + ".register_insert AFTER INSERT ON " + db + ".registers " + journal,
		"CREATE TRIGGER " + db + ".register_update AFTER UPDATE ON " + db + ".registers " + journal}
}

func (p *registerPart) clients() []client {
	var out []client
	for i := range p.set.cfg.Clients {
		seen := map[int64]int64{} // the value that this client saw last, of each key in use
		out = append(out, p.set.loop(p.set.cfg.Login, nil, p.set.cfg.Rate, p.set.random(p.name(), i),
			func(s *session, rng *rand.Rand) error {
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
	var err error
	if op.Server, err = s.life(); err != nil {
		return nil // nothing was sent
	}
	op.Begin = p.set.now()
	err = op.run(s)
	op.End, op.Outcome = p.set.now(), op.outcome(err)
	if errors.Is(err, errGarbled) {
		return err
	}
	if op.Kind != ReadRegister && op.Outcome == Acked && !s.stillAt(op.Server) {
		op.Server = someServer
	}
	if op.Outcome == Acked && (op.Kind != SwapRegister || op.Swapped) {
		seen[op.Key] = op.Value
	}
	if op.Kind != ReadRegister {
		p.set.measure(op.Span)
	}
	return p.history.add(op)
}

// outcome by the answer. A read that was not answered has read nothing, whatever the error says.
func (op *RegisterOp) outcome(err error) Outcome {
	o := commitOutcome(err)
	if op.Kind == ReadRegister && o == Acked && err != nil {
		return Unknown
	}
	return o
}

// run sends the operation's statement and fills in what it told.
func (op *RegisterOp) run(s *session) error {
	switch op.Kind {
	case WriteRegister:
		return s.exec("INSERT INTO registers VALUES (?, ?) ON DUPLICATE KEY UPDATE v = ?", op.Key, op.Value, op.Value)
	case SwapRegister:
		n, err := s.change("UPDATE registers SET v = ? WHERE k = ? AND v = ?", op.Value, op.Key, op.Old)
		op.Swapped = n > 0 || demo.SaysCommitted(err) // a statement that changes nothing is not committed
		return err
	}
	rows, err := s.query("SELECT @@GLOBAL.server_uuid, (SELECT v FROM registers WHERE k = ?)", op.Key)
	if err != nil {
		return err
	}
	op.Server = fmt.Sprint(rows[0][0])
	s.server = op.Server
	if rows[0][1] == nil {
		return nil // no row: 0
	}
	v, ok := rows[0][1].(int64)
	if !ok {
		return fmt.Errorf("%w: register %d holds %v", errGarbled, op.Key, rows[0][1])
	}
	op.Value = v
	return nil
}

func (p *registerPart) counts() Counts { return p.history.counts() }

// ackedWrites counts what changed something: reads alone would leave nothing to check.
func (p *registerPart) ackedWrites() int64 {
	return p.history.count(RegisterOp.changed)
}

// collect reads every register on every node, also those that have no row there.
func (p *registerPart) collect(ctx context.Context, nodes []Endpoint) error {
	begin := p.set.now()
	held, err := eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (map[int64]int64, error) {
		return readPairs(ctx, db, "SELECT k, v FROM "+p.set.cfg.Database+".registers")
	})
	if err != nil {
		return err
	}
	p.journals, err = eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (map[int64]int64, error) {
		return readPairs(ctx, db, "SELECT v, COUNT(*) FROM "+p.set.cfg.Database+".register_journal GROUP BY v")
	})
	p.end = p.set.now()
	p.finals = finalReads(p.history.ops, held, begin, p.end)
	return err
}

// readPairs reads rows of two numbers.
func readPairs(ctx context.Context, db *sql.DB, query string) (map[int64]int64, error) {
	var k, v int64
	out := map[int64]int64{}
	err := eachRow(ctx, db, query, func() { out[k] = v }, &k, &v)
	return out, err
}

// finalReads makes what nodes hold reads of all keys that clients used or a node has.
func finalReads(ops []RegisterOp, nodes map[string]map[int64]int64, begin, end int64) []RegisterOp {
	keys := map[int64]bool{}
	for _, op := range ops {
		keys[op.Key] = true
	}
	for _, held := range nodes {
		for k := range held {
			keys[k] = true
		}
	}
	var out []RegisterOp
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			out = append(out, RegisterOp{Span: Span{Client: -1, Begin: begin, End: end, Outcome: Acked}, Key: k,
				Kind: ReadRegister, Value: nodes[node][k], Node: node})
		}
	}
	return out
}

func (p *registerPart) judge() Part {
	ops, unanswered, problems := resolveRegisters(p.history.ops, p.journals, p.end)
	v := JudgeRegisters(slices.Concat(ops, p.finals), p.set.cfg.StaleMargin)
	v.lookedUp(unanswered)
	v.Problems = append(v.Problems, problems...)
	return v
}

func (p *registerPart) save(dir string) error {
	return errors.Join(p.history.saveTo(dir, "register.jsonl"), saveLines(dir, "register.end.jsonl", p.finals),
		saveJSON(dir, "register.journal.json", map[string]any{"end": p.end, "nodes": p.journals}))
}
