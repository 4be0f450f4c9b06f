package verify

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// kindObjects makes, uses, changes and drops what is stored in a schema besides tables: views, procedures, functions,
// triggers, events. That the nodes have the same definitions is for Compare to see.
const kindObjects = "objects"

func objectsSchema(database string) []string {
	return []string{"CREATE TABLE " + database +
		".object_rows (k INT NOT NULL, via VARCHAR(16) NOT NULL, v INT NOT NULL, PRIMARY KEY (k, via))"}
}

// objectsPause: with DDL alone, followers apply one statement after the other.
const objectsPause = 250 * time.Millisecond

// What objects write into object_rows, by the name in via. A trigger's row and the one that it fires at are of one
// transaction.
const (
	viaCall    = "call"
	viaTrigger = "trigger"
	viaView    = "view"
)

func (m *mixedPart) storedObjects(s *session, k int) {
	name := func(kind string) string { return fmt.Sprintf("%s%d", kind, k) }
	view, proc, function := name("ov"), name("op"), name("of")
	table, trigger, event := name("oi"), name("ot"), name("oe")
	fill := "INSERT INTO object_rows VALUES "
	row := func(via string) string { return fmt.Sprintf("row %s %d", via, k) }
	made := func(stmt string, objects ...string) bool {
		return m.change(s, kindObjects, present, stmt, objects...)
	}
	_ = made("CREATE FUNCTION "+function+" (x INT) RETURNS INT DETERMINISTIC RETURN x + 1", "function "+function) &&
		made("CREATE PROCEDURE "+proc+" (IN x INT) "+fill+"(x, '"+viaCall+"', "+function+"(x))", "procedure "+proc) &&
		made(fmt.Sprintf("CALL %s(%d)", proc, k), row(viaCall)) &&
		made("ALTER PROCEDURE "+proc+" COMMENT 'changed'", "comment "+proc) &&
		made("CREATE VIEW "+view+" AS SELECT k, via, v FROM object_rows WHERE v > 0", "view "+view) &&
		made(fmt.Sprintf("INSERT INTO %s VALUES (%d, '%s', %d)", view, k, viaView, k), row(viaView)) &&
		made("CREATE TABLE "+table+" (k INT PRIMARY KEY)", "table "+table) &&
		made("CREATE TRIGGER "+trigger+" AFTER INSERT ON "+table+" FOR EACH ROW "+
			fill+"(NEW.k, '"+viaTrigger+"', "+function+"(NEW.k))", "trigger "+trigger) &&
		made(fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, k), row(viaTrigger), "row "+table) &&
		made("CREATE EVENT "+event+" ON SCHEDULE AT '2100-01-01 00:00:00' DO DELETE FROM "+table, "event "+event)
	if k%2 == 0 {
		_ = m.dropKnown(s, "trigger", trigger) && m.dropKnown(s, "table", table, "row "+table) &&
			m.dropKnown(s, "event", event) && m.dropKnown(s, "view", view) &&
			m.dropKnown(s, "procedure", proc, "comment "+proc) && m.dropKnown(s, "function", function)
	}
}

// dropKnown drops what is certainly there; what goes with it is named too.
func (m *mixedPart) dropKnown(s *session, kind, name string, more ...string) bool {
	if m.known(kind+" "+name) != present {
		return true
	}
	return m.change(s, kindObjects, absent, "DROP "+kind+" "+name, append(more, kind+" "+name)...)
}

// known is what the client knows of an object.
func (m *mixedPart) known(object string) presence {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.objects[object]; ok {
		return p
	}
	return absent
}

// readObjects reads what one node holds of this workload; others of the set have triggers of their own. A row whose
// value is not the one that its object gives it was not asked for.
func readObjects(ctx context.Context, db *sql.DB, database string, v *mixedView) error {
	in := " = '" + database + "'"
	for _, query := range []string{
		"SELECT CONCAT(LOWER(routine_type), ' ', routine_name) FROM information_schema.routines " +
			"WHERE routine_name REGEXP '^o[pf][0-9]+$' AND routine_schema" + in,
		"SELECT CONCAT('comment ', routine_name) FROM information_schema.routines " +
			"WHERE routine_comment = 'changed' AND routine_schema" + in,
		"SELECT CONCAT('view ', table_name) FROM information_schema.views " +
			"WHERE table_name REGEXP '^ov[0-9]+$' AND table_schema" + in,
		"SELECT CONCAT('trigger ', trigger_name) FROM information_schema.triggers " +
			"WHERE trigger_name REGEXP '^ot[0-9]+$' AND trigger_schema" + in,
		"SELECT CONCAT('event ', event_name) FROM information_schema.events " +
			"WHERE event_name REGEXP '^oe[0-9]+$' AND event_schema" + in,
		"SELECT CONCAT('table ', table_name) FROM information_schema.tables " +
			"WHERE table_name REGEXP '^oi[0-9]+$' AND table_schema" + in,
		"SELECT CONCAT('row ', via, ' ', k, IF(v = k + (via <> '" + viaView + "'), '', CONCAT(' with ', v))) FROM " +
			database + ".object_rows",
	} {
		names, err := queryStrings(ctx, db, query)
		if err != nil {
			return err
		}
		for _, n := range names {
			v.Objects[n] = true
			if table, ok := strings.CutPrefix(n, "table "); ok {
				var rows int
				if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+database+"."+table).Scan(&rows); err != nil {
					return err
				}
				if rows > 0 {
					v.Objects["row "+table] = true
				}
			}
		}
	}
	return nil
}
