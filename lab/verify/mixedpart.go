package verify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"trireme/internal/base/poll"
)

// mixedPart is one kind of mixed session (transfers, DDL, account statements, XA, objects) as a workload of a Set.
type mixedPart struct {
	set   *Set
	kind  string
	run   string // makes names of server-wide objects unique
	views map[string]mixedView

	mu      sync.Mutex
	objects map[string]presence        // "table d7", "row d7", "column d7.c", "user v…_7", "grant v…_7"
	open    map[string][]openStatement // what was not answered, by object
	xa      map[string]*xaState
	acked   map[string]int // statements, by what they are about
	sum     Counts         // statements that commit something to be judged
}

func newMixedPart(s *Set, kind string) *mixedPart {
	return &mixedPart{set: s, kind: kind, run: fmt.Sprintf("%s_v%x", s.mark(), time.Now().UnixNano()&0xffffffffff),
		objects: map[string]presence{}, open: map[string][]openStatement{}, xa: map[string]*xaState{},
		acked: map[string]int{}}
}

func (m *mixedPart) name() string { return m.kind }

func (m *mixedPart) schema() []string {
	db := m.set.cfg.Database
	return map[string][]string{
		kindBank:    bankSchema(db),
		kindXA:      {"CREATE TABLE " + db + ".xa_rows (id INT PRIMARY KEY, xid VARCHAR(64) NOT NULL)"},
		kindACL:     {"CREATE TABLE " + db + ".acl_columns (id INT PRIMARY KEY, v INT)"},
		kindObjects: objectsSchema(db),
	}[m.kind]
}

// clients are one session.
func (m *mixedPart) clients() []client {
	step := map[string]func(*session, int){kindBank: m.transfer, kindDDL: m.tables, kindACL: m.accounts, kindXA: m.twoPhase,
		kindObjects: m.storedObjects}[m.kind]
	pause := map[string]time.Duration{kindBank: time.Millisecond, kindObjects: objectsPause}[m.kind]
	if pause == 0 {
		pause = mixedPause
	}
	if rate := m.set.cfg.Rate; rate > 0 {
		pause = max(pause, time.Duration(float64(time.Second)/rate))
	}
	return []client{func(ctx context.Context) error {
		s, err := newSession(m.set.cfg.Login, m.set.cfg.Database)
		if err != nil {
			return err
		}
		defer s.close()
		for k := 1; s.connect(ctx) == nil; k++ {
			step(s, k)
			_ = poll.Pause(ctx, pause)
		}
		return nil
	}}
}

func (m *mixedPart) counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}

func (m *mixedPart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	m.views, err = eachNode(ctx, nodes, m.read)
	return err
}

func (m *mixedPart) judge() Part {
	problems, unanswered := m.judgeViews(m.views, m.set.committed)
	v := Part{Figures: map[string]int64{}, Problems: problems}
	v.lookedUp(unanswered)
	for what, n := range m.acked {
		v.Figures[what] = int64(n)
	}
	return v
}

func (m *mixedPart) save(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return saveJSON(dir, m.kind+".json", map[string]any{"objects": m.objects, "open": m.open, "xa": m.xa,
		"counts": m.acked, "sum": m.sum, "nodes": m.views})
}
