package testkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

const (
	healLimit  = 90 * time.Second // until every member is healthy again
	equalLimit = 3 * time.Minute  // to compare all data
)

// Pool has the clusters of one kind, all alike, that tests lease one after the other. There are as many as tests ran at
// the same time. Its methods may be called at the same time.
type Pool struct {
	Start func(t testing.TB) *demo.Cluster

	mu   sync.Mutex
	idle []*leased
}

// leased is a cluster, and what it was like when it was new.
type leased struct {
	*demo.Cluster
	logs     *borrowedLog
	settings []config.Setting
	accounts map[string]string
}

// borrowedLog is a test whose cluster outlives it: what the cluster says goes to the log of the test that has it now. A
// line for one that has ended would end the whole run.
type borrowedLog struct {
	testing.TB // that the cluster is made for

	mu  sync.Mutex
	now testing.TB // nil: no test has it
}

func (b *borrowedLog) Logf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil {
		b.now.Logf(format, args...)
	}
}

func (b *borrowedLog) lend(t testing.TB) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = t
}

// Lease gives a cluster to a test until it ends: what it was when it was new, but for who leads and for the history.
// Then all members must be healthy, all nodes equal, and the cluster's settings as they were; else the test fails, and
// the cluster is given to no other one. The test's schemas and accounts are dropped for it.
func (p *Pool) Lease(t testing.TB) *demo.Cluster {
	t.Helper()
	l := p.take()
	if l == nil {
		logs := &borrowedLog{TB: t, now: t}
		l = &leased{Cluster: p.Start(logs), logs: logs}
		if err := l.note(); err != nil {
			l.Kill()
			t.Fatal(err)
		}
	}
	l.logs.lend(t)
	t.Cleanup(func() {
		began := time.Now()
		if !t.Failed() {
			if err := l.restore(); err != nil {
				t.Errorf("the leased cluster was given back broken: %v", err)
			}
		}
		l.logs.lend(nil)
		if ShowLogs(t, l.Cluster); t.Failed() {
			l.Kill()
			return
		}
		t.Logf("the leased cluster is as it was, after %v", time.Since(began).Round(time.Millisecond))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, l)
	})
	return l.Cluster
}

func (p *Pool) take() (l *leased) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		l, p.idle = p.idle[last], p.idle[:last]
	}
	return l
}

// Close ends the clusters that no test has at the moment. The next lease makes another one.
func (p *Pool) Close() {
	for l := p.take(); l != nil; l = p.take() {
		l.Kill()
	}
}

// note what the cluster is like.
func (l *leased) note() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), healLimit)
	defer cancel()
	if l.settings, err = l.config(ctx); err != nil {
		return err
	}
	return l.onLeader(ctx, func(db *sql.DB) (err error) {
		l.accounts, err = verify.Accounts(ctx, db)
		return err
	})
}

// config is the cluster's settings.
func (l *leased) config(ctx context.Context) ([]config.Setting, error) {
	cl := l.Client(l.Nodes()[0])
	defer cl.Close()
	v, err := api.Config.Ask(ctx, cl)
	return v.Settings, err
}

func (l *leased) onLeader(ctx context.Context, f func(*sql.DB) error) error {
	n, err := l.Leader(ctx)
	if err != nil {
		return err
	}
	db, err := l.Admin(n)
	if err != nil {
		return err
	}
	defer db.Close()
	return f(db)
}

// restore checks that the cluster is whole and equal, and takes away what the test has left.
func (l *leased) restore() error {
	ctx, cancel := context.WithTimeout(context.Background(), healLimit+equalLimit)
	defer cancel()
	if err := l.healthy(ctx); err != nil {
		return err
	}
	settings, err := l.config(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(settings, l.settings) {
		return fmt.Errorf("the cluster's settings were %v and are %v", l.settings, settings)
	}
	if err := l.equal(ctx); err != nil {
		return err
	}
	return l.onLeader(ctx, func(db *sql.DB) error { return l.clear(ctx, db) })
}

// healthy waits until all members are, and looks whether there are the same ones, in the same roles, without a pause.
func (l *leased) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	v, err := l.WaitHealthy(ctx)
	if err != nil {
		return err
	}
	if v.Pause != nil {
		return errors.New("automatic failover is paused")
	}
	for _, m := range v.Members {
		n := slices.IndexFunc(l.Nodes(), func(n *demo.Node) bool { return n.Name == m.Name })
		if n < 0 {
			return fmt.Errorf("%s is a member", m.Name)
		}
		if voter := l.Nodes()[n].Role != config.RoleLearner; m.Raft.Voter != voter {
			return fmt.Errorf("%s is a voter: %t", m.Name, m.Raft.Voter)
		}
	}
	return nil
}

// equal compares all nodes' data and gtid_executed.
func (l *leased) equal(ctx context.Context) error {
	nodes, err := verify.Endpoints(l)
	if err != nil {
		return err
	}
	defer verify.CloseEndpoints(nodes)
	if _, _, err = verify.WaitEqual(ctx, nodes); err != nil {
		return err
	}
	problems, _, err := verify.Compare(ctx, nodes)
	for _, p := range problems {
		err = errors.Join(err, errors.New(p.String()))
	}
	return err
}

// clear drops schemas and accounts. What is prepared holds locks on them, and is the test's to end.
func (l *leased) clear(ctx context.Context, db *sql.DB) error {
	prepared, err := column(ctx, db, "XA RECOVER")
	if err != nil {
		return err
	}
	if len(prepared) > 0 {
		return fmt.Errorf("XA transactions are left prepared: %q", prepared)
	}
	schemas, err := column(ctx, db, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA "+
		"WHERE SCHEMA_NAME NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')")
	if err != nil {
		return err
	}
	for _, s := range schemas {
		if _, err := db.ExecContext(ctx, "DROP DATABASE `"+strings.ReplaceAll(s, "`", "``")+"`"); err != nil {
			return err
		}
	}
	accounts, err := verify.Accounts(ctx, db)
	if err != nil {
		return err
	}
	for who := range maps.Keys(accounts) {
		name, is := strings.CutPrefix(who, "account ")
		if _, had := l.accounts[who]; !is || had {
			continue
		}
		at := strings.LastIndexByte(name, '@')
		if _, err := db.ExecContext(ctx, fmt.Sprintf("DROP USER `%s`@`%s`", name[:at], name[at+1:])); err != nil {
			return err
		}
	}
	return nil
}

// column is the last column of a query's rows.
func column(ctx context.Context, db *sql.DB, query string) (list []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]any, len(names))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		list = append(list, string(*values[len(values)-1].(*sql.RawBytes)))
	}
	return list, rows.Err()
}
