package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// DrillOptions of Drill. Dir of the restoration is the drill's own; its To is ignored.
type DrillOptions struct {
	RestoreOptions
	// Scratch is a directory that exists, in which the drill makes one of its own and removes it.
	Scratch string
	// With is a node of this host whose mysqld is compared with what was restored; nil: nothing is compared.
	With *Source
}

// Drilled is the outcome of a Drill.
type Drilled struct {
	Base           string       `json:"base"`
	Index          uint64       `json:"index"`
	GTIDs          gtid.Set     `json:"gtid_executed"`
	Newest         time.Time    `json:"newest,omitzero"`
	Bytes          int64        `json:"bytes"` // of the copy
	RestoreSeconds float64      `json:"restore_seconds"`
	ReadSeconds    float64      `json:"read_seconds"` // of all tables of what was restored
	Tables         int          `json:"tables"`
	With           string       `json:"with,omitempty"` // node that it was compared with
	Differences    []Difference `json:"differences"`
}

// Difference is a table that is not the same in both.
type Difference struct {
	Table string `json:"table"`
	What  string `json:"what"`
}

// Limits of a drill.
const (
	lockLimit   = 5 // seconds that commits of the follower may be held, at most
	lookAgain   = 3 // tables changed their definition meanwhile
	archiveWait = 2 * time.Minute
)

// look is what a server's tables hold at one moment: checksums by table.
type look struct {
	node  string
	gtids gtid.Set
	sums  map[string]string
}

// Drill proves a backup: it restores it into a directory of its own, reads every table, compares checksums with those
// of a follower at the same moment, and removes everything again. Its errors are those of Restore; a table that differs
// is not an error.
func Drill(ctx context.Context, o DrillOptions) (d *Drilled, err error) {
	d = &Drilled{Differences: []Difference{}}
	o.To = Target{}
	var live look
	if o.With != nil {
		if live, err = o.lookAtNode(ctx); err != nil {
			return nil, err
		}
		d.With = live.node
		if o.To, err = awaitSet(ctx, o.From, live.gtids); err != nil {
			return nil, err
		}
	}
	scratch, err := os.MkdirTemp(o.Scratch, "trireme-drill-")
	if err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	defer func() {
		if rerr := os.RemoveAll(scratch); rerr != nil {
			err = errors.Join(err, fmt.Errorf("drill: clear up %s: %w; remove it yourself", scratch, rerr))
		}
	}()
	if err := os.Chmod(scratch, 0o711); err != nil { // mysqld may be another user
		return nil, fmt.Errorf("drill: %w", err)
	}
	began := time.Now()
	var restored look
	o.look = func(ctx context.Context, cfg mysqld.Config) (err error) {
		d.RestoreSeconds = time.Since(began).Seconds()
		began = time.Now()
		defer func() { d.ReadSeconds = time.Since(began).Seconds() }()
		o.Say("reading every table of what was restored")
		restored, err = lookAtServer(ctx, cfg)
		return err
	}
	o.Dir = filepath.Join(scratch, "restored")
	res, err := Restore(ctx, o.RestoreOptions)
	if err != nil {
		return nil, err
	}
	d.Base, d.Index, d.GTIDs, d.Newest, d.Bytes, d.Tables = res.Base, res.Index, res.GTIDs, res.Newest, res.Bytes,
		len(restored.sums)
	if o.With != nil {
		d.Differences = live.compare(&restored)
	}
	return d, nil
}

// compare gives the tables that are not the same in both.
func (a *look) compare(b *look) []Difference {
	all := []Difference{}
	for _, name := range slices.Sorted(maps.Keys(a.sums)) {
		switch sum, there := b.sums[name]; {
		case !there:
			all = append(all, Difference{name, "is on " + a.node + " and was not restored"})
		case sum != a.sums[name]:
			all = append(all, Difference{name, fmt.Sprintf("has checksum %s on %s and %s in what was restored", a.sums[name],
				a.node, sum)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.sums)) {
		if _, there := a.sums[name]; !there {
			all = append(all, Difference{name, "was restored and is not on " + a.node})
		}
	}
	return all
}

// lookAtNode looks at this host's node, which must be a healthy follower: its commits are held for a moment, and no
// client waits for them.
func (o *DrillOptions) lookAtNode(ctx context.Context) (l look, err error) {
	v, err := askCluster(ctx, o.With.Daemon)
	if err != nil {
		return l, err
	}
	self, _ := member(v, o.With.Node.Name)
	switch {
	case self.Name == v.Leader:
		return l,
			fmt.Errorf(
				"drill: %s leads, and a drill must not hold its commits: run the drill on a follower's host, or with --no-compare",
				self.Name)
	case self.State != api.StateHealthy || self.MySQL == nil || self.MySQL.PID == 0:
		return l, fmt.Errorf("drill: %s is no healthy node with data: run the drill on the host of one, or with --no-compare",
			o.With.Node.Name)
	}
	cfg := mysqld.Config{Dir: o.With.Node.MySQLDir(), Admin: mysqld.Account(o.With.Secrets.Admin)}
	o.Say("reading every table of %s, as of this moment", self.Name)
	for range lookAgain {
		if l, err = lookAtServer(ctx, cfg); err == nil || !errors.Is(err, errChanged) {
			break
		}
	}
	l.node = self.Name
	if err != nil {
		return l, fmt.Errorf("drill: look at %s: %w", self.Name, err)
	}
	return l, nil
}

// errChanged: a table's definition changed after the moment that is looked at.
var errChanged = errors.New("tables were changed (DDL) while they were read")

// lookAtServer reads all tables of a server as of one moment, in one session. The lock is held until the moment is
// fixed.
func lookAtServer(ctx context.Context, cfg mysqld.Config) (l look, err error) {
	db, err := openSQL(cfg, cfg.Admin)
	if err != nil {
		return l, err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return l, err
	}
	defer func() { _ = conn.Close() }()
	for _, q := range []string{fmt.Sprintf("SET SESSION lock_wait_timeout = %d, transaction_isolation = 'REPEATABLE-READ'",
		lockLimit), "FLUSH TABLES WITH READ LOCK",
		"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return l, fmt.Errorf("%s: %w", q, err)
		}
	}
	var executed string
	err = conn.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&executed)
	if _, uerr := conn.ExecContext(ctx, "UNLOCK TABLES"); err == nil {
		err = uerr
	}
	if err != nil {
		return l, err
	}
	if l.gtids, err = gtid.ParseSet(executed); err != nil {
		return l, err
	}
	l.sums, err = checksums(ctx, conn)
	return l, err
}

