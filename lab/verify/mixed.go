package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/poll"
)

// The mixed part of a workload: statements that a row insert does not exercise. Each session keeps what it knows, and
// judge functions below compare that with the nodes.
//
//	transfers  money moves between rows; the sum never changes (bank.go)
//	tables     CREATE, INSERT, ALTER, DROP, with DROP … IF EXISTS of what is missing (and is created next) and
//	           CREATE … IF NOT EXISTS of what exists: statements without a trace in InnoDB
//	accounts   CREATE USER, GRANT, the same GRANT again, CREATE USER IF NOT EXISTS of who exists and of who does not,
//	           DROP USER IF EXISTS of a user that does not exist; roles, privileges on everything and on columns
//	XA         two-phase transactions, some left prepared for a while

const (
	// mixedPause keeps the DDL sessions from filling the catalogue.
	mixedPause = 20 * time.Millisecond
	xaNota     = 1397 // ER_XAER_NOTA: no such prepared transaction
)

// presence is what the client knows about an object.
type presence int

const (
	maybe presence = iota
	present
	absent
)

type xaState struct {
	Prepared Outcome `json:"prepared"`
	Commit   bool    `json:"commit,omitempty"`   // decision, made before anything is sent
	Resolved bool    `json:"resolved,omitempty"` // the decision was acknowledged
	// Gone: the decision met XAER_NOTA at its first try, although nothing had been decided before.
	Gone  bool `json:"gone,omitempty"`
	Tried bool `json:"tried,omitempty"`
	step  int  // of the session, at which it was made
}

// Kinds of mixed sessions.
const (
	kindBank = "bank"
	kindDDL  = "ddl"
	kindACL  = "acl"
	kindXA   = "xa"
)

func (m *mixedPart) count(kind string) {
	m.mu.Lock()
	m.acked[kind]++
	m.mu.Unlock()
}

func (m *mixedPart) sumUp(o Outcome) {
	m.mu.Lock()
	m.sum = m.sum.with(o)
	m.mu.Unlock()
}

func (m *mixedPart) note(object string, p presence) {
	m.mu.Lock()
	m.objects[object] = p
	m.mu.Unlock()
}

func (m *mixedPart) transfer(s *session, k int) {
	outcome := (Transfer{From: k % bankAccounts, To: (k*7 + 3) % bankAccounts, Amount: int64(k % 50)}).run(s)
	m.sumUp(outcome)
	if outcome == Acked {
		m.count("transfers")
	}
}

// change runs a statement that makes or removes objects, and says whether it was acknowledged.
func (m *mixedPart) change(s *session, kind string, after presence, stmt string, objects ...string) bool {
	settle := m.attempt(after, stmt, objects...)
	outcome := commitOutcome(s.exec(stmt))
	settle(outcome)
	m.sumUp(outcome)
	if outcome == Acked {
		m.count(kind)
	}
	return outcome == Acked
}

// attempt notes that objects are about to be made or removed, and returns what takes the answer. Until then, and
// without one, their presence is unknown, but for those that already are as the statement would leave them; a refusal
// leaves what was known before.
func (m *mixedPart) attempt(after presence, stmt string, objects ...string) (settle func(Outcome)) {
	before := map[string]presence{}
	m.mu.Lock()
	for _, o := range objects {
		p, known := m.objects[o]
		if !known {
			p = absent
		}
		before[o] = p
		if p != after {
			p = maybe
		}
		m.objects[o] = p
	}
	m.mu.Unlock()
	return func(outcome Outcome) {
		for _, o := range objects {
			switch outcome {
			case Acked:
				m.note(o, after)
			case Failed:
				m.note(o, before[o])
			default:
				m.mu.Lock()
				m.open[o] = append(m.open[o], openStatement{before[o], after, stmt})
				m.mu.Unlock()
			}
		}
	}
}

func (m *mixedPart) tables(s *session, k int) {
	name := fmt.Sprintf("d%d", k)
	table, row, column := "table "+name, "row "+name, "column "+name+".c"
	_ = s.exec("DROP TABLE IF EXISTS "+name) == nil && // missing; run again after the CREATE below it would do harm
		m.change(s, "ddl", present, "CREATE TABLE "+name+" (id INT PRIMARY KEY, v INT)", table) &&
		m.change(s, "ddl", present, "INSERT INTO "+name+" VALUES (1, 1)", row) &&
		m.change(s, "ddl", present, "CREATE TABLE IF NOT EXISTS "+name+" (id INT PRIMARY KEY)", table) &&
		m.change(s, "ddl", present, "ALTER TABLE "+name+" ADD COLUMN c INT NOT NULL DEFAULT 7", column) &&
		k%2 == 0 && m.change(s, "ddl", absent, "DROP TABLE "+name, table, row, column)
}

