package mysqld

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// XID names an XA transaction. It is comparable, so that it can be a map's key.
type XID struct {
	FormatID     int64
	Gtrid, Bqual string // bytes
}

func (x XID) String() string {
	return fmt.Sprintf("%d,%x,%x", x.FormatID, x.Gtrid, x.Bqual)
}

// XARecover lists the prepared XA transactions that wait for their COMMIT or ROLLBACK.
func (a *Admin) XARecover(ctx context.Context) ([]XID, error) {
	var found []XID
	err := limit(ctx, quickLimit, "xa recover", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "XA RECOVER CONVERT XID")
		if err != nil {
			return err
		}
		for _, r := range t {
			x, err := parseXID(r["formatid"], r["gtrid_length"], r["bqual_length"], r["data"])
			if err != nil {
				return err
			}
			found = append(found, x)
		}
		return nil
	})
	return found, err
}

// parseXID reads a row of XA RECOVER CONVERT XID; data is "0x" and the hex digits of gtrid and bqual in one.
func parseXID(format, gtridLen, bqualLen, data string) (XID, error) {
	var x XID
	raw, err := hex.DecodeString(strings.TrimPrefix(data, "0x"))
	if err != nil {
		return x, fmt.Errorf("XA RECOVER: %q: %w", data, err)
	}
	g, err := strconv.Atoi(gtridLen)
	if err != nil {
		return x, fmt.Errorf("XA RECOVER: %w", err)
	}
	b, err := strconv.Atoi(bqualLen)
	if err != nil {
		return x, fmt.Errorf("XA RECOVER: %w", err)
	}
	if g < 0 || b < 0 || g+b != len(raw) {
		return x, fmt.Errorf("XA RECOVER: lengths %d and %d do not fit %d bytes", g, b, len(raw))
	}
	x.FormatID, err = strconv.ParseInt(format, 10, 64)
	if err != nil {
		return x, fmt.Errorf("XA RECOVER: %w", err)
	}
	x.Gtrid, x.Bqual = string(raw[:g]), string(raw[g:])
	return x, nil
}

// TableChecksums runs CHECKSUM TABLE over all user tables: "schema.table" to checksum. If the sums will be compared,
// the caller must make sure that nothing is written meanwhile.
func (a *Admin) TableChecksums(ctx context.Context) (map[string]uint64, error) {
	sums := map[string]uint64{}
	err := limit(ctx, bulkLimit, "checksum tables", func(ctx context.Context) error {
		t, err := a.bulk.query(ctx, "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS n FROM information_schema.TABLES"+
			" WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN "+systemSchemas)
		if err != nil {
			return err
		}
		for _, r := range t {
			name := r["s"] + "." + r["n"]
			sum, err := a.bulk.query(ctx, "CHECKSUM TABLE "+ident(r["s"])+"."+ident(r["n"])+" EXTENDED")
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if len(sum) != 1 || sum[0]["checksum"] == "" {
				return fmt.Errorf("%s: no checksum: the table is gone or damaged", name)
			}
			if sums[name], err = strconv.ParseUint(sum[0]["checksum"], 10, 64); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	return sums, err
}

// Event is a scheduled event (CREATE EVENT).
type Event struct {
	Schema, Name string
	// Status is ENABLED, DISABLED, or REPLICA_SIDE_DISABLED (SLAVESIDE_DISABLED before 8.4) as replication leaves it.
	Status string
}

// Events lists all scheduled events with their states.
func (a *Admin) Events(ctx context.Context) ([]Event, error) {
	var found []Event
	err := limit(ctx, quickLimit, "list events", func(ctx context.Context) error {
		t, err := a.bulk.query(ctx,
			"SELECT EVENT_SCHEMA AS s, EVENT_NAME AS n, STATUS AS st FROM information_schema.EVENTS ORDER BY 1, 2")
		for _, r := range t {
			found = append(found, Event{r["s"], r["n"], r["st"]})
		}
		return err
	})
	return found, err
}

// SetEventScheduler switches the scheduler: on for a leader whose events are restored, off everywhere else.
func (a *Admin) SetEventScheduler(ctx context.Context, on bool) error {
	return a.setSwitch(ctx, quickLimit, "event_scheduler", on)
}

// SetEventEnabled enables or disables an event on this server only: nothing is written to the binary log. Definer, SQL
// mode and character sets of the event are kept, which a plain ALTER EVENT would replace by this session's. The server
// must not be super_read_only.
func (a *Admin) SetEventEnabled(ctx context.Context, schema, name string, enabled bool) error {
	return limit(ctx, quickLimit, "set event "+schema+"."+name, func(ctx context.Context) error {
		return a.bulk.use(ctx, func() error { return setEvent(ctx, a.bulk.db, schema, name, enabled) })
	})
}

func setEvent(ctx context.Context, db *sql.DB, schema, name string, enabled bool) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	t, err := ReadAll(ctx, conn,
		"SELECT DEFINER AS d, SQL_MODE AS m, CHARACTER_SET_CLIENT AS cs, COLLATION_CONNECTION AS co"+
			" FROM information_schema.EVENTS WHERE EVENT_SCHEMA = ? AND EVENT_NAME = ?", schema, name)
	if err != nil {
		return err
	}
	if len(t) == 0 {
		return errors.New("there is no such event")
	}
	to := "DISABLE"
	if enabled {
		to = "ENABLE"
	}
	for _, q := range []string{
		"SET SESSION sql_mode = " + quote(t[0]["m"]) + ", character_set_client = " + t[0]["cs"] +
			", collation_connection = " + t[0]["co"],
		"ALTER DEFINER = " + definer(t[0]["d"]) + " EVENT " + ident(schema) + "." + ident(name) + " " + to,
		"SET SESSION sql_mode = '', character_set_client = utf8mb4, collation_connection = utf8mb4_0900_ai_ci",
	} {
		if _, e := conn.ExecContext(ctx, q); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// definer turns information_schema's user@host into an account name. A host holds no '@'.
func definer(s string) string {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return ident(s)
	}
	return ident(s[:i]) + "@" + ident(s[i+1:])
}
