package verify

import (
	"context"
	"database/sql"
)

// mixedPart is one kind of mixed session (DDL, account statements, XA) as a workload of a Set.
type mixedPart struct {
	set   *Set
	kind  string
	state *mixedState
	views map[string]mixedView
}

func newMixedPart(s *Set, kind string) *mixedPart {
	m := newMixedState(kind)
	m.run = s.mark() + "_" + m.run
	return &mixedPart{set: s, kind: kind, state: m}
}

func (p *mixedPart) config() Config {
	return Config{Login: p.set.cfg.Login, Database: p.set.cfg.Database, Rate: p.set.cfg.Rate}
}

func (p *mixedPart) name() string { return p.kind }

func (p *mixedPart) schema() []string {
	switch p.kind {
	case kindXA:
		return []string{xaSchema(p.set.cfg.Database)}
	case kindACL:
		return []string{aclSchema(p.set.cfg.Database)}
	case kindObjects:
		return objectsSchema(p.set.cfg.Database)
	}
	return nil
}

func (p *mixedPart) clients() []client {
	var out []client
	for _, f := range p.state.sessions(p.config()) {
		out = append(out, f)
	}
	return out
}

func (p *mixedPart) counts() Counts {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.sum
}

func (p *mixedPart) finish(ctx context.Context) error {
	if p.kind != kindXA {
		return nil
	}
	return p.state.finish(ctx, p.config())
}

func (p *mixedPart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	p.views, err = eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (mixedView, error) {
		return p.state.read(ctx, db, p.set.cfg.Database)
	})
	return err
}

func (p *mixedPart) judge() Part {
	problems, unanswered := p.state.judge(p.views, p.set.committed)
	v := Part{Figures: map[string]int64{}, Problems: problems}
	v.lookedUp(unanswered)
	for what, n := range p.state.counts {
		v.Figures[what] = int64(n)
	}
	return v
}

// mixedFile is what is kept of it.
type mixedFile struct {
	Objects map[string]presence        `json:"objects"`
	Open    map[string][]openStatement `json:"open"`
	XA      map[string]xaFile          `json:"xa"`
	Counts  map[string]int             `json:"counts"`
	Sum     Counts                     `json:"sum"`
	Nodes   map[string]mixedView       `json:"nodes"`
}

type xaFile struct {
	Prepared Outcome `json:"prepared"`
	Commit   bool    `json:"commit,omitempty"`
	Resolved bool    `json:"resolved,omitempty"`
	Gone     bool    `json:"gone,omitempty"`
	Tried    bool    `json:"tried,omitempty"`
}

func (p *mixedPart) save(dir string) error {
	m := p.state
	m.mu.Lock()
	defer m.mu.Unlock()
	f := mixedFile{Objects: m.objects, Open: m.open, XA: map[string]xaFile{}, Counts: m.counts, Sum: m.sum, Nodes: p.views}
	for xid, x := range m.xa {
		f.XA[xid] = xaFile{x.prepared, x.commit, x.resolved, x.gone, x.tried}
	}
	return saveJSON(dir, p.kind+".json", f)
}

func (p *mixedPart) load(dir string) error {
	f := mixedFile{}
	if err := loadJSON(dir, p.kind+".json", &f); err != nil {
		return err
	}
	m := p.state
	m.objects, m.open, m.counts, m.sum, p.views = f.Objects, f.Open, f.Counts, f.Sum, f.Nodes
	for xid, x := range f.XA {
		m.xa[xid] = &xaState{prepared: x.Prepared, commit: x.Commit, resolved: x.Resolved, gone: x.Gone, tried: x.Tried}
	}
	return nil
}
