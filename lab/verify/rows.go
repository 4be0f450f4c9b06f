package verify

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"trireme/internal/base/poll"
)

// rowsPart are writers of rows, each logged.
type rowsPart struct {
	cfg   Config
	log   *Log
	meter *Meter
	nodes map[string]Rows
	wrong map[string][]WrongRow

	mu   sync.Mutex
	gate chan struct{} // not nil: writers wait until it is closed
}

func newRowsPart(s *Set, cfg Config) (*rowsPart, error) {
	cfg = cfg.withDefaults()
	if cfg.Writers > maxWriters {
		return nil, fmt.Errorf("workload: %d writers, at most %d", cfg.Writers, maxWriters)
	}
	return &rowsPart{cfg: cfg, log: NewLog(cfg.Writers), meter: s.meter}, nil
}

func (p *rowsPart) name() string { return "rows" }

func (p *rowsPart) schema() []string {
	var stmts []string
	for t := range p.cfg.Tables {
		stmts = append(stmts,
			fmt.Sprintf("CREATE TABLE %s.%s (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, "+
				"seq BIGINT NOT NULL, payload VARCHAR(%d) NOT NULL, KEY (writer, seq))", p.cfg.Database, tableName(t),
				p.cfg.PayloadBytes))
	}
	return stmts
}

func (p *rowsPart) clients() []client {
	var out []client
	for i := range p.cfg.Writers {
		out = append(out, func(ctx context.Context) error { return p.write(ctx, i) })
	}
	return out
}

func (p *rowsPart) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

func (p *rowsPart) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

// passGate waits while the writers pause, at most until ctx ends.
func (p *rowsPart) passGate(ctx context.Context) {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
}

func (p *rowsPart) write(ctx context.Context, writer int) error {
	s, err := newSession(p.cfg.Login, p.cfg.Database)
	if err != nil {
		return err
	}
	defer s.close()
	for ctx.Err() == nil {
		p.passGate(ctx)
		if s.connect(ctx) != nil {
			return nil // ctx has ended
		}
		seq := p.log.Begin(writer)
		begin := time.Now()
		outcome := p.attempt(s, Attempt{writer, seq})
		p.log.Settle(writer, seq, outcome)
		if outcome == Acked {
			p.meter.Ack()
		} else {
			p.meter.Error()
		}
		if p.cfg.Rate > 0 {
			_ = poll.Pause(ctx, time.Duration(float64(time.Second)/p.cfg.Rate)-time.Since(begin))
		}
	}
	return nil
}

// attempt makes one write; the connection is gone afterwards unless it was acknowledged.
func (p *rowsPart) attempt(s *session, a Attempt) Outcome {
	payload := payloadOf(a, p.cfg.PayloadBytes)
	tables := tablesOf(a, p.cfg.Tables, p.cfg.PairEvery)
	insert := func(t int) error {
		return s.exec("INSERT INTO "+tableName(t)+" (writer, seq, payload) VALUES (?, ?, ?)", a.Writer, a.Seq, payload)
	}
	if len(tables) == 1 {
		return commitOutcome(insert(tables[0]))
	}
	if s.exec("BEGIN") != nil {
		return Failed
	}
	for _, t := range tables {
		if insert(t) != nil {
			return Failed // without a COMMIT nothing of an open transaction stays
		}
	}
	return commitOutcome(s.exec("COMMIT"))
}

func (p *rowsPart) counts() Counts { return p.log.Counts() }

func (p *rowsPart) collect(ctx context.Context, nodes []Endpoint) error {
	all, err := eachNode(ctx, nodes, p.readRows)
	p.nodes, p.wrong = apart(all)
	return err
}

func (p *rowsPart) judge() Part {
	return Part{Problems: append(JudgeRows(p.log, Shape{p.cfg.Tables, p.cfg.PairEvery}, p.nodes),
		JudgePayloads(p.wrong)...)}
}

// save keeps a letter for each attempt of a writer: pending, acknowledged (K), unknown, failed.
func (p *rowsPart) save(dir string) error {
	writers := make([]strings.Builder, p.cfg.Writers)
	p.log.Each(func(a Attempt, o Outcome) { writers[a.Writer].WriteByte("PKUF"[o]) })
	var texts []string
	for _, b := range writers {
		texts = append(texts, b.String())
	}
	return saveJSON(dir, "rows.json", map[string]any{"shape": Shape{p.cfg.Tables, p.cfg.PairEvery}, "writers": texts,
		"nodes": p.nodes, "wrong": p.wrong})
}
