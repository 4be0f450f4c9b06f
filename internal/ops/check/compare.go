package check

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
)

// sum is what one node has in a span.
type sum struct {
	rows uint64
	hash string
}

// each asks all followers at once, and gives the first error.
func (c *checker) each(f func(*node) error) error {
	errs := make([]error, len(c.followers))
	var wg sync.WaitGroup
	for i, n := range c.followers {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// target is everything that the leader has executed or is committing now.
func (c *checker) target(ctx context.Context) (gtid.Set, error) {
	executed, owned, err := positions(ctx, c.leader.db)
	return executed.Union(owned), err
}

// sums hashes a span on the leader, and on the followers once they have executed what the leader had.
func (c *checker) sums(ctx context.Context, s span, limit time.Duration) (map[string]sum, error) {
	out := map[string]sum{}
	var mu sync.Mutex
	query := s.sumQuery()
	hash := func(n *node) error {
		began := time.Now()
		var v sum
		if err := n.row(ctx, limit, query, &v.rows, &v.hash); err != nil {
			return err
		}
		n.works(began)
		mu.Lock()
		defer mu.Unlock()
		out[n.name] = v
		c.slowest = max(c.slowest, time.Since(began))
		return nil
	}
	if err := hash(c.leader); err != nil {
		return nil, err
	}
	target, err := c.target(ctx)
	if err != nil {
		return nil, err
	}
	return out, c.each(func(n *node) error {
		if err := n.await(ctx, target, followLimit); err != nil {
			return err
		}
		return hash(n)
	})
}

// agree reports whether all values are the same.
func agree[V comparable](values map[string]V) bool {
	var first V
	begun := false
	for _, v := range values {
		if begun && v != first {
			return false
		}
		first, begun = v, true
	}
	return true
}

// majority is the value of more than half of the nodes, and who has another one. Without such a value wrong is nil.
func majority[V comparable](values map[string]V) (value V, wrong []string, ok bool) {
	count := map[V]int{}
	for _, v := range values {
		count[v]++
		if 2*count[v] > len(values) {
			value, ok = v, true
		}
	}
	if !ok {
		return value, nil, false
	}
	for name, v := range values {
		if v != value {
			wrong = append(wrong, name)
		}
	}
	slices.Sort(wrong)
	return value, wrong, true
}

// span compares a range of any size, and records what differs. rows is how many the leader has in it.
func (c *checker) span(ctx context.Context, s span) (rows uint64, err error) {
	sums, err := c.sums(ctx, s, chunkLimit)
	if err != nil {
		return 0, err
	}
	c.res.Ranges++
	rows = sums[c.leader.name].rows
	if agree(sums) {
		return rows, nil
	}
	c.cut = true
	pieces, err := c.pieces(ctx, s, rows)
	if err != nil {
		return rows, err
	}
	for _, small := range pieces {
		if c.tooMany(s.t) {
			break
		}
		if err := c.throttle(ctx); err != nil {
			return rows, err
		}
		if err := c.small(ctx, small); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// pieces cuts a span to some of few rows.
func (c *checker) pieces(ctx context.Context, s span, rows uint64) ([]span, error) {
	var out []span
	for rows > smallRange {
		bound, found, err := c.bound(ctx, s, smallRange)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		out = append(out, span{s.t, s.from, bound})
		s.from = bound
		rows -= min(rows, smallRange)
	}
	return append(out, s), nil
}

// bound is the key of the n-th row of a span on the leader; found is false if there are fewer.
func (c *checker) bound(ctx context.Context, s span, n int) (key []string, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkLimit)
	defer cancel()
	rows, err := scanKeys(ctx, c.leader, c.leader.db, s.boundQuery(itoa(n-1)), len(s.t.key))
	if err != nil || len(rows) == 0 {
		return nil, false, err
	}
	return rows[0], true, nil
}

// small compares a range of few rows, which may be locked for a moment.
func (c *checker) small(ctx context.Context, s span) error {
	sums, err := c.sums(ctx, s, chunkLimit)
	if err != nil || agree(sums) {
		return err
	}
	c.res.Locked++
	var seen *sighting
	for range 2 { // a difference is believed when it was seen twice
		if seen, err = c.patiently(ctx, s); err != nil || seen == nil {
			return err
		}
	}
	c.report(ctx, s, seen)
	return nil
}

// patiently takes the lock without waiting for others' at first: a session that does not wait is in no deadlock.
// Errors: those of underLock.
func (c *checker) patiently(ctx context.Context, s span) (seen *sighting, err error) {
	const attempts, polite = 8, 5
	for i := range attempts {
		if i > 0 {
			if err := poll.Pause(ctx, 40*time.Millisecond<<(i-1)); err != nil {
				return nil, err
			}
		}
		mode := " FOR SHARE"
		if i < polite {
			mode += " NOWAIT"
		}
		if seen, err = c.underLock(ctx, s, mode); !errors.Is(err, errBusy) {
			return seen, err
		}
	}
	return nil, err
}

// sighting is rows of a range that differ under the lock.
type sighting struct {
	at   gtid.Set
	rows map[string]map[string]string // key, then node: the row's hash or Absent
	keys map[string][]string
}

// report turns what was seen into a Difference.
func (c *checker) report(ctx context.Context, s span, seen *sighting) {
	d := Difference{Table: s.t.String(), Kind: KindRows, Key: s.t.keyNames(), From: s.t.shown(s.from), To: s.t.shown(s.to),
		Count: len(seen.rows), At: oneLine(seen.at)}
	wrong := map[string]bool{}
	undecided := false
	for _, key := range slices.Sorted(maps.Keys(seen.rows)) {
		_, minority, ok := majority(seen.rows[key])
		undecided = undecided || !ok
		for _, name := range minority {
			wrong[name] = true
		}
		if len(d.Rows) < maxRows {
			d.Rows = append(d.Rows, Row{Key: s.t.shown(seen.keys[key]), Hash: seen.rows[key],
				Columns: c.columns(ctx, s.t, seen.keys[key])})
		}
	}
	if undecided {
		d.Details = "there is no majority for some of the rows"
	} else {
		d.Wrong = slices.Sorted(maps.Keys(wrong))
	}
	c.add(d)
}

// columns names those of a row that differ. It is read without a lock, for people: an error or a row that is gone says
// nothing.
func (c *checker) columns(ctx context.Context, t *table, key []string) []string {
	var names, forms []string
	for _, col := range t.columns {
		if !col.virtual {
			names = append(names, col.name)
			forms = append(forms, "COALESCE(SHA2("+col.hashed()+",256), '')")
		}
	}
	// The key itself may differ in bytes that compare equal.
	q := "SELECT " + strings.Join(forms, ", ") + t.from() + t.exactly(key)
	var first []string
	differ := map[int]bool{}
	for _, n := range c.all() {
		rows, err := scanKeys(ctx, n, n.db, q, len(forms))
		if err != nil || len(rows) != 1 {
			continue
		}
		if first == nil {
			first = rows[0]
		}
		for i := range rows[0] {
			if rows[0][i] != first[i] {
				differ[i] = true
			}
		}
	}
	var out []string
	for i, name := range names {
		if differ[i] {
			out = append(out, name)
		}
	}
	return out
}

// whole compares a table that cannot be walked along, or not be locked.
func (c *checker) whole(ctx context.Context, t *table) (rows uint64, err error) {
	const attempts, enough = 8, 3
	s := span{t: t}
	stable := 0
	for range attempts {
		if err := c.throttle(ctx); err != nil {
			return 0, err
		}
		sums, err := c.sums(ctx, s, wholeLimit)
		if err != nil {
			return 0, err
		}
		c.res.Ranges++
		rows = sums[c.leader.name].rows
		if agree(sums) {
			return rows, nil
		}
		var after sum
		began := time.Now()
		if err := c.leader.row(ctx, wholeLimit, s.sumQuery(), &after.rows, &after.hash); err != nil {
			return rows, err
		}
		c.leader.works(began)
		stable++
		if after != sums[c.leader.name] {
			stable = 0
		}
		if stable == enough {
			if err := c.still(ctx); err != nil {
				return rows, err
			}
			_, wrong, ok := majority(sums)
			d := Difference{Table: t.String(), Kind: KindRows, Wrong: wrong}
			if !ok {
				d.Details = "there is no majority"
			}
			c.add(d)
			return rows, nil
		}
		if err := poll.Pause(ctx, 300*time.Millisecond); err != nil {
			return rows, err
		}
	}
	return rows, errUnstable
}

// add records a difference, once if a range is compared again.
func (c *checker) add(d Difference) {
	c.res.Differences = slices.DeleteFunc(c.res.Differences, func(o Difference) bool {
		return o.Table == d.Table && o.Kind == d.Kind && o.From == d.From && o.To == d.To
	})
	d.Leader = slices.Contains(d.Wrong, c.leader.name)
	c.res.Differences = append(c.res.Differences, d)
	first, _, _ := strings.Cut(d.String(), "\n")
	c.o.Say("found: %s", first)
}

// tooMany: more ranges of a table would be no help to anybody.
func (c *checker) tooMany(t *table) bool {
	const limit = 20
	n := 0
	for _, d := range c.res.Differences {
		if d.Table == t.String() {
			n++
		}
	}
	return n >= limit || len(c.res.Differences) >= maxDifferences
}

func oneLine(s gtid.Set) string { return strings.ReplaceAll(s.String(), "\n", "") }

// temporary: the same may work a moment later.
func temporary(err error) bool {
	switch errorNumber(err) {
	case erLockWait, erLockNoWait, erDeadlock, erQueryInterrupted:
		return true
	}
	return errors.Is(err, errBusy)
}
