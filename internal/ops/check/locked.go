package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/mysql/gtid"
)

func itoa(n int) string { return strconv.Itoa(n) }

// keyed is the rows of one node in a range: key to hash.
type keyed struct {
	hash map[string]string
	keys map[string][]string
}

// manyRows bounds what is read of a range: a node may have any number of rows that the leader does not have.
const manyRows = 50 * smallRange

// readRows reads key and hash of the rows of a span.
func readRows(ctx context.Context, n *node, q querier, s span, mode string) (keyed, error) {
	out := keyed{map[string]string{}, map[string][]string{}}
	rows, err := scanKeys(ctx, n, q, s.rowsQuery()+s.t.order()+" LIMIT "+itoa(manyRows)+mode, 1+len(s.t.key))
	for _, r := range rows {
		key := strings.Join(r[1:], "\x00")
		out.hash[key], out.keys[key] = r[0], r[1:]
	}
	return out, err
}

// scanKeys reads rows of so many columns that are never NULL.
func scanKeys(ctx context.Context, n *node, q querier, query string, columns int) ([][]string, error) {
	defer n.works(time.Now())
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	defer func() { _ = rows.Close() }()
	var out [][]string
	for rows.Next() {
		cells := make([]string, columns)
		dest := make([]any, columns)
		for i := range cells {
			dest[i] = &cells[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, fmt.Errorf("%s: %w", n.name, err)
		}
		out = append(out, cells)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	return out, nil
}

// underLock compares the rows of a small range exactly (package comment). nil: they agree. Errors: errBusy when a
// transaction keeps rows locked, errLagging, errMoved.
func (c *checker) underLock(ctx context.Context, s span, mode string) (*sighting, error) {
	// What followers have still to do must not be waited for under the lock.
	target, err := c.target(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.each(func(n *node) error { return n.await(ctx, target, followLimit) }); err != nil {
		return nil, err
	}
	l, err := c.lock(ctx, s, mode)
	if err != nil {
		return nil, err
	}
	found, err := c.held(ctx, s, l)
	l.release()
	if err != nil {
		return nil, err
	}
	seen := differing(found)
	if seen == nil {
		return nil, nil
	}
	seen.at = l.target
	return seen, c.still(ctx)
}

// held reads what the followers have while the leader's rows are locked, and makes sure that they were until the end.
func (c *checker) held(parent context.Context, s span, l *lock) (map[string]keyed, error) {
	ctx, cancel := context.WithTimeout(parent, holdLimit)
	defer cancel()
	found := map[string]keyed{c.leader.name: l.rows}
	executed := map[string]gtid.Set{}
	var mu sync.Mutex
	err := c.each(func(n *node) error {
		if err := n.await(ctx, l.target, holdLimit/2); err != nil {
			return err
		}
		rows, err := readRows(ctx, n, n.db, s, "")
		if err != nil {
			return err
		}
		has, _, err := positions(ctx, n.db)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		found[n.name], executed[n.name] = rows, has
		return nil
	})
	if err != nil && ctx.Err() != nil && parent.Err() == nil {
		return nil, fmt.Errorf("%w while rows were locked (%v): %w", errLagging, holdLimit, err)
	}
	if err != nil {
		return nil, err
	}
	knows, owns, err := positions(ctx, l.conn)
	if err != nil {
		return nil, fmt.Errorf("%w: the lock was lost: %w", errBusy, err)
	}
	for _, n := range c.followers {
		if err := n.follows(executed[n.name], knows.Union(owns)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// follows fails if a follower has executed what the leader does not know, or what it was believed never to execute.
func (n *node) follows(executed, leader gtid.Set) error {
	if !n.never.Intersect(executed).Empty() {
		return fmt.Errorf("%s: %w: it has executed what was taken for local statements of the leader", n.name, errMoved)
	}
	_, me, _, _ := gtid.ParseIncarnation(n.uuid)
	for _, sid := range executed.Subtract(leader).SIDs() {
		if _, node, _, ok := gtid.ParseIncarnation(sid.UUID); !ok || node != me {
			return fmt.Errorf("%s: %w: it has executed transactions of %s", n.name, errMoved, sid)
		}
	}
	return nil
}

// differing lists the rows that are not the same everywhere.
func differing(found map[string]keyed) *sighting {
	seen := &sighting{rows: map[string]map[string]string{}, keys: map[string][]string{}}
	for _, k := range found {
		maps.Copy(seen.keys, k.keys)
	}
	for key := range seen.keys {
		values := map[string]string{}
		for name, k := range found {
			values[name] = Absent
			if h, ok := k.hash[key]; ok {
				values[name] = h
			}
		}
		if !agree(values) {
			seen.rows[key] = values
		}
	}
	if len(seen.rows) == 0 {
		return nil
	}
	return seen
}

// lock is a transaction on the leader that keeps the rows of a range as they are.
type lock struct {
	conn   *sql.Conn
	rows   keyed
	target gtid.Set // what a follower must have executed to have the same rows
	// release ends the transaction.
	release func()
}

// lock locks and reads. A statement that waits too long is killed: it would lock rows after we have gone.
func (c *checker) lock(ctx context.Context, s span, mode string) (_ *lock, err error) {
	conn, err := c.leader.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.leader.name, err)
	}
	l := &lock{conn: conn}
	l.release = func() { _ = conn.Close() }
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	var id uint64
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return nil, fmt.Errorf("%s: %w", c.leader.name, err)
	}
	if _, err := conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return nil, fmt.Errorf("%s: %w", c.leader.name, err)
	}
	timer := time.AfterFunc(lockLimit, func() {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quickLimit)
		defer cancel()
		_, _ = c.leader.db.ExecContext(kctx, fmt.Sprintf("KILL %d", id)) // best effort: the statement has limits of its own
	})
	l.release = func() {
		timer.Stop()
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quickLimit)
		defer cancel()
		// if that fails the driver closes the connection, and the transaction ends with it
		_, _ = conn.ExecContext(rctx, "ROLLBACK")
		_ = conn.Close()
	}
	if l.rows, err = readRows(ctx, c.leader, conn, s, mode); err != nil {
		if temporary(err) || errors.Is(err, sql.ErrConnDone) || !timer.Stop() {
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		return nil, err
	}
	// From here on the limits of the followers' statements bound how long the lock is held.
	timer.Stop()
	executed, owned, err := positions(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.leader.name, err)
	}
	l.target = executed.Union(owned)
	return l, nil
}
