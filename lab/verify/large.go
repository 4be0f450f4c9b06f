package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
)

// LargeTrx inserts rows of some hundred KiB each and a small mark, and deletes the rows of the transaction largeKept
// before it, all in one.
type LargeTrx struct {
	Span
	Number int64 `json:"n"` // from 1, without gaps
	Rows   int   `json:"rows"`
}

// LargeRows is what a node holds of one: how many rows, and how many of them have the right contents.
type LargeRows struct {
	Rows  int  `json:"rows"`
	Right int  `json:"right"`
	Mark  bool `json:"mark,omitempty"` // its mark, which is never deleted: the transaction was committed
}

const (
	largeRow  = 512 << 10 // bytes
	largeKept = 3         // transactions whose rows stay
	// One in largeRate operations of the other clients' time is a large transaction: at 20 a second, one in 5 s.
	largeRate = 100
)

// largePart writes transactions of some MiB, now and then of tens of MiB. Each is there as a whole or not at all.
type largePart struct {
	set     *Set
	history history[LargeTrx]
	held    map[string]map[int64]LargeRows
}

func (p *largePart) name() string { return "large" }

func (p *largePart) schema() []string {
	return []string{"CREATE TABLE " + p.set.cfg.Database +
		".large_rows (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, n BIGINT NOT NULL, part INT NOT NULL, payload LONGTEXT NOT NULL, KEY (n))",
		"CREATE TABLE " + p.set.cfg.Database + ".large_marks (n BIGINT NOT NULL PRIMARY KEY)"}
}

func (p *largePart) clients() []client {
	number := int64(0)
	return []client{p.set.loop(p.set.cfg.Login, nil, p.set.cfg.Rate/largeRate, p.set.random(p.name(), 0),
		func(s *session, rng *rand.Rand) error {
			number++
			t := LargeTrx{Span: Span{Begin: p.set.now()}, Number: number, Rows: 2 + rng.IntN(15)} // 1 to 8 MiB
			if rng.IntN(5) == 0 {
				t.Rows = 32 + rng.IntN(33) // 16 to 32 MiB
			}
			t.Outcome = t.run(s)
			t.End = p.set.now()
			p.set.measure(t.Span)
			return p.history.add(t)
		})}
}

// largeLetter is what a row is made of.
func largeLetter(number int64, part int) byte { return 'a' + byte((number*7+int64(part))%26) }

func (t LargeTrx) run(s *session) Outcome {
	err := s.exec("BEGIN")
	for part := 0; part < t.Rows && err == nil; part++ {
		err = s.exec("INSERT INTO large_rows (n, part, payload) VALUES (?, ?, REPEAT(?, ?))", t.Number, part,
			string(largeLetter(t.Number, part)), largeRow)
	}
	if err == nil {
		err = s.exec("DELETE FROM large_rows WHERE n = ?", t.Number-largeKept)
	}
	if err == nil {
		err = s.exec("INSERT INTO large_marks VALUES (?)", t.Number)
	}
	if err != nil {
		return Failed // without a COMMIT nothing of an open transaction stays
	}
	return commitOutcome(s.exec("COMMIT"))
}

func (p *largePart) counts() Counts { return p.history.counts() }

func (p *largePart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	p.held, err = eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (map[int64]LargeRows, error) {
		return readLarge(ctx, db, p.set.cfg.Database)
	})
	return err
}

func readLarge(ctx context.Context, db *sql.DB, database string) (map[int64]LargeRows, error) {
	sums := map[byte]uint32{}
	for letter := byte('a'); letter <= 'z'; letter++ {
		sums[letter] = crc32.ChecksumIEEE(slices.Repeat([]byte{letter}, largeRow))
	}
	out := map[int64]LargeRows{}
	var n int64
	var part int
	var sum uint32
	err := eachRow(ctx, db, "SELECT n, part, CRC32(payload) FROM "+database+".large_rows", func() {
		l := out[n]
		l.Rows++
		if sum == sums[largeLetter(n, part)] {
			l.Right++
		}
		out[n] = l
	}, &n, &part, &sum)
	if err != nil {
		return nil, err
	}
	marks, err := readPairs(ctx, db, "SELECT n, 1 FROM "+database+".large_marks")
	for n := range marks {
		l := out[n]
		l.Mark = true
		out[n] = l
	}
	return out, err
}

func (p *largePart) judge() Part { return JudgeLarge(p.history.ops, p.held) }

// JudgeLarge checks that each large transaction is there as a whole or not at all, acknowledged ones until the one
// largeKept later has removed them. The mark of a transaction says whether it was committed, so that one without an
// answer explains nothing that it did not do. The transactions are those of one client, in order.
func JudgeLarge(all []LargeTrx, nodes map[string]map[int64]LargeRows) Part {
	p := Part{Figures: map[string]int64{}}
	outcome := map[int64]Outcome{}
	for _, t := range all {
		outcome[t.Number] = t.Outcome
		p.Figures["KiB"] += int64(t.Rows) * largeRow >> 10
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		held := nodes[node]
		report := func(k Kind, n int64, format string, args ...any) {
			p.Problems = append(p.Problems, Problem{Kind: k, Node: node, Detail: fmt.Sprintf("transaction %d: ", n) +
				fmt.Sprintf(format, args...)})
		}
		for _, t := range all {
			l, later := held[t.Number], t.Number+largeKept
			deleted := held[later].Mark
			switch {
			case (l.Mark || l.Rows > 0) && t.Outcome == Failed:
				report(Resurrected, t.Number, "was refused")
			case !l.Mark && l.Rows > 0:
				report(Torn, t.Number, "%d of %d rows, and not its mark", l.Rows, t.Rows)
			case !l.Mark && t.Outcome == Acked:
				report(Lost, t.Number, "neither its rows nor its mark")
			case deleted && l.Rows > 0 && outcome[later] == Acked:
				report(Resurrected, t.Number, "was deleted by transaction %d", later)
			case deleted && l.Rows > 0:
				report(Torn, later, "its mark is there, and rows of %d, which it deletes", t.Number)
			case deleted || !l.Mark:
			case l.Rows == 0 && t.Outcome == Acked:
				report(Lost, t.Number, "its mark, but no rows, and nothing has deleted them")
			case l.Rows != t.Rows:
				report(Torn, t.Number, "%d of %d rows", l.Rows, t.Rows)
			case l.Right != l.Rows:
				report(Broken, t.Number, "%d of %d rows have other contents", l.Rows-l.Right, l.Rows)
			}
		}
		for _, n := range slices.Sorted(maps.Keys(held)) {
			if _, ok := outcome[n]; !ok {
				report(Resurrected, n, "was never attempted")
			}
		}
	}
	return p
}

func (p *largePart) save(dir string) error {
	return errors.Join(p.history.saveTo(dir, "large.jsonl"), saveJSON(dir, "large.end.json", p.held))
}
