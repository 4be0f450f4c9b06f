package fakemysql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/sqlkind"
)

// Kind is what a statement does.
type Kind uint8

const (
	Insert       Kind = iota + 1 // rows into a table, in a transaction of their own
	CreateTable                  // fails if the table is there
	DropIfExists                 // on a table that is missing it does nothing, and is logged without an XID
	// CREATE USER IF NOT EXISTS: on a user who is there it does nothing, and is logged with an XID all the same
	Account
	XAPrepare // rows, prepared under an xid
	XACommit
	XARollback
	Analyze // a local statement, which super_read_only does not stop
)

var kindNames = [...]string{"", "insert", "create", "drop-if-exists", "account", "xa-prepare", "xa-commit",
	"xa-rollback", "analyze"}

func (k Kind) String() string { return kindNames[k] }

// Stmt is one statement, which is one transaction.
type Stmt struct {
	Kind  Kind
	Table uint32   // of Insert, CreateTable, DropIfExists, XAPrepare; 0 is always there
	Rows  []uint64 // of Insert and XAPrepare; a row is a number that is never used twice
	User  uint32   // of Account
	XID   string   // of XA statements
}

func (s Stmt) String() string {
	switch s.Kind {
	case Insert:
		return fmt.Sprintf("insert t%d %v", s.Table, s.Rows)
	case CreateTable, DropIfExists:
		return fmt.Sprintf("%v t%d", s.Kind, s.Table)
	case Account:
		return fmt.Sprintf("account u%d", s.User)
	case XAPrepare:
		return fmt.Sprintf("xa-prepare %s t%d %v", s.XID, s.Table, s.Rows)
	case XACommit, XARollback:
		return fmt.Sprintf("%v %s", s.Kind, s.XID)
	}
	return s.Kind.String()
}

// Trx is a transaction as the binary log has it.
type Trx struct {
	GTID   gtid.GTID
	Stmt   Stmt
	HasXID bool // of a single QUERY: the engine took part
}

// single gives the SQL of statements that are one QUERY.
func (s Stmt) single() string {
	switch s.Kind {
	case CreateTable:
		return fmt.Sprintf("CREATE TABLE t%d (id BIGINT)", s.Table)
	case DropIfExists:
		return fmt.Sprintf("DROP TABLE IF EXISTS t%d", s.Table)
	case Account:
		return fmt.Sprintf("CREATE USER IF NOT EXISTS u%d", s.User)
	case XACommit:
		return "XA COMMIT " + xidOf(s.XID).String()
	case XARollback:
		return "XA ROLLBACK " + xidOf(s.XID).String()
	case Analyze:
		return "ANALYZE TABLE t0"
	}
	return ""
}

func xidOf(name string) sqlkind.XID { return sqlkind.XID{FormatID: 1, GTRID: name} }

// XIDKey is an xid's name as Trireme writes it.
func XIDKey(name string) string { return xidOf(name).String() }

// events encodes a transaction; log positions are set later.
func (t *Trx) events(serverID uint32) [][]byte {
	h := func(typ binlog.EventType) binlog.Header {
		return binlog.Header{Timestamp: 1, Type: typ, ServerID: serverID, LogPos: 1}
	}
	query := func(sql string, xid bool) []byte {
		vars := []byte(nil)
		if xid {
			vars = []byte{17, 1, 0, 0, 0, 0, 0, 0, 0} // Q_DDL_LOGGED_WITH_XID
		}
		body := append([]byte{7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(vars)), 0}, vars...)
		return binlog.AppendEvent(nil, h(binlog.TypeQuery), append(append(body, 0), sql...))
	}
	rows := func() []byte {
		body := binary.LittleEndian.AppendUint32(nil, t.Stmt.Table)
		for _, r := range t.Stmt.Rows {
			body = binary.LittleEndian.AppendUint64(body, r)
		}
		return binlog.AppendEvent(nil, h(binlog.TypeWriteRows), body)
	}
	evs := [][]byte{nil}
	switch t.Stmt.Kind {
	case Insert:
		evs = append(evs, query("BEGIN", false), rows(), binlog.AppendEvent(nil, h(binlog.TypeXID), make([]byte, 8)))
	case XAPrepare:
		x := xidOf(t.Stmt.XID)
		body := binary.LittleEndian.AppendUint32([]byte{0}, x.FormatID)
		body = binary.LittleEndian.AppendUint32(body, uint32(len(x.GTRID)))
		body = append(binary.LittleEndian.AppendUint32(body, 0), x.GTRID...)
		evs = append(evs, query("XA START "+x.String(), false), rows(), query("XA END "+x.String(), false),
			binlog.AppendEvent(nil, h(binlog.TypeXAPrepare), body))
	default:
		evs = append(evs, query(t.Stmt.single(), t.HasXID))
	}
	length := uint64(gtidEventSize)
	for _, ev := range evs[1:] {
		length += uint64(len(ev))
	}
	evs[0] = gtidEvent(h(binlog.TypeGTID), t.GTID, length)
	return evs
}

