package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
	"trireme/internal/ops/demo"
)

// Endpoint is a direct connection to one data node's mysqld.
type Endpoint struct {
	Name string
	DB   *sql.DB
	// Inherited are the GTIDs that came with the copy of another node's data and are that node's own affair, in MySQL's
	// text form. It is the node's own claim.
	Inherited string
	// Owned is compared with the claim; nil: the owner was not read.
	Owned *Owned
}

// ErrNotEqual: the nodes' gtid_executed did not become equal in time.
var ErrNotEqual = errors.New("nodes did not become equal")

// systemSchemas are not the user's.
const systemSchemas = "'mysql','sys','information_schema','performance_schema'"

// settleTime is how long nothing must move before a GTID that only one node has is taken for a local one of that node,
// and not for one that is still on its way to the others.
const settleTime = 3 * time.Second

// WaitEqual waits until gtid_executed is the same on all nodes, but for local GTIDs (see withoutLocal), and has stopped
// moving. It returns the common set and the local ones of each node that has some. Writers must have stopped. It fails
// with ErrNotEqual, naming each node's set, when ctx ends.
func WaitEqual(ctx context.Context, nodes []Endpoint) (common string, local map[string]string, err error) {
	var last map[string]executed
	var since time.Time
	for {
		sets, err := eachNode(ctx, nodes, readExecuted)
		if err == nil {
			err = withoutInherited(nodes, sets)
		}
		if err == nil {
			if !maps.Equal(sets, last) {
				last, since = sets, time.Now()
			} else if common, local, err = withoutLocal(sets); err == nil &&
				(len(local) == 0 || time.Since(since) >= settleTime) {
				return common, local, nil // equal twice in a row: nothing is in flight
			}
		}
		if poll.Pause(ctx, 100*time.Millisecond) != nil {
			return "", nil, fmt.Errorf("%w: %s", ErrNotEqual, describeSets(last, err))
		}
	}
}

// executed is what a node has executed, in MySQL's text form, and which node it is.
type executed struct {
	set      string
	node     uint16 // by the server_uuid of its mysqld's life; 0: not of Trireme
	applying int    // transactions that its applier is in the middle of: a large one moves nothing for seconds
}

func readExecuted(ctx context.Context, db *sql.DB) (executed, error) {
	e, err := demo.ReadExecuted(ctx, db)
	return executed{set: e.Set.String(), node: e.Node, applying: e.Applying}, err
}

// Owned is what each node was seen to hold of GTIDs of its own lives, as long as a kit looks: what a node says to have
// inherited must be among it. The zero value is ready; safe for concurrent use.
type Owned struct {
	mu   sync.Mutex
	sets map[uint16]gtid.Set
}

// Look at what nodes hold now. One that does not answer holds what it held.
func (o *Owned) Look(ctx context.Context, nodes []Endpoint) {
	sets, _ := eachNode(ctx, nodes, readExecuted)
	for _, e := range sets {
		if set, err := gtid.ParseSet(e.set); err == nil {
			o.note(e.node, set)
		}
	}
}

func (o *Owned) note(node uint16, set gtid.Set) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sets == nil {
		o.sets = map[uint16]gtid.Set{}
	}
	o.sets[node] = o.sets[node].Union(ownedBy(set, node))
}

// ownedBy is the part of a set that is of a node's own lives.
func ownedBy(set gtid.Set, node uint16) (out gtid.Set) {
	for _, sid := range set.SIDs() {
		if _, n, _, ok := gtid.ParseIncarnation(sid.UUID); ok && n == node {
			out.AddSet(set.Of(sid.UUID))
		}
	}
	return out
}

// proven is the part of a claim that other nodes than the one that makes it were seen to hold of their own.
func (o *Owned) proven(claim gtid.Set, of uint16) (out gtid.Set) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for node, set := range o.sets {
		if node != of {
			out.AddSet(claim.Intersect(set))
		}
	}
	return out
}

// withoutInherited takes away what came with the copy of another node's data. Two nodes have it then, so it would not
// pass for local. A node's own word is not enough: what it claims must be of another node's lives, and where somebody
// looked, that node was seen to hold it. What is not proven stays, and is judged like everything else.
func withoutInherited(nodes []Endpoint, sets map[string]executed) error {
	for _, n := range nodes {
		if n.Inherited == "" {
			continue
		}
		e := sets[n.Name]
		all, err := gtid.ParseSet(e.set)
		claim, err2 := gtid.ParseSet(n.Inherited)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("gtid_executed of %s: %w", n.Name, err)
		}
		claim = claim.Subtract(ownedBy(claim, e.node))
		if n.Owned != nil {
			claim = n.Owned.proven(claim, e.node)
		}
		e.set = all.Subtract(claim).String()
		sets[n.Name] = e
	}
	return nil
}

