package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/internal/mysql/gtid"
)

// write names one write of the load.
type write struct{ writer, seq int }

// held is what one data node holds.
type held struct {
	rows map[string]map[write]int // how often each write is there, by table
	sums map[string]string        // CHECKSUM TABLE of all user tables
}

// Executed is what a server has executed.
type Executed struct {
	Set      gtid.Set
	Node     uint16 // whose lives' GTIDs are its own, by the server_uuid of its present one; 0: not of Trireme
	Applying int    // transactions that its applier is in the middle of: a large one moves nothing for seconds
}

// ReadExecuted asks a server.
func ReadExecuted(ctx context.Context, db *sql.DB) (e Executed, err error) {
	const query = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid, " +
		"(SELECT COUNT(*) FROM performance_schema.replication_applier_status_by_worker WHERE APPLYING_TRANSACTION <> '')"
	var set, id string
	if err := db.QueryRowContext(ctx, query).Scan(&set, &id, &e.Applying); err != nil {
		return e, err
	}
	uuid, err := gtid.ParseUUID(id)
	if err != nil {
		return e, err
	}
	_, e.Node, _, _ = gtid.ParseIncarnation(uuid)
	e.Set, err = gtid.ParseSet(set)
	return e, err
}

// settled: gtid_executed has not moved for so long.
const settled = 3 * time.Second

// check waits until all data nodes have executed the same, and compares what they hold with each other and with what
// the load was answered. The load must have ended.
func (c *Cluster) check(ctx context.Context, l *load) (Report, error) {
	r := Report{Counts: l.counts(), Problems: []Problem{}}
	dbs := map[string]*sql.DB{}
	for _, n := range c.DataNodes() {
		r.Nodes = append(r.Nodes, n.Name)
		login := c.Direct(n)
		login.StatementTimeout = time.Minute // checksums of large tables
		db, err := login.Open("")
		if err != nil {
			return r, err
		}
		defer db.Close()
		dbs[n.Name] = db
	}
	var err error
	if r.GTIDExecuted, err = c.waitEqual(ctx, dbs); err != nil {
		return r, err
	}
	nodes := map[string]held{}
	for name, db := range dbs {
		h, err := readHeld(ctx, db)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		nodes[name] = h
		r.Tables = len(h.sums)
	}
	r.Problems = append(judgeRows(l.outcomes, nodes), judgeSums(nodes)...)
	return r, nil
}

// waitEqual waits until all nodes have executed the same, and returns that.
func (c *Cluster) waitEqual(ctx context.Context, dbs map[string]*sql.DB) (common string, err error) {
	last, since := "", time.Now()
	err = pollUntil(ctx, 100*time.Millisecond, "gtid_executed to be the same on all nodes", func() error {
		sets := map[string]Executed{}
		for name, db := range dbs {
			e, err := readExecuted(ctx, c.Node(name), db)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			sets[name] = e
		}
		if now := describe(sets); now != last {
			last, since = now, time.Now()
		}
		set, local, err := equal(sets)
		common = set.String()
		if err == nil && local && time.Since(since) < settled {
			err = errors.New("what one node alone has executed may be on its way to the others")
		}
		return err
	})
	return common, err
}

// readExecuted leaves out what came with the copy of another node's data.
func readExecuted(ctx context.Context, n *Node, db *sql.DB) (Executed, error) {
	e, err := ReadExecuted(ctx, db)
	if err != nil {
		return e, err
	}
	inherited, err := n.Inherited()
	if err != nil {
		return e, err
	}
	copied, err := gtid.ParseSet(inherited)
	e.Set = e.Set.Subtract(copied)
	return e, err
}

func describe(sets map[string]Executed) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		fmt.Fprintf(&b, "%s has executed %s; ", name, sets[name].Set.String())
	}
	return b.String()
}

