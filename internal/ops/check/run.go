package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/poll"
)

// checker is one run. It is used by one goroutine.
type checker struct {
	o         Options
	res       *Result
	leader    *node
	followers []*node
	away      map[string]string // nodes that were left out, and why
	looked    time.Time         // when the load was last asked for
	chunk     int               // rows of the next range
	growth    float64           // what it grows by at most
	slowest   time.Duration     // query that hashed a range since the last adapt
	cut       bool              // the range since then differed at first
	progress  pace
}

// firstChunk rows are hashed first; then as many as take targetTime, within limits.
const firstChunk, leastChunk, mostChunk = 1000, 200, 200_000

// Ranges grow fast until one is written to between the looks of two nodes, and must be hashed again in pieces; slowly
// from then on.
const fast, slow = 4, 1.25

// Run compares all nodes. What they differ in is in the result; the error is why the run could not be finished.
func Run(ctx context.Context, o Options) (Result, error) {
	c := &checker{o: o, res: &Result{Began: time.Now().UTC(), Differences: []Difference{}, NotChecked: []NotChecked{}},
		away: map[string]string{}}
	defer c.close()
	if err := c.connect(ctx); err != nil {
		return *c.res, err
	}
	err := c.run(ctx)
	for _, name := range slices.Sorted(maps.Keys(c.away)) {
		c.skip("node "+name, c.away[name])
	}
	c.res.Ended = time.Now().UTC()
	return *c.res, err
}

func (c *checker) run(ctx context.Context) error {
	var tables []*table
	err := c.again(ctx, func() (err error) {
		tables, err = c.definitions(ctx)
		return err
	})
	if err != nil {
		return err
	}
	at, _, err := positions(ctx, c.leader.db)
	if err != nil {
		return err
	}
	c.res.Position = oneLine(at)
	st, err := c.resume(tables)
	if err != nil {
		return err
	}
	c.progress.begin(tables, c.res.Rows)
	for _, t := range tables {
		if st.has(t) {
			continue
		}
		if err := c.table(ctx, t, st); err != nil {
			return err
		}
		c.res.Tables++
		if err := st.finished(t, c.res); err != nil {
			return err
		}
	}
	return st.remove()
}

func (c *checker) skip(what, why string) {
	n := NotChecked{what, why}
	if !slices.Contains(c.res.NotChecked, n) {
		c.res.NotChecked = append(c.res.NotChecked, n)
	}
}