const gtidEventSize = binlog.MinEventSize + 1 + 16 + 8 + 1 + 16 + 7 + 9 + 4

// gtidEvent makes a GTID event of constant size: the transaction's length is packed into 9 bytes.
func gtidEvent(h binlog.Header, g gtid.GTID, length uint64) []byte {
	body := append([]byte{0}, g.UUID[:]...)
	body = binary.LittleEndian.AppendUint64(body, uint64(g.GNO))
	body = append(body, 2)
	body = binary.LittleEndian.AppendUint64(body, uint64(g.GNO-1))
	body = binary.LittleEndian.AppendUint64(body, uint64(g.GNO))
	body = append(body, 1, 2, 3, 4, 5, 6, 0, 0xFE)
	body = binary.LittleEndian.AppendUint64(body, length)
	return binlog.AppendEvent(nil, h, binary.LittleEndian.AppendUint32(body, 90704))
}

// ErrPartial: the events are not one whole transaction.
var ErrPartial = errors.New("fakemysql: not a whole transaction")

// Decode reads one whole transaction, as a receiver gets it.
func Decode(events []byte) (Trx, error) {
	var (
		t   Trx
		asm binlog.Assembler
	)
	for len(events) > 0 {
		h, ev, rest, err := binlog.Cut(events)
		if err != nil {
			return t, fmt.Errorf("%w: %w", ErrPartial, err)
		}
		events = rest
		b, err := asm.Feed(h, ev)
		if err != nil {
			return t, err
		}
		switch h.Type {
		case binlog.TypeWriteRows:
			t.rows(binlog.Body(ev))
		case binlog.TypeTransactionPayload:
			if err := t.unpack(ev); err != nil {
				return t, err
			}
		}
		if b == binlog.End {
			if len(events) > 0 {
				return t, ErrPartial
			}
			return t, t.finish(asm.Trx(), ev)
		}
	}
	return t, ErrPartial
}

// rows reads the body of a WRITE_ROWS event.
func (t *Trx) rows(body []byte) {
	t.Stmt.Table = binary.LittleEndian.Uint32(body)
	for body = body[4:]; len(body) >= 8; body = body[8:] {
		t.Stmt.Rows = append(t.Stmt.Rows, binary.LittleEndian.Uint64(body))
	}
}

// unpack reads the events that are packed into one; they have no checksums.
func (t *Trx) unpack(ev []byte) error {
	p, err := binlog.ParsePayload(ev)
	for left := p.Payload; err == nil && len(left) > 0; {
		size := binary.LittleEndian.Uint32(left[9:])
		if binlog.EventType(left[4]) == binlog.TypeWriteRows {
			t.rows(left[binlog.HeaderLen:size])
		}
		left = left[size:]
	}
	return err
}

// finish reads what the last event says.
func (t *Trx) finish(info *binlog.TrxInfo, last []byte) error {
	t.GTID = info.GTID
	switch info.Kind {
	case binlog.RowsXID, binlog.Payload:
		t.Stmt.Kind = Insert
		return nil
	case binlog.XAPrepare:
		t.Stmt.Kind, t.Stmt.XID = XAPrepare, info.XID.GTRID
		return nil
	case binlog.XACommit:
		t.Stmt.Kind, t.Stmt.XID = XACommit, info.XID.GTRID
		return nil
	case binlog.XARollback:
		t.Stmt.Kind, t.Stmt.XID = XARollback, info.XID.GTRID
		return nil
	}
	q, err := binlog.ParseQuery(last)
	if err != nil {
		return err
	}
	t.HasXID = q.HasXID
	sql := string(q.SQL)
	for kind, format := range map[Kind]string{CreateTable: "CREATE TABLE t%d (id BIGINT)",
		DropIfExists: "DROP TABLE IF EXISTS t%d"} {
		if n, _ := fmt.Sscanf(sql, format, &t.Stmt.Table); n == 1 {
			t.Stmt.Kind = kind
			return nil
		}
	}
	if n, _ := fmt.Sscanf(sql, "CREATE USER IF NOT EXISTS u%d", &t.Stmt.User); n == 1 {
		t.Stmt.Kind = Account
		return nil
	}
	if strings.HasPrefix(sql, "ANALYZE") {
		t.Stmt.Kind = Analyze
		return nil
	}
	return fmt.Errorf("fakemysql: no such statement: %s", sql)
}