func (m *mixedPart) accounts(s *session, k int) {
	database := m.set.cfg.Database
	first, second := fmt.Sprintf("%s_%d", m.run, k), fmt.Sprintf("%s_%d_2", m.run, k)
	grant := fmt.Sprintf("GRANT SELECT ON %s.* TO %s", database, first)
	_ = s.exec("DROP USER IF EXISTS "+first) == nil &&
		m.change(s, "accounts", present, fmt.Sprintf("CREATE USER %s IDENTIFIED BY '%s'", first, first), "user "+first) &&
		m.change(s, "accounts", present, grant, "grant "+first) &&
		m.change(s, "accounts", present, grant, "grant "+first) &&
		m.change(s, "accounts", present, "CREATE USER IF NOT EXISTS "+first, "user "+first) && // there already
		m.change(s, "accounts", present, fmt.Sprintf("CREATE USER IF NOT EXISTS %s IDENTIFIED BY '%s'", second, second),
			"user "+second) &&
		m.privileges(s, k, database, first, second) &&
		k%2 == 0 && m.change(s, "accounts", absent, fmt.Sprintf("DROP USER %s, %s", first, second), "user "+first,
		"grant "+first, "user "+second, "global "+first, "dynamic "+first, "column "+first, "granted "+roleOf(first)+" "+
			first, "default "+first)
}

func roleOf(user string) string { return user + "_r" }

// privileges grants an account a role that is its default, global privileges of both sorts and some on columns, and
// takes back what another account had of it.
func (m *mixedPart) privileges(s *session, k int, database, first, second string) bool {
	role, columns := roleOf(first), fmt.Sprintf("SELECT (id), UPDATE (v) ON %s.acl_columns", database)
	granted := func(to string) string { return "granted " + role + " " + to }
	do := func(after presence, object, stmt string) bool { return m.change(s, "accounts", after, stmt, object) }
	return do(present, "user "+role, "CREATE ROLE "+role) &&
		do(present, granted(first), fmt.Sprintf("GRANT %s TO %s WITH ADMIN OPTION", role, first)) &&
		do(present, granted(second), fmt.Sprintf("GRANT %s TO %s", role, second)) &&
		do(present, "default "+first, fmt.Sprintf("ALTER USER %s DEFAULT ROLE %s", first, role)) &&
		do(present, "global "+first, "GRANT PROCESS ON *.* TO "+first) &&
		do(present, "dynamic "+first, "GRANT BACKUP_ADMIN ON *.* TO "+first) &&
		do(present, "column "+first, "GRANT "+columns+" TO "+first) &&
		do(absent, granted(second), fmt.Sprintf("REVOKE %s FROM %s", role, second)) &&
		(k%3 != 0 || do(absent, "global "+first, "REVOKE PROCESS ON *.* FROM "+first) &&
			do(absent, "dynamic "+first, "REVOKE BACKUP_ADMIN ON *.* FROM "+first) &&
			do(absent, "column "+first, "REVOKE "+columns+" FROM "+first)) &&
		(k%5 != 0 || m.change(s, "accounts", absent, "DROP ROLE "+role, "user "+role, granted(first), "default "+first))
}

func (m *mixedPart) twoPhase(s *session, k int) {
	xid := fmt.Sprintf("%s_%d", m.run, k)
	x := &xaState{Commit: k%3 != 1, Prepared: Failed, step: k}
	m.mu.Lock()
	m.xa[xid] = x
	m.mu.Unlock()
	if m.endOld(s, k); s.conn == nil {
		return
	}
	if s.exec("XA START '"+xid+"'") != nil || s.exec("INSERT INTO xa_rows VALUES (?, ?)", k, xid) != nil ||
		s.exec("XA END '"+xid+"'") != nil {
		return
	}
	m.settlePrepare(x, Unknown)
	outcome := commitOutcome(s.exec("XA PREPARE '" + xid + "'"))
	m.settlePrepare(x, outcome)
	m.sumUp(outcome)
	if outcome != Acked {
		return
	}
	m.count("xa prepares")
	if k%3 != 2 { // one in three stays prepared until five later ones have passed
		m.decide(s, xid, x)
	}
}