// checksums of all tables that are not the server's own, as the session sees them.
func checksums(ctx context.Context, conn *sql.Conn) (map[string]string, error) {
	const q = "SELECT CONCAT('`', REPLACE(TABLE_SCHEMA, '`', '``'), '`.`', REPLACE(TABLE_NAME, '`', '``'), '`') FROM information_schema.TABLES " +
		"WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
	rows, err := conn.QueryContext(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, name := range names {
		var table string
		var sum sql.NullString // NULL: a warning says why
		err := conn.QueryRowContext(ctx, "CHECKSUM TABLE "+name).Scan(&table, &sum)
		if err != nil {
			return nil, fmt.Errorf("CHECKSUM TABLE %s: %w", name, err)
		}
		if !sum.Valid {
			return nil, whyNoSum(ctx, conn, name)
		}
		sums[name] = sum.String
	}
	return sums, nil
}

func whyNoSum(ctx context.Context, conn *sql.Conn, name string) error {
	var level, message string
	var code int
	if err := conn.QueryRowContext(ctx, "SHOW WARNINGS LIMIT 1").Scan(&level, &code, &message); err != nil &&
		!errors.Is(err, sql.ErrNoRows) {
		return err
	}
	const gone, changed = 1146, 1412
	if code == gone || code == changed {
		return fmt.Errorf("%w: %s: %s", errChanged, name, message)
	}
	return fmt.Errorf("the table %s cannot be read: error %d: %s", name, code, message)
}

// awaitSet waits until the archive holds a set of transactions, and finds its end.
func awaitSet(ctx context.Context, s Store, set gtid.Set) (Target, error) {
	ctx, cancel := context.WithTimeout(ctx, archiveWait)
	defer cancel()
	for {
		c, err := Read(s)
		if err != nil {
			return Target{}, err
		}
		if set.Subtract(c.Reached.GTIDs).Empty() {
			return c.endOf(set)
		}
		if poll.Pause(ctx, archivePause) != nil {
			return Target{},
				fmt.Errorf("%w: the archive did not get to transactions %s within %v: is `trireme backup --follow` running? (%s)",
					ErrTarget,
					set.Subtract(c.Reached.GTIDs), archiveWait, c.span())
		}
	}
}

// endOf finds the place in the log up to which a set of transactions goes, with nothing missing in between.
func (c *Contents) endOf(set gtid.Set) (t Target, err error) {
	for i := len(c.Segments) - 1; i >= 0 && t.GTID.IsZero(); i-- {
		if c.Segments[i].GTIDs.Intersect(set).Empty() {
			continue
		}
		if _, err := readSegment(c.store, c.Segments[i].Name(), func(e Entry) error {
			m, _, ok, err := trxOf(&e)
			if err != nil || !ok {
				return err
			}
			for _, r := range m.GTIDs {
				for n := r.First; n <= r.Last; n++ {
					if g := (gtid.GTID{SID: r.SID, GNO: n}); set.Contains(g) {
						t.GTID = g
					}
				}
			}
			return nil
		}); err != nil {
			return t, err
		}
	}
	if t.GTID.IsZero() {
		return t, fmt.Errorf("%w: none of the transactions %s", ErrTarget, set)
	}
	p, err := c.findGTID(t.GTID)
	if err == nil && !p.GTIDs.Equal(set) {
		err = fmt.Errorf("%w: a moment with the transactions %s; up to %s there are also %s, and not %s", ErrTarget, set,
			t.GTID, p.GTIDs.Subtract(set),
			set.Subtract(p.GTIDs))
	}
	return t, err
}
