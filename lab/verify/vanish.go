package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

// SeenWrite is one row of a writer (Client). Seq counts its attempts from 1; each begins after the one before has
// ended.
type SeenWrite struct {
	Span
	Seq int64 `json:"seq"`
}

// View is what one node showed of the rows of all writers, at READ COMMITTED.
type View struct {
	Span
	Node    string       `json:"node"`
	Server  string       `json:"server"` // its server_uuid: one life of a mysqld
	Writers []WriterView `json:"writers"`
}

// WriterView is what a view had of one writer. Every seq above From was looked at: there were those up to To but for
// Missing.
type WriterView struct {
	From    int64   `json:"from"`
	To      int64   `json:"to"`
	Missing []int64 `json:"missing,omitempty"`
	Twice   []int64 `json:"twice,omitempty"`
}

// viewWindow is how far below the newest row of a writer each view looks again.
const viewWindow = 64

// vanishPart writes rows, one after the other in each session, and reads them on every node all the time. No row that
// was shown may vanish, and none may be shown without all those that its session had written before. Rows name their
// run: a follower that lags may still show rows of the set before.
type vanishPart struct {
	set    *Set
	run    int64
	writes history[SeenWrite]
	views  history[View]
	held   map[string]Rows // one table
}

func (p *vanishPart) name() string { return "vanish" }

func (p *vanishPart) schema() []string {
	return []string{"CREATE TABLE " + p.set.cfg.Database +
		".seen (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, run BIGINT NOT NULL, writer INT NOT NULL, seq BIGINT NOT NULL, KEY (run, writer, seq))"}
}

func (p *vanishPart) clients() []client {
	var out []client
	for i := range p.set.cfg.Clients {
		seq := int64(0)
		out = append(out, p.set.loop(p.set.cfg.Login, nil, p.set.cfg.Rate, p.set.random(p.name(), i),
			func(s *session, _ *rand.Rand) error {
				seq++
				w := SeenWrite{Span: Span{Client: i, Begin: p.set.now()}, Seq: seq}
				w.Outcome = commitOutcome(s.exec("INSERT INTO seen (run, writer, seq) VALUES (?, ?, ?)", p.run, i, seq))
				w.End = p.set.now()
				p.set.measure(w.Span)
				return p.writes.add(w)
			}))
	}
	return append(out, p.set.onNodes(p.name(), func(node string) func(*session, *rand.Rand) error {
		r := &viewer{part: p, node: node, top: make([]int64, p.set.cfg.Clients)}
		return r.look
	}, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"))
}

// viewer reads one node again and again.
type viewer struct {
	part *vanishPart
	node string
	top  []int64 // the newest row seen of each writer
}

func (r *viewer) look(s *session, _ *rand.Rand) error {
	server, err := s.life()
	if err != nil {
		return nil // a node that does not answer shows nothing
	}
	v := View{Span: Span{Client: -1, Begin: r.part.set.now(), Outcome: Acked}, Node: r.node, Server: server}
	var parts []string
	for w, top := range r.top {
		from := max(0, top-viewWindow)
		v.Writers = append(v.Writers, WriterView{From: from, To: from})
		parts = append(parts, fmt.Sprintf("run = %d AND writer = %d AND seq > %d", r.part.run, w, from))
	}
	rows, err := s.query("SELECT writer, seq FROM seen WHERE " + strings.Join(parts, " OR ") + " ORDER BY writer, seq")
	if err != nil {
		return nil
	}
	v.End = r.part.set.now()
	for _, row := range rows {
		w, ok := row[0].(int64)
		seq, ok2 := row[1].(int64)
		if !ok || !ok2 || w < 0 || w >= int64(len(r.top)) {
			return fmt.Errorf("%w: %v among the rows on %s", errGarbled, row, r.node)
		}
		v.Writers[w].add(seq)
		r.top[w] = max(r.top[w], seq)
	}
	return r.part.views.add(v)
}

// add notes a row, in order of seq.
func (w *WriterView) add(seq int64) {
	if seq == w.To {
		w.Twice = append(w.Twice, seq)
		return
	}
	for missing := w.To + 1; missing < seq; missing++ {
		w.Missing = append(w.Missing, missing)
	}
	w.To = seq
}

func (p *vanishPart) counts() Counts { return p.writes.counts() }

func (p *vanishPart) looks() map[string]int64 {
	return byNode(p.views.all(), func(v View) string { return v.Node })
}

func (p *vanishPart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	p.held, err = eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (Rows, error) {
		return readAttempts(ctx, db, p.set.cfg.Database+".seen")
	})
	return err
}

func (p *vanishPart) judge() Part { return JudgeViews(p.writes.ops, p.views.ops, p.held) }

func (p *vanishPart) save(dir string) error {
	return errors.Join(p.writes.saveTo(dir, "vanish.jsonl"), p.views.saveTo(dir, "vanish.views.jsonl"),
		saveJSON(dir, "vanish.end.json", p.held))
}
