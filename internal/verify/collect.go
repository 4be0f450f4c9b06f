package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/gtid"
)

// Endpoint is a direct connection to one data node's mysqld.
type Endpoint struct {
	Name string
	DB   *sql.DB
	// Inherited are the GTIDs that came with the copy of another node's data and are that node's own affair, in MySQL's text form.
	Inherited string
}

// ErrNotEqual: the nodes' gtid_executed did not become equal in time.
var ErrNotEqual = errors.New("nodes did not become equal")

// systemSchemas are not the user's.
const systemSchemas = "'mysql','sys','information_schema','performance_schema'"

// settleTime is how long nothing must move before a GTID that only one node has is taken for a local one of that node, and
// not for one that is still on its way to the others.
const settleTime = 3 * time.Second

// WaitEqual waits until gtid_executed is the same on all nodes, but for local GTIDs (see withoutLocal), and has stopped moving. It
// returns the common set and the local ones of each node that has some. Writers must have stopped. It fails with ErrNotEqual, naming
// each node's set, when ctx ends.
func WaitEqual(ctx context.Context, nodes []Endpoint) (common string, local map[string]string, err error) {
	var last map[string]string
	var since time.Time
	for {
		sets, err := eachNode(ctx, nodes, gtidExecuted)
		if err == nil {
			err = withoutInherited(nodes, sets)
		}
		if err == nil {
			if !maps.Equal(sets, last) {
				last, since = sets, time.Now()
			} else if common, local, err = withoutLocal(sets); err == nil && (len(local) == 0 || time.Since(since) >= settleTime) {
				return common, local, nil // equal twice in a row: nothing is in flight
			}
		}
		select {
		case <-ctx.Done():
			return "", nil, fmt.Errorf("%w: %s", ErrNotEqual, describeSets(last, err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// withoutInherited takes away what came with the copy of another node's data. Two nodes have it then, so it would not pass for local.
func withoutInherited(nodes []Endpoint, sets map[string]string) error {
	for _, n := range nodes {
		if n.Inherited == "" {
			continue
		}
		var all, inherited gtid.Set
		if err := errors.Join(all.UnmarshalText([]byte(sets[n.Name])), inherited.UnmarshalText([]byte(n.Inherited))); err != nil {
			return fmt.Errorf("gtid_executed of %s: %w", n.Name, err)
		}
		sets[n.Name] = all.Subtract(inherited).String()
	}
	return nil
}

// withoutLocal takes away what each node has executed alone under a server_uuid of a Trireme incarnation, such as a REPAIR TABLE on a
// follower: statements that were never meant for the log. It fails with ErrNotEqual when what is left differs. That a transaction
// which should have been replicated is not among the local ones is for the comparison of the data to show.
func withoutLocal(sets map[string]string) (common string, local map[string]string, err error) {
	parsed := map[string]gtid.Set{}
	for name, text := range sets {
		var s gtid.Set
		if err := s.UnmarshalText([]byte(text)); err != nil {
			return "", nil, fmt.Errorf("gtid_executed of %s: %w", name, err)
		}
		parsed[name] = s
	}
	local = map[string]string{}
	first := true
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		alone := parsed[name]
		for other, s := range parsed {
			if other != name {
				alone = alone.Subtract(s)
			}
		}
		if len(parsed) == 1 {
			alone = gtid.Set{}
		}
		for _, sid := range alone.SIDs() {
			if _, _, _, ok := gtid.ParseIncarnation(sid.UUID); !ok {
				return "", nil, fmt.Errorf("%w: only %s has %s", ErrNotEqual, name, alone.Of(sid.UUID))
			}
		}
		if !alone.Empty() {
			local[name] = alone.String()
		}
		rest := parsed[name].Subtract(alone).String()
		if !first && rest != common {
			return "", nil, fmt.Errorf("%w: %s", ErrNotEqual, name)
		}
		common, first = rest, false
	}
	return common, local, nil
}

func describeSets(sets map[string]string, err error) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		fmt.Fprintf(&b, "%s has executed %s; ", name, sets[name])
	}
	if err != nil {
		b.WriteString(err.Error())
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// eachNode asks all nodes at once.
func eachNode[T any](ctx context.Context, nodes []Endpoint, f func(context.Context, *sql.DB) (T, error)) (map[string]T, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[string]T, len(nodes))
	var errs []error
	for _, n := range nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			v, err := f(ctx, n.DB)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", n.Name, err))
				return
			}
			out[n.Name] = v
		}()
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func gtidExecuted(ctx context.Context, db *sql.DB) (string, error) {
	var set string
	err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&set)
	return strings.Join(strings.Fields(set), ""), err
}

// Checksums returns CHECKSUM TABLE of every user table, by schema.table.
func Checksums(ctx context.Context, db *sql.DB) (map[string]string, error) {
	tables, err := queryStrings(ctx, db, "SELECT CONCAT('`', REPLACE(table_schema,'`','``'), '`.`', REPLACE(table_name,'`','``'), '`') FROM information_schema.tables "+
		"WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ("+systemSchemas+")")
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(tables))
	for _, t := range tables {
		var name string
		var sum sql.NullInt64
		if err := db.QueryRowContext(ctx, "CHECKSUM TABLE "+t).Scan(&name, &sum); err != nil {
			return nil, fmt.Errorf("checksum of %s: %w", t, err)
		}
		if !sum.Valid {
			return nil, fmt.Errorf("checksum of %s: the server returned NULL (table unreadable)", t)
		}
		out[t] = fmt.Sprint(sum.Int64)
	}
	return out, nil
}