// withoutLocal takes away what each node has executed alone under a server_uuid of one of its own incarnations, such as
// a REPAIR TABLE on a follower: statements that were never meant for the log. They may lie between transactions that
// all have: of a life that led, followed and led again. It fails with ErrNotEqual when what is left differs, when a
// node alone has what another node's incarnation has made, and while one applies what may be it. That a transaction
// which should have been replicated is not among the local ones is for the comparison of the data to show.
func withoutLocal(sets map[string]executed) (common string, local map[string]string, err error) {
	parsed := map[string]gtid.Set{}
	for name, e := range sets {
		if parsed[name], err = gtid.ParseSet(e.set); err != nil {
			return "", nil, fmt.Errorf("gtid_executed of %s: %w", name, err)
		}
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
		rest := parsed[name].Subtract(alone)
		for _, sid := range alone.SIDs() {
			own := alone.Of(sid.UUID)
			if _, node, _, ok := gtid.ParseIncarnation(sid.UUID); !ok || node != sets[name].node {
				return "", nil, fmt.Errorf("%w: only %s has %s, which is not of its own lives", ErrNotEqual, name, own)
			}
		}
		if !alone.Empty() {
			local[name] = alone.String()
		}
		if !first && rest.String() != common {
			return "", nil, fmt.Errorf("%w: %s", ErrNotEqual, name)
		}
		common, first = rest.String(), false
	}
	for name, e := range sets {
		if len(local) > 0 && e.applying > 0 {
			return "", nil, fmt.Errorf("%w: %s is applying a transaction", ErrNotEqual, name)
		}
	}
	return common, local, nil
}

