package mysqld

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
)

// PreparedXA is a prepared XA transaction as the binary log has it.
type PreparedXA struct {
	XID XID
	// FDE is the FORMAT_DESCRIPTION event of the events.
	FDE []byte
	// Statements are the events between XA START and XA END (table maps and rows), each piece ending with a statement.
	Statements [][]byte
}

// AdoptXA prepares again the XA transactions that a replication applier has prepared, so that this server can lead.
//
// With log_replica_updates=OFF the applier's XA PREPARE is not in this server's binary log. mysqld then leaves the XA
// COMMIT or XA ROLLBACK of that transaction out of the binary log as well: it would be committed here and nowhere else,
// without waiting for an acknowledgement (measured on 9.7.4). So each is rolled back, which for the same reason is not
// logged, and prepared again by a session that logs. The server must be read-only and without clients, with its feed
// paused and semi-sync off, since nothing can acknowledge. What this logs lies below the position from which the caller
// then dumps, and is never replicated. After an error the server may have lost a transaction and must be killed: a
// restart gets all of them again from the feed.
func (a *Admin) AdoptXA(ctx context.Context, list []PreparedXA) (err error) {
	semi, err := a.WaitingSessions(ctx)
	if err != nil {
		return err
	}
	if semi.On {
		return fmt.Errorf("%w: semi-sync is on while XA transactions are adopted", ErrWrongSettings)
	}
	return limit(ctx, bulkLimit, "adopt XA transactions", func(ctx context.Context) error {
		if err := a.control.exec(ctx, "SET GLOBAL super_read_only = OFF"); err != nil {
			return err
		}
		err := a.app.use(ctx, func() error { return a.adoptAll(ctx, list) })
		return errors.Join(err, a.control.exec(ctx, "SET GLOBAL super_read_only = ON"))
	})
}

func (a *Admin) adoptAll(ctx context.Context, list []PreparedXA) error {
	conn, err := a.app.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, x := range list {
		if err := adopt(ctx, conn, x); err != nil {
			return fmt.Errorf("adopting XA transaction %s: %w", x.XID, err)
		}
	}
	return nil
}

func adopt(ctx context.Context, conn *sql.Conn, x PreparedXA) error {
	xid := fmt.Sprintf("X'%x',X'%x',%d", x.XID.Gtrid, x.XID.Bqual, x.XID.FormatID)
	// BINLOG of a FORMAT_DESCRIPTION event leaves GTID_NEXT at ANONYMOUS, which no statement may use.
	qs := []string{binlogStatement(x.FDE), "SET SESSION GTID_NEXT = 'AUTOMATIC'", "XA ROLLBACK " + xid, "XA START " + xid}
	for _, s := range x.Statements {
		qs = append(qs, binlogStatement(s))
	}
	qs = append(qs, "XA END "+xid, "XA PREPARE "+xid)
	for _, q := range qs {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%.40s: %w", q, err)
		}
	}
	return nil
}

// binlogStatement makes the statement that mysqlbinlog prints for events that are no text.
func binlogStatement(events []byte) string {
	return "BINLOG '" + base64.StdEncoding.EncodeToString(events) + "'"
}
