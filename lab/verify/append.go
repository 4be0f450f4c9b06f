package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// appendPart runs transactions of one to four appends and reads of lists, at two isolation levels, each on lists of its
// own, and looks for anomalies in what they saw.
type appendPart struct {
	set     *Set
	levels  []*appendLevel
	element atomic.Int64 // the last one appended
}

// appendLevel is what ran at one isolation level.
type appendLevel struct {
	level   Level
	table   string
	history history[Txn]
	finals  []Txn // what each node held at the end
}

const (
	// appendKeys lists are in use at one time, for appendTurn; then come new ones, so that lists stay short.
	appendKeys = 4
	appendTurn = 5 * time.Second
)

func newAppendPart(s *Set) *appendPart {
	return &appendPart{set: s, levels: []*appendLevel{{level: RepeatableRead, table: "lists_rr"},
		{level: Serializable, table: "lists_ser"}}}
}

func (p *appendPart) name() string { return "append" }

func (p *appendPart) schema() []string {
	var stmts []string
	for _, l := range p.levels {
		stmts = append(stmts, fmt.Sprintf("CREATE TABLE %s.%s (k BIGINT PRIMARY KEY, v MEDIUMTEXT NOT NULL)",
			p.set.cfg.Database, l.table))
	}
	return stmts
}

func (p *appendPart) clients() []client {
	var out []client
	for i, l := range p.levels {
		for j := range max(2, p.set.cfg.Clients/len(p.levels)) {
			id := i*maxWriters + j
			setup := []string{"SET SESSION TRANSACTION ISOLATION LEVEL " + string(l.level)}
			out = append(out, p.set.loop(p.set.cfg.Login, setup, p.set.cfg.Rate, p.set.random(p.name(), id),
				func(s *session, rng *rand.Rand) error {
					return p.step(s, rng, id, l)
				}))
		}
	}
	return out
}

// step runs one transaction. What it appended and read before an error is part of the history: it was rolled back, or
// the outcome is unknown.
func (p *appendPart) step(s *session, rng *rand.Rand, id int, l *appendLevel) error {
	t := Txn{Span: Span{Client: id, Begin: p.set.now(), Outcome: Failed}}
	turn := t.Begin / int64(appendTurn)
	err := s.exec("BEGIN")
	for n := 1 + rng.IntN(4); n > 0 && err == nil; n-- {
		op := ListOp{Key: turn*appendKeys + rng.Int64N(appendKeys)}
		if rng.IntN(2) == 0 {
			op.Append = p.element.Add(1)
		}
		err = op.run(s, l.table)
		op.Failed = err != nil
		t.Ops = append(t.Ops, op)
	}
	if errors.Is(err, errGarbled) {
		return err
	}
	if err == nil {
		t.Outcome = commitOutcome(s.exec("COMMIT"))
	}
	t.End = p.set.now()
	if t.appends() {
		p.set.measure(t.Span)
	}
	return l.history.add(t)
}

// run sends the operation's statement and fills in what was read.
func (op *ListOp) run(s *session, table string) error {
	if op.Append != 0 {
		e := strconv.FormatInt(op.Append, 10)
		return s.exec("INSERT INTO "+table+" VALUES (?, ?) ON DUPLICATE KEY UPDATE v = CONCAT(v, ' ', ?)", op.Key, e, e)
	}
	rows, err := s.query("SELECT v FROM "+table+" WHERE k = ?", op.Key)
	if err != nil || len(rows) == 0 {
		return err
	}
	op.List, err = parseList(fmt.Sprint(rows[0][0]))
	return err
}

// errGarbled: a row holds what no client can have written.
var errGarbled = errors.New("garbled row")

func parseList(text string) ([]int64, error) {
	var out []int64
	for _, f := range strings.Fields(text) {
		e, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %q in a list", errGarbled, f)
		}
		out = append(out, e)
	}
	return out, nil
}

func (p *appendPart) counts() Counts {
	return p.levels[0].history.counts().plus(p.levels[1].history.counts())
}

// ackedWrites counts transactions that appended, of the level that has fewer.
func (p *appendPart) ackedWrites() int64 {
	least := int64(math.MaxInt64)
	for _, l := range p.levels {
		n := l.history.count(func(t Txn) bool { return t.Outcome == Acked && t.appends() })
		least = min(least, n)
	}
	return least
}

func (p *appendPart) collect(ctx context.Context, nodes []Endpoint) error {
	for _, l := range p.levels {
		begin := p.set.now()
		held, err := eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) ([]ListOp, error) {
			return readLists(ctx, db, p.set.cfg.Database+"."+l.table)
		})
		if err != nil {
			return err
		}
		l.finals = nil
		for _, n := range nodes {
			l.finals = append(l.finals, Txn{Span: Span{Begin: begin, End: p.set.now(), Outcome: Acked}, Ops: held[n.Name],
				Node: n.Name})
		}
	}
	return nil
}

func readLists(ctx context.Context, db *sql.DB, table string) (out []ListOp, err error) {
	var k int64
	var text string
	var garbled []error
	err = eachRow(ctx, db, "SELECT k, v FROM "+table+" ORDER BY k", func() {
		list, err := parseList(text)
		out, garbled = append(out, ListOp{Key: k, List: list}), append(garbled, err)
	}, &k, &text)
	return out, errors.Join(err, errors.Join(garbled...))
}

func (p *appendPart) judge() Part {
	var all Part
	all.Figures = map[string]int64{}
	for _, l := range p.levels {
		txns, unanswered, problems := p.set.committed.resolveAppends(l.table, l.history.ops)
		v := JudgeAppend(slices.Concat(txns, l.finals), l.level, p.set.cfg.StaleMargin)
		v.lookedUp(unanswered)
		v.Problems = append(v.Problems, problems...)
		for name, n := range v.Figures {
			if name == "stale reads" {
				all.Figures[name] += n
				continue
			}
			all.Figures[string(l.level)+" "+name] = n
		}
		for _, x := range v.Problems {
			x.Detail = string(l.level) + ": " + x.Detail
			all.Problems = append(all.Problems, x)
		}
		for _, u := range v.Undecided {
			all.Undecided = append(all.Undecided, string(l.level)+": "+u)
		}
		all.Stale = append(all.Stale, v.Stale...)
		all.OldestStale = max(all.OldestStale, v.OldestStale)
	}
	return all
}

func (p *appendPart) save(dir string) error {
	for _, l := range p.levels {
		if err := l.history.saveTo(dir, l.table+".jsonl"); err != nil {
			return err
		}
		if err := saveLines(dir, l.table+".end.jsonl", l.finals); err != nil {
			return err
		}
	}
	return nil
}