// endOld ends the transactions of earlier steps that the leader still holds prepared: those left so on purpose, those
// decided and not answered, and those prepared and not answered. A log that begins after a prepared transaction cannot
// make a new node.
func (m *mixedPart) endOld(s *session, k int) {
	rows, err := s.query("XA RECOVER")
	if err != nil {
		return
	}
	for _, row := range rows {
		xid, ok := row[3].(string)
		if !ok {
			continue
		}
		m.mu.Lock()
		x := m.xa[xid]
		m.mu.Unlock()
		if x == nil || x.Prepared == Acked && !x.Tried && x.step > k-15 {
			continue
		}
		if m.decide(s, xid, x); s.conn == nil {
			return
		}
	}
}

func (m *mixedPart) settlePrepare(x *xaState, o Outcome) {
	m.mu.Lock()
	x.Prepared = o
	m.mu.Unlock()
}

// decide sends XA COMMIT or ROLLBACK and notes the answer; resolved or gone is set when it was a clear one.
func (m *mixedPart) decide(s *session, xid string, x *xaState) {
	verb := "XA ROLLBACK"
	if x.Commit {
		verb = "XA COMMIT"
	}
	err := s.exec(verb + " '" + xid + "'")
	m.sumUp(commitOutcome(err))
	m.mu.Lock()
	defer m.mu.Unlock()
	var my *mysql.MySQLError
	switch {
	case commitOutcome(err) == Acked:
		x.Resolved = true
		m.acked["xa decisions"]++
	case errors.As(err, &my) && my.Number == xaNota && !x.Tried:
		x.Gone = true
	}
	x.Tried = true
}

// finish resolves every XA transaction of the workload that the leader still holds prepared.
func (m *mixedPart) finish(ctx context.Context) error {
	if m.kind != kindXA {
		return nil
	}
	s, err := newSession(m.set.cfg.Login, m.set.cfg.Database)
	if err != nil {
		return err
	}
	defer s.close()
	db, err := m.set.cfg.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	m.mu.Lock()
	all := maps.Clone(m.xa)
	m.mu.Unlock()
	for {
		left, err := preparedXIDs(ctx, db)
		if err == nil {
			left = slices.DeleteFunc(left, func(xid string) bool { return all[xid] == nil })
			m.noteGone(left)
			if len(left) == 0 {
				return nil
			}
			for _, xid := range left {
				if err := s.connect(ctx); err != nil {
					return fmt.Errorf("finishing XA transactions: %w", err)
				}
				m.decide(s, xid, all[xid])
			}
		}
		if poll.Pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("finishing XA transactions, %d left: %w", len(left), errors.Join(ctx.Err(), err))
		}
	}
}

// noteGone marks what was prepared for certain, never decided, and is not among the leader's prepared ones.
func (m *mixedPart) noteGone(left []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for xid, x := range m.xa {
		if x.Prepared == Acked && !x.Tried && !slices.Contains(left, xid) {
			x.Gone = true
		}
	}
}

// mixedView is what one node holds of the mixed workload.
type mixedView struct {
	Accounts int64           `json:"accounts,omitempty"`
	Sum      int64           `json:"sum,omitempty"`
	Objects  map[string]bool `json:"objects,omitempty"`
	XARows   map[string]bool `json:"xa_rows,omitempty"`  // by xid
	Prepared []string        `json:"prepared,omitempty"` // xids of XA RECOVER
}

// read looks at what one node holds.
func (m *mixedPart) read(ctx context.Context, db *sql.DB) (mixedView, error) {
	v := mixedView{Objects: map[string]bool{}, XARows: map[string]bool{}}
	read := map[string]func(context.Context, *sql.DB, string, *mixedView) error{
		kindBank: readSum, kindDDL: readTables, kindACL: m.readUsers, kindXA: readXA, kindObjects: readObjects,
	}[m.kind]
	return v, read(ctx, db, m.set.cfg.Database, &v)
}

func readSum(ctx context.Context, db *sql.DB, database string, v *mixedView) error {
	return db.QueryRowContext(ctx, "SELECT COUNT(*), SUM(balance) FROM "+database+".accounts").Scan(&v.Accounts, &v.Sum)
}

func readTables(ctx context.Context, db *sql.DB, database string, v *mixedView) error {
	tables, err := queryStrings(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = '"+
		database+"' AND table_name REGEXP '^d[0-9]+$'")
	if err != nil {
		return err
	}
	for _, t := range tables {
		v.Objects["table "+t] = true
		var n int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+database+"."+t).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			v.Objects["row "+t] = true
		}
	}
	altered, err := queryStrings(ctx, db, "SELECT table_name FROM information_schema.columns WHERE table_schema = '"+
		database+
		"' AND table_name REGEXP '^d[0-9]+$' AND column_name = 'c'")
	for _, t := range altered {
		v.Objects["column "+t+".c"] = true
	}
	return err
}