func describeSets(sets map[string]executed, err error) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		fmt.Fprintf(&b, "%s has executed %s; ", name, sets[name].set)
	}
	if err != nil {
		b.WriteString(err.Error())
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// eachNode asks all nodes at once.
func eachNode[T any](ctx context.Context, nodes []Endpoint, f func(context.Context, *sql.DB) (T, error)) (map[string]T,
	error) {
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

// Checksums returns CHECKSUM TABLE of every user table, by schema.table.
func Checksums(ctx context.Context, db *sql.DB) (map[string]string, error) {
	tables, err := userTables(ctx, db)
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

// Definitions describes every table, view, routine, trigger and event of the user's schemas, by its kind and name.
func Definitions(ctx context.Context, db *sql.DB) (map[string]string, error) {
	out := map[string]string{}
	for _, query := range []string{
		"SELECT CONCAT('schema ', schema_name), CONCAT_WS(' ', default_character_set_name, default_collation_name, default_encryption) " +
			"FROM information_schema.schemata WHERE schema_name NOT IN (" + systemSchemas + ")",
		"SELECT CONCAT('view ', table_schema, '.', table_name), CONCAT_WS(' ', view_definition, check_option, definer, security_type, " +
			"character_set_client, collation_connection) FROM information_schema.views WHERE table_schema NOT IN (" +
			systemSchemas + ")",
		"SELECT CONCAT(LOWER(routine_type), ' ', routine_schema, '.', routine_name), CONCAT_WS(' ', dtd_identifier, routine_definition, " +
			"is_deterministic, sql_data_access, security_type, sql_mode, routine_comment, definer, character_set_client, collation_connection, " +
			"(SELECT GROUP_CONCAT(CONCAT_WS(' ', p.parameter_mode, p.parameter_name, p.dtd_identifier) ORDER BY p.ordinal_position) " +
			"FROM information_schema.parameters p WHERE p.specific_schema = routine_schema AND p.specific_name = r.specific_name)) " +
			"FROM information_schema.routines r WHERE routine_schema NOT IN (" + systemSchemas + ")",
		"SELECT CONCAT('trigger ', trigger_schema, '.', trigger_name), CONCAT_WS(' ', action_timing, event_manipulation, event_object_table, " +
			"action_order, action_statement, sql_mode, definer, character_set_client, collation_connection) " +
			"FROM information_schema.triggers WHERE trigger_schema NOT IN (" + systemSchemas + ")",
		// Events are disabled on servers that take no writes. Only whether the user has disabled an event could be
		// compared, and followers do not know that.
		"SELECT CONCAT('event ', event_schema, '.', event_name), CONCAT_WS(' ', event_definition, event_type, execute_at, interval_value, " +
			"interval_field, starts, ends, on_completion, event_comment, time_zone, sql_mode, definer, character_set_client, collation_connection) " +
			"FROM information_schema.events WHERE event_schema NOT IN (" + systemSchemas + ")",
	} {
		defs, err := queryPairs(ctx, db, query)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, defs)
	}
	tables, err := userTables(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		var name, def string
		if err := db.QueryRowContext(ctx, "SHOW CREATE TABLE "+t).Scan(&name, &def); err != nil {
			return nil, fmt.Errorf("definition of %s: %w", t, err)
		}
		out["table "+t] = counter.ReplaceAllString(def, "")
	}
	return out, nil
}

// counter of a table: if a number was given out and not used, a follower's counter is lower.
var counter = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// userTables lists the base tables of the user's schemas, quoted.
func userTables(ctx context.Context, db *sql.DB) ([]string, error) {
	return queryStrings(ctx, db,
		"SELECT CONCAT('`', REPLACE(table_schema,'`','``'), '`.`', REPLACE(table_name,'`','``'), '`') "+
			"FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ("+systemSchemas+")")
}

// Accounts returns every account with its credentials and limits, and every one with what it was granted; but for
// Trireme's own and the server's, which each node makes for itself.
func Accounts(ctx context.Context, db *sql.DB) (map[string]string, error) {
	const users = "FROM mysql.user WHERE user NOT LIKE 'trireme\\_%' AND user NOT LIKE 'mysql.%' AND user <> 'root'"
	out, err := queryPairs(ctx, db,
		"SELECT CONCAT('account ', user, '@', host), CONCAT_WS(' ', plugin, HEX(authentication_string), account_locked, "+
			"password_expired, password_lifetime, ssl_type, max_questions, max_updates, max_connections, max_user_connections, user_attributes, "+
			"(SELECT GROUP_CONCAT(default_role_user, '@', default_role_host ORDER BY 1) FROM mysql.default_roles d "+
			"WHERE d.user = mysql.user.user AND d.host = mysql.user.host)) "+users)
	if err != nil {
		return nil, err
	}
	names, err := queryStrings(ctx, db, "SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) "+users)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		grants, err := queryStrings(ctx, db, "SHOW GRANTS FOR "+name)
		if err != nil {
			return nil, fmt.Errorf("grants of %s: %w", name, err)
		}
		slices.Sort(grants)
		out["grants "+name] = strings.Join(grants, "; ")
	}
	return out, nil
}

func queryStrings(ctx context.Context, db *sql.DB, query string) (out []string, err error) {
	var s string
	err = eachRow(ctx, db, query, func() { out = append(out, s) }, &s)
	return out, err
}

func queryPairs(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	var k string
	var v sql.NullString
	out := map[string]string{}
	err := eachRow(ctx, db, query, func() { out[k] = v.String }, &k, &v)
	return out, err
}

// preparedXIDs returns the xids of XA RECOVER that are printable, as text.
func preparedXIDs(ctx context.Context, db *sql.DB) (out []string, err error) {
	var format, gtrid, bqual int
	var data string
	err = eachRow(ctx, db, "XA RECOVER", func() { out = append(out, data) }, &format, &gtrid, &bqual, &data)
	return out, err
}

// held is what one node holds of the workload's tables.
type held struct {
	Rows
	wrong []WrongRow
}

// WrongRow is a row of an attempt that does not hold what its client wrote.
type WrongRow struct {
	Table int `json:"table"`
	Attempt
	Payload string `json:"payload"` // the beginning of it
}

// readRows counts the rows of every attempt in the workload's tables, and looks at what they hold.
func (p *rowsPart) readRows(ctx context.Context, db *sql.DB) (held, error) {
	var out held
	for t := range p.cfg.Tables {
		counts := map[Attempt]int{}
		var a Attempt
		var payload string
		err := eachRow(ctx, db, "SELECT writer, seq, payload FROM "+p.cfg.Database+"."+tableName(t), func() {
			counts[a]++
			if payload != payloadOf(a, p.cfg.PayloadBytes) {
				out.wrong = append(out.wrong, WrongRow{t, a, payload[:min(len(payload), maxPayloadShown)]})
			}
		}, &a.Writer, &a.Seq, &payload)
		if err != nil {
			return out, err
		}
		out.Rows = append(out.Rows, counts)
	}
	return out, nil
}

const maxPayloadShown = 80 // bytes

// eachRow calls f for each row of a result, once its columns are in the variables.
func eachRow(ctx context.Context, db *sql.DB, query string, f func(), into ...any) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		f()
	}
	return rows.Err()
}

// readAttempts counts the rows of every attempt in one table.
func readAttempts(ctx context.Context, db *sql.DB, table string) (Rows, error) {
	var a Attempt
	out := Rows{{}}
	err := eachRow(ctx, db, "SELECT writer, seq FROM "+table, func() { out[0][a]++ }, &a.Writer, &a.Seq)
	return out, err
}