// again does what may fail because the cluster changes, with sessions opened again, until it works or has not for
// clusterLimit since it failed first.
func (c *checker) again(ctx context.Context, f func() error) error {
	for failed := (time.Time{}); ; {
		err := error(nil)
		if c.leader == nil {
			err = c.connect(ctx)
		}
		if err == nil {
			err = f()
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		if err == nil || final(err) || ctx.Err() != nil || time.Since(failed) > clusterLimit {
			return err
		}
		c.o.Say("trying again: %v", err)
		c.close()
		if err := poll.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// final errors are not cured by sessions opened again.
func final(err error) bool {
	n := errorNumber(err)
	return errors.Is(err, ErrNoAccount) || errors.Is(err, ErrNoTable) || errors.Is(err, ErrAlone) ||
		errors.Is(err, errUnstable) || errors.Is(err, errBusy) || changed(err) ||
		n == erTableAccessDenied || n == erColumnAccessDenied
}

// changed: the table is not what it was when its definition was read.
func changed(err error) bool {
	switch errorNumber(err) {
	case erNoSuchTable, erBadField, erTableDefChanged, erUnknownTable, erNoSuchKey, erUnknownDatabase:
		return true
	}
	return false
}

// definitions compares how tables are defined, and gives those that can be compared.
func (c *checker) definitions(ctx context.Context) ([]*table, error) {
	var differences []Difference
	var tables map[string]*table
	for i := range 3 { // a statement that changes one may be under way
		if i > 0 {
			if err := poll.Pause(ctx, time.Second); err != nil {
				return nil, err
			}
		}
		var err error
		if tables, differences, err = c.compareDefinitions(ctx); err != nil {
			return nil, err
		}
		if len(differences) == 0 {
			break
		}
	}
	for _, d := range differences {
		c.add(d)
		delete(tables, d.Table)
	}
	var out []*table
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		out = append(out, tables[name])
	}
	if len(c.o.Only) == 0 || slices.ContainsFunc(c.o.Only, ofAccounts) {
		accounts, err := c.leader.accountTables(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, accounts...)
	}
	return out, nil
}

// ofAccounts: the tables of accounts are among what was asked for.
func ofAccounts(only string) bool { return only == "mysql" || strings.HasPrefix(only, "mysql.") }

// wanted: it was asked for.
func (c *checker) wanted(t *table) bool {
	return len(c.o.Only) == 0 || slices.Contains(c.o.Only, t.schema) || slices.Contains(c.o.Only, t.String())
}

func (c *checker) compareDefinitions(ctx context.Context) (map[string]*table, []Difference, error) {
	target, err := c.target(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := map[string]map[string]*table{}
	names := map[string]bool{}
	for _, n := range c.all() {
		if n != c.leader {
			if err := n.await(ctx, target, followLimit); err != nil {
				return nil, nil, err
			}
		}
		tables, err := n.tables(ctx)
		if err != nil {
			return nil, nil, err
		}
		maps.DeleteFunc(tables, func(_ string, t *table) bool { return !c.wanted(t) })
		all[n.name] = tables
		for name := range tables {
			names[name] = true
		}
	}
	for _, o := range c.o.Only {
		if !ofAccounts(o) && !slices.ContainsFunc(slices.Collect(maps.Keys(names)),
			func(name string) bool { return name == o || strings.HasPrefix(name, o+".") }) {
			return nil, nil, fmt.Errorf("%w %q to the account %q; give SCHEMA or SCHEMA.TABLE", ErrNoTable, o, c.o.User)
		}
	}
	var out []Difference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if d, differs := c.definition(name, all); differs {
			out = append(out, d)
		}
	}
	return all[c.leader.name], out, nil
}

// definition compares one table's.
func (c *checker) definition(name string, all map[string]map[string]*table) (Difference, bool) {
	values := map[string]string{}
	missing := 0
	for node, tables := range all {
		values[node] = ""
		if t := tables[name]; t != nil {
			values[node] = t.definition
		} else {
			missing++
		}
	}
	if agree(values) {
		return Difference{}, false
	}
	_, wrong, ok := majority(values)
	d := Difference{Table: name, Kind: KindDefinition, Wrong: wrong}
	switch {
	case missing > 0 && len(all)-missing > missing:
		d.Kind = KindMissing
	case missing > 0:
		d.Kind = KindExtra
	}
	if !ok {
		d.Details = "there is no majority"
	}
	return d, true
}

// table compares one table.
func (c *checker) table(ctx context.Context, t *table, st *state) error {
	began := c.res.Rows
	err := c.walk(ctx, t, st)
	n := errorNumber(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	case changed(err):
		c.skip(t.String(), "it was changed or dropped while it was compared: "+err.Error())
	case n == erTableAccessDenied || n == erColumnAccessDenied:
		c.skip(t.String(), fmt.Sprintf("the account lacks the rights (docs/ops/check.md): %v", err))
	case errors.Is(err, errBusy):
		c.skip(t.String(), fmt.Sprintf("from row %d on: %v; see performance_schema.data_locks and XA RECOVER on %s",
			c.res.Rows-began, err, c.leader.name))
	case errors.Is(err, errUnstable):
		c.skip(t.String(), fmt.Sprintf("%v and cannot be compared in parts: %s; give it a primary key", err, t.keyless))
	default:
		return fmt.Errorf("%s: %w", t, err)
	}
	return nil
}

// walk compares a table from one end to the other.
func (c *checker) walk(ctx context.Context, t *table, st *state) error {
	if t.key == nil {
		if t.rows > keylessRows {
			return fmt.Errorf("%w: about %d rows", errUnstable, t.rows)
		}
		return c.again(ctx, func() error {
			rows, err := c.whole(ctx, t)
			c.res.Rows += rows
			return err
		})
	}
	from, last := st.at(t), false
	c.chunk, c.growth, c.slowest, c.cut = firstChunk, fast, 0, false // rows of another table say nothing of these
	for !last && !c.tooMany(t) {
		if err := c.throttle(ctx); err != nil {
			return err
		}
		var rows uint64
		var s span
		err := c.again(ctx, func() error {
			to, found, err := c.bound(ctx, span{t: t, from: from}, c.chunk)
			if err == nil {
				s, last = span{t, from, to}, !found
				rows, err = c.span(ctx, s)
			}
			if err != nil {
				c.chunk = leastChunk // it may have been too much
			}
			return err
		})
		if err != nil {
			return err
		}
		c.res.Rows += rows
		from = s.to
		c.adapt()
		c.o.Progress(c.progress.now(t.String(), c.res.Rows))
		if err := st.reached(t, from, c.res); err != nil {
			return err
		}
	}
	if !last {
		c.skip(t.String(), "the rest of it, after so many ranges that differ")
	}
	return nil
}

// adapt makes the next range take about targetTime on the slowest node, and be half as large after one that was cut.
func (c *checker) adapt() {
	if c.cut {
		c.growth = slow
		c.chunk = max(leastChunk, c.chunk/2)
	} else if c.slowest > 0 {
		factor := min(c.growth, max(0.25, float64(targetTime)/float64(c.slowest)))
		c.chunk = min(mostChunk, max(leastChunk, int(float64(c.chunk)*factor)))
	}
	c.slowest, c.cut = 0, false
}

// pace tells how fast a run progresses.
type pace struct {
	began  time.Time
	before uint64 // rows of an interrupted run
	total  uint64
}

func (p *pace) begin(tables []*table, before uint64) {
	p.began, p.before = time.Now(), before
	for _, t := range tables {
		p.total += t.rows
	}
}

func (p *pace) now(table string, rows uint64) Progress {
	out := Progress{Table: table, Rows: rows, TotalRows: max(p.total, rows)}
	if s := time.Since(p.began).Seconds(); s > 0 {
		out.RowsPerSec = float64(rows-p.before) / s
	}
	if out.RowsPerSec > 0 {
		out.Left = time.Duration(float64(out.TotalRows-rows) / out.RowsPerSec * float64(time.Second))
	}
	return out
}