// Definitions describes every column of every user table, by schema.table.column.
func Definitions(ctx context.Context, db *sql.DB) (map[string]string, error) {
	return queryPairs(ctx, db, "SELECT CONCAT(table_schema, '.', table_name, '.', column_name), "+
		"CONCAT_WS(' ', ordinal_position, column_type, is_nullable, column_default, column_key, extra) FROM information_schema.columns "+
		"WHERE table_schema NOT IN ("+systemSchemas+")")
}

// Accounts returns every account with its credentials and its privileges on schemas, as one string each; but for Trireme's own
// and the server's, which each node makes for itself.
func Accounts(ctx context.Context, db *sql.DB) (map[string]string, error) {
	out, err := queryPairs(ctx, db, "SELECT CONCAT('account ', user, '@', host), CONCAT_WS(' ', plugin, HEX(authentication_string), account_locked) FROM mysql.user "+
		"WHERE user NOT LIKE 'trireme\\_%' AND user NOT LIKE 'mysql.%' AND user <> 'root'")
	if err != nil {
		return nil, err
	}
	grants, err := queryPairs(ctx, db, "SELECT CONCAT('grants ', grantee), GROUP_CONCAT(CONCAT(table_schema, ':', privilege_type) ORDER BY 1) "+
		"FROM information_schema.schema_privileges GROUP BY grantee")
	maps.Copy(out, grants)
	return out, err
}

func queryStrings(ctx context.Context, db *sql.DB, query string) ([]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

func queryPairs(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var k string
		var v sql.NullString
		if err := rows.Scan(&k, &v); err != nil {
			return nil, err
		}
		out[k] = v.String
	}
	return out, rows.Err()
}

// preparedXIDs returns the xids of XA RECOVER that are printable, as text.
func preparedXIDs(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "XA RECOVER")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var format, gtrid, bqual int
		var data string
		if err := rows.Scan(&format, &gtrid, &bqual, &data); err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return out, rows.Err()
}

// readRows counts the rows of every attempt in the workload's tables.
func (w *Workload) readRows(ctx context.Context, db *sql.DB) (Rows, error) {
	var out Rows
	for t := range w.cfg.Tables {
		rows, err := readAttempts(ctx, db, w.cfg.Database+"."+tableName(t))
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// readAttempts counts the rows of every attempt in one table.
func readAttempts(ctx context.Context, db *sql.DB, table string) (Rows, error) {
	out := Rows{{}}
	rows, err := db.QueryContext(ctx, "SELECT writer, seq FROM "+table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a Attempt
		if err := rows.Scan(&a.Writer, &a.Seq); err != nil {
			return nil, err
		}
		out[0][a]++
	}
	return out, rows.Err()
}
