package verify

import (
	"context"
	"fmt"
	"path/filepath"
)

// rowsPart is the Workload (writers of rows, each logged) as one of a Set.
type rowsPart struct {
	*Workload
	nodes map[string]Rows
	wrong map[string][]WrongRow
}

const rowsLogFile = "rows.log"

func newRowsPart(s *Set) (*rowsPart, error) {
	cfg := Config{Login: s.cfg.Login, Database: s.cfg.Database, Writers: s.cfg.Clients, Rate: s.cfg.Rate}
	if s.cfg.Dir != "" {
		cfg.LogPath = filepath.Join(s.cfg.Dir, rowsLogFile)
	}
	w, err := New(cfg)
	if err != nil {
		return nil, err
	}
	w.meter = s.meter
	return &rowsPart{Workload: w}, nil
}

func (p *rowsPart) name() string { return "rows" }

func (p *rowsPart) clients() []client {
	var out []client
	for i := range p.cfg.Writers {
		out = append(out, func(ctx context.Context) error { return p.write(ctx, i) })
	}
	return out
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

func (p *rowsPart) close() error { return p.log.Close() }

// rowCount is an entry of Rows in a file.
type rowCount struct {
	Table int `json:"table"`
	Attempt
	Rows int `json:"rows"`
}

// rowsFile is what the nodes held, and which workload it was.
type rowsFile struct {
	Shape Shape                 `json:"shape"`
	Nodes map[string][]rowCount `json:"nodes"`
	Wrong map[string][]WrongRow `json:"wrong,omitempty"`
}

func (p *rowsPart) save(dir string) error {
	if err := p.log.Flush(); err != nil {
		return err
	}
	return saveJSON(dir, "rows.json", rowsFile{Shape{p.cfg.Tables, p.cfg.PairEvery}, flatten(p.nodes), p.wrong})
}

func (p *rowsPart) load(dir string) error {
	var f rowsFile
	if err := loadJSON(dir, "rows.json", &f); err != nil {
		return err
	}
	log, err := ReadLog(filepath.Join(dir, rowsLogFile))
	if err != nil {
		return err
	}
	p.log, p.cfg.Tables, p.cfg.PairEvery = log, f.Shape.Tables, f.Shape.PairEvery
	p.wrong = f.Wrong
	p.nodes, err = unflatten(f.Nodes, f.Shape.Tables)
	return err
}

// flatten makes lists of what nodes hold, in a fixed order.
func flatten(nodes map[string]Rows) map[string][]rowCount {
	out := map[string][]rowCount{}
	for node, rows := range nodes {
		list := []rowCount{}
		for t, table := range rows {
			for _, a := range sortedAttempts(table) {
				list = append(list, rowCount{t, a, table[a]})
			}
		}
		out[node] = list
	}
	return out
}

func unflatten(nodes map[string][]rowCount, tables int) (map[string]Rows, error) {
	out := map[string]Rows{}
	for node, list := range nodes {
		rows := make(Rows, tables)
		for t := range rows {
			rows[t] = map[Attempt]int{}
		}
		for _, c := range list {
			if c.Table < 0 || c.Table >= len(rows) {
				return nil, fmt.Errorf("what %s held: table %d of %d", node, c.Table, len(rows))
			}
			rows[c.Table][c.Attempt] = c.Rows
		}
		out[node] = rows
	}
	return out, nil
}