// equal is what all have executed. What a node alone has executed is set aside, if it is of one of its own lives: it
// was never meant for the log.
func equal(sets map[string]Executed) (common gtid.Set, local bool, err error) {
	first := true
	for _, e := range sets {
		if first {
			common, first = e.Set, false
		}
		common = common.Intersect(e.Set)
	}
	for name, e := range sets {
		alone := e.Set.Subtract(common)
		for _, sid := range alone.SIDs() {
			_, node, _, ok := gtid.ParseIncarnation(sid.UUID)
			if !ok || node != e.Node {
				return common, local, fmt.Errorf("not all nodes have %v, as %s has", alone.Of(sid.UUID), name)
			}
			local = true
		}
	}
	for name, e := range sets {
		if local && e.Applying > 0 {
			return common, local, fmt.Errorf("%s is applying a transaction", name)
		}
	}
	return common, local, nil
}

func readHeld(ctx context.Context, db *sql.DB) (held, error) {
	h := held{rows: map[string]map[write]int{}, sums: map[string]string{}}
	for _, t := range loadTables {
		h.rows[t] = map[write]int{}
		rows, err := db.QueryContext(ctx, "SELECT writer, seq, COUNT(*) FROM demo."+t+" GROUP BY writer, seq")
		if err != nil {
			return h, err
		}
		for rows.Next() {
			var w write
			var n int
			if err := rows.Scan(&w.writer, &w.seq, &n); err != nil {
				rows.Close()
				return h, err
			}
			h.rows[t][w] = n
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return h, err
		}
	}
	var list sql.NullString
	const tables = "SELECT JSON_ARRAYAGG(CONCAT('`', table_schema, '`.`', table_name, '`')) FROM information_schema.tables " +
		"WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('mysql','sys','information_schema','performance_schema')"
	if err := db.QueryRowContext(ctx, tables).Scan(&list); err != nil {
		return h, err
	}
	for _, t := range strings.Split(strings.Trim(list.String, `[]`), ", ") {
		var name string
		var sum sql.NullString
		if err := db.QueryRowContext(ctx, "CHECKSUM TABLE "+strings.Trim(t, `"`)).Scan(&name, &sum); err != nil {
			return h, fmt.Errorf("checksum of %s: %w", t, err)
		}
		h.sums[name] = sum.String
	}
	return h, nil
}

// judgeRows compares what the nodes hold with what the writers were answered.
func judgeRows(outcomes [][]outcome, nodes map[string]held) []Problem {
	var problems []Problem
	names := slices.Sorted(maps.Keys(nodes))
	for _, name := range names {
		report := func(kind string, w write, format string, args ...any) {
			problems = append(problems, Problem{kind, name, fmt.Sprintf("writer %d seq %d ", w.writer, w.seq) +
				fmt.Sprintf(format, args...)})
		}
		for writer, list := range outcomes {
			for seq, o := range list {
				w, tables, there := write{writer, seq}, tablesOf(writer, seq), 0
				for _, t := range tables {
					switch n := nodes[name].rows[t][w]; {
					case n > 1:
						report("write applied twice", w, "has %d rows in %s", n, t)
						there++
					case n == 1:
						there++
					}
				}
				switch {
				case there > 0 && there < len(tables):
					report("transaction torn", w, "is in %d of %d tables", there, len(tables))
				case there == 0 && o == acked:
					report("acknowledged write lost", w, "is not there")
				case there > 0 && o == refused:
					report("write that was never committed exists", w, "was refused")
				}
			}
		}
		for t, rows := range nodes[name].rows {
			for w := range rows {
				attempted := w.writer >= 0 && w.writer < len(outcomes) && w.seq >= 0 && w.seq < len(outcomes[w.writer])
				if !attempted || !slices.Contains(tablesOf(w.writer, w.seq), t) {
					report("write that was never committed exists", w, "in %s was never attempted", t)
				}
			}
		}
	}
	return problems
}

// judgeSums finds nodes whose tables differ from those of the first one: there a write without an answer is on some
// nodes and not on all, say.
func judgeSums(nodes map[string]held) []Problem {
	var problems []Problem
	names := slices.Sorted(maps.Keys(nodes))
	for _, name := range names[1:] {
		first := nodes[names[0]].sums
		all := maps.Clone(first)
		maps.Copy(all, nodes[name].sums)
		for _, t := range slices.Sorted(maps.Keys(all)) {
			if a, b := first[t], nodes[name].sums[t]; a != b {
				problems = append(problems,
					Problem{"nodes differ", name, fmt.Sprintf("checksum of %s: %q, on %s: %q", t, b, names[0], a)})
			}
		}
	}
	return problems
}