func (m *mixedPart) readUsers(ctx context.Context, db *sql.DB, database string, v *mixedView) error {
	users, err := queryStrings(ctx, db, "SELECT user FROM mysql.user WHERE user LIKE '"+m.run+"\\_%'")
	if err != nil {
		return err
	}
	for _, u := range users {
		v.Objects["user "+u] = true
	}
	granted, err := queryStrings(ctx, db, "SELECT user FROM mysql.db WHERE user LIKE '"+m.run+"\\_%' AND db = '"+database+
		"' AND select_priv = 'Y'")
	for _, u := range granted {
		v.Objects["grant "+u] = true
	}
	if err != nil {
		return err
	}
	ours := " LIKE '" + m.run + "\\_%'"
	for _, query := range []string{
		"SELECT CONCAT('granted ', from_user, ' ', to_user) FROM mysql.role_edges WHERE from_user" + ours,
		"SELECT CONCAT('default ', user) FROM mysql.default_roles WHERE user" + ours,
		"SELECT CONCAT('global ', user) FROM mysql.user WHERE process_priv = 'Y' AND user" + ours,
		"SELECT CONCAT('dynamic ', user) FROM mysql.global_grants WHERE priv = 'BACKUP_ADMIN' AND user" + ours,
		"SELECT DISTINCT CONCAT('column ', user) FROM mysql.columns_priv WHERE table_name = 'acl_columns' AND db = '" +
			database + "' AND user" + ours,
	} {
		names, err := queryStrings(ctx, db, query)
		if err != nil {
			return err
		}
		for _, n := range names {
			v.Objects[n] = true
		}
	}
	return nil
}

func readXA(ctx context.Context, db *sql.DB, database string, v *mixedView) error {
	xids, err := queryStrings(ctx, db, "SELECT xid FROM "+database+".xa_rows")
	if err != nil {
		return err
	}
	for _, x := range xids {
		v.XARows[x] = true
	}
	v.Prepared, err = preparedXIDs(ctx, db)
	return err
}

// judge compares what the client knows with what each node holds. What was not answered is looked up in the log, if
// that is known.
func (m *mixedPart) judgeViews(nodes map[string]mixedView, log *Committed) (problems []Problem, unanswered int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	objects, n := log.resolveObjects(m.objects, m.open)
	xa, n2, problems := log.resolveXA(m.xa, nodes)
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		v := nodes[node]
		if m.kind == kindBank {
			problems = append(problems, judgeSum(node, v.Accounts, v.Sum)...)
		}
		problems = append(problems, judgeObjects(node, v, objects)...)
		problems = append(problems, judgeXA(node, v, xa)...)
	}
	return problems, n + n2
}

func judgeObjects(node string, v mixedView, objects map[string]presence) []Problem {
	var problems []Problem
	for _, o := range slices.Sorted(maps.Keys(objects)) {
		switch there := v.Objects[o]; {
		case objects[o] == present && !there:
			problems = append(problems, Problem{Kind: Lost, Node: node, Detail: o + " was made and acknowledged"})
		case objects[o] == absent && there:
			problems = append(problems, Problem{Kind: Resurrected, Node: node, Detail: o + " was dropped, or refused"})
		}
	}
	for o := range v.Objects {
		if _, ok := objects[o]; !ok {
			problems = append(problems, Problem{Kind: Resurrected, Node: node, Detail: o + " was never asked for"})
		}
	}
	return problems
}

func judgeXA(node string, v mixedView, xa map[string]*xaState) []Problem {
	var problems []Problem
	add := func(k Kind, xid, what string) {
		problems = append(problems, Problem{Kind: k, Node: node, Detail: "XA " + xid + ": " + what})
	}
	for _, xid := range slices.Sorted(maps.Keys(xa)) {
		x, there := xa[xid], v.XARows[xid]
		prepared := slices.Contains(v.Prepared, xid)
		switch {
		case prepared:
			add(Broken, xid, "still prepared after the leader has none left")
		case x.Prepared == Acked && x.Gone:
			add(Lost, xid, "its acknowledged XA PREPARE was unknown to the leader")
		case x.Prepared == Acked && x.Commit && !there:
			add(Lost, xid, "prepared, commit decided, no row")
		case x.Resolved && x.Commit && !there:
			add(Lost, xid, "XA COMMIT acknowledged, no row")
		case !x.Commit && there:
			add(Resurrected, xid, "only ever rolled back, has a row")
		case x.Prepared == Failed && there:
			add(Resurrected, xid, "never prepared, has a row")
		}
	}
	return problems
}
