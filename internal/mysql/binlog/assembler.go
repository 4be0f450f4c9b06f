package binlog

import (
	"fmt"

	"trireme/internal/mysql/sqlkind"
)

// Boundary says where an event stands in a transaction.
type Boundary uint8

const (
	// Outside: the event belongs to no transaction. It may nevertheless come in the middle of one: a heartbeat, an
	// IGNORABLE event, or the artificial ROTATE and the FORMAT_DESCRIPTION that begin a resumed dump.
	Outside Boundary = iota
	// Start: the GTID event.
	Start
	// Inside: neither first nor last.
	Inside
	// End: the last event.
	End
)

var boundaryNames = [...]string{"outside", "start", "inside", "end"}

// String gives the boundary's name in lower case.
func (b Boundary) String() string {
	if int(b) < len(boundaryNames) {
		return boundaryNames[b]
	}
	return "unknown"
}

// state is what the Assembler waits for.
type state uint8

const (
	stateIdle  state = iota // a GTID event
	stateGTID               // the first event after it
	stateBody               // after BEGIN
	stateXA                 // after XA START
	stateError              // Reset
)

// Assembler finds the transactions in a stream of events. It is a pure state machine: feed it every event of one
// stream in order. The zero value is ready, between transactions. It keeps no event and does not allocate, but
// for XA transactions, changing tags and its first look into a payload.
type Assembler struct {
	state state
	trx   TrxInfo
	ddl   bool // the body holds a CREATE TABLE … START TRANSACTION
	err   error
	inner payloadReader
}

// Feed takes the next event, whose header is h, whole and with its checksum, which is not verified here. After an error
// it returns that same error until Reset: nothing after a broken transaction can be trusted.
//
// The errors are ErrMalformed, ErrStructure, ErrLength, ErrIncident, ErrAnonymous and ErrUnknownEvent.
func (a *Assembler) Feed(h Header, ev []byte) (Boundary, error) {
	if a.state == stateError {
		return Outside, a.err
	}
	if uint64(len(ev)) != uint64(h.EventSize) {
		return a.fail(fmt.Errorf("%w: %v has %d bytes, its header says %d", ErrMalformed, h.Type, len(ev), h.EventSize))
	}
	b, err := a.step(h, ev)
	if err == nil && b != Outside {
		err = a.count(h, b)
	}
	if err != nil {
		return a.fail(err)
	}
	if b == End {
		a.state = stateIdle
	}
	return b, nil
}

// Trx describes the transaction that is under way or, after End, has just ended. It is overwritten at the next Start.
func (a *Assembler) Trx() *TrxInfo { return &a.trx }

// InTransaction reports whether a transaction has begun and not ended.
func (a *Assembler) InTransaction() bool { return a.state != stateIdle && a.state != stateError }

// Reset forgets an unfinished transaction or an error: the next event is expected between transactions.
func (a *Assembler) Reset() { a.state, a.err = stateIdle, nil }

func (a *Assembler) fail(err error) (Boundary, error) {
	if a.InTransaction() {
		err = fmt.Errorf("in transaction %v, after %d bytes: %w", a.trx.GTID, a.trx.Bytes, err)
	}
	a.state, a.err = stateError, err
	return Outside, err
}

// count adds the event to the transaction's length and checks it against what the GTID event says. A rolled back
// one is not checked: an abort marker ends it early.
func (a *Assembler) count(h Header, b Boundary) error {
	a.trx.Bytes += uint64(h.EventSize)
	want := a.trx.TransactionLength
	if want == 0 || a.trx.Kind == RowsRollback {
		return nil
	}
	if a.trx.Bytes > want || (b == End && a.trx.Bytes != want) {
		return fmt.Errorf("%w: %v makes it %d bytes, its GTID event says %d", ErrLength, h.Type, a.trx.Bytes, want)
	}
	return nil
}

// step moves the state on by one event.
func (a *Assembler) step(h Header, ev []byte) (Boundary, error) {
	switch h.Type {
	case TypeGTID, TypeGTIDTagged, TypeAnonymousGTID:
		return a.begin(h, ev)
	case TypeQuery:
		return a.query(ev)
	case TypeXID:
		return a.xid(ev)
	case TypeXAPrepare:
		return a.xaPrepare(ev)
	case TypeTransactionPayload:
		return a.payload(ev)
	case TypeTableMap, TypeWriteRows, TypeUpdateRows, TypeDeleteRows, TypePartialUpdateRows, TypeRowsQuery,
		TypeWriteRowsV1, TypeUpdateRowsV1, TypeDeleteRowsV1, TypeBeginLoadQuery, TypeExecuteLoadQuery,
		TypeAppendBlock, TypeDeleteFile:
		if a.state == stateBody || a.state == stateXA {
			return Inside, nil
		}
	case TypeIntvar, TypeRand, TypeUserVar, TypeTransactionContext, TypeViewChange:
		// These may also stand between the GTID event and a single QUERY.
		if a.state != stateIdle {
			return Inside, nil
		}
	case TypeHeartbeat, TypeHeartbeatV2, TypeIgnorable, TypeFormatDescription:
		return Outside, nil
	case TypeRotate:
		if a.state == stateIdle || h.Flags&FlagArtificial != 0 {
			return Outside, nil
		}
	case TypeStop, TypePreviousGTIDs:
		if a.state == stateIdle {
			return Outside, nil
		}
	case TypeIncident:
		return Outside, fmt.Errorf("%w (at end position %d)", ErrIncident, h.LogPos)
	default:
		return a.unknown(h)
	}
	return Outside, a.misplaced(h.Type)
}

// unknown handles the event types of later versions, which say themselves whether they may be skipped.
func (a *Assembler) unknown(h Header) (Boundary, error) {
	switch {
	case h.Flags&FlagIgnorable == 0:
		return Outside, fmt.Errorf("%w: %v", ErrUnknownEvent, h.Type)
	case a.state == stateIdle:
		return Outside, nil
	}
	return Inside, nil
}

func (a *Assembler) misplaced(what any) error {
	where := [...]string{"between transactions", "right after a GTID event", "after BEGIN", "after XA START"}[a.state]
	return fmt.Errorf("%w: %v %s", ErrStructure, what, where)
}

func (a *Assembler) begin(h Header, ev []byte) (Boundary, error) {
	if a.state != stateIdle {
		return Outside, a.misplaced(h.Type)
	}
	if h.Type == TypeAnonymousGTID {
		return Outside, fmt.Errorf("%w (at end position %d)", ErrAnonymous, h.LogPos)
	}
	g, err := parseGTID(ev, a.trx.GTID.Tag)
	if err != nil {
		return Outside, err
	}
	a.trx = TrxInfo{GTIDEvent: g}
	a.ddl = false
	a.state = stateGTID
	return Start, nil
}

func (a *Assembler) query(ev []byte) (Boundary, error) {
	q, err := ParseQuery(ev)
	if err != nil {
		return Outside, err
	}
	switch a.state {
	case stateGTID:
		return a.firstQuery(&q)
	case stateBody, stateXA:
		return a.bodyQuery(&q)
	}
	return Outside, a.misplaced(TypeQuery)
}

// firstQuery is the QUERY after the GTID event: it opens a body or is the whole transaction.
func (a *Assembler) firstQuery(q *QueryEvent) (Boundary, error) {
	a.trx.ThreadID = q.ThreadID
	kind := sqlkind.Classify(q.SQL)
	switch kind {
	case sqlkind.Begin:
		a.state = stateBody
		return Inside, nil
	case sqlkind.XAStart:
		a.state = stateXA
		return Inside, a.setXID(q.SQL)
	case sqlkind.XACommit, sqlkind.XARollback:
		return a.endXA(kind, q.SQL)
	case sqlkind.Rollback: // an abort marker after a transaction of which only the GTID event was kept
		return a.end(RowsRollback)
	case sqlkind.Commit, sqlkind.XAEnd, sqlkind.XAPrepare, sqlkind.Savepoint:
		return Outside, a.misplaced("QUERY " + kind.String())
	}
	a.trx.Account = kind == sqlkind.Account
	if q.HasXID || q.UnknownVars {
		return a.end(QueryXID)
	}
	return a.end(QueryNoXID)
}

// bodyQuery is a QUERY after BEGIN or XA START.
func (a *Assembler) bodyQuery(q *QueryEvent) (Boundary, error) {
	kind := sqlkind.Classify(q.SQL)
	switch {
	case kind == sqlkind.Commit && a.state == stateBody:
		return a.end(RowsCommit)
	case kind == sqlkind.Rollback:
		return a.end(RowsRollback)
	case kind == sqlkind.XARollback && a.state == stateXA:
		return a.endXA(kind, q.SQL)
	case kind == sqlkind.XAEnd && a.state == stateXA:
		return Inside, a.sameXID(q.SQL)
	case kind == sqlkind.Begin, kind == sqlkind.Commit, kind >= sqlkind.XAStart && kind <= sqlkind.XARollback:
		return Outside, a.misplaced("QUERY " + kind.String())
	case kind == sqlkind.DDL:
		a.ddl = true
	}
	return Inside, nil
}

func (a *Assembler) xid(ev []byte) (Boundary, error) {
	if a.state != stateBody {
		return Outside, a.misplaced(TypeXID)
	}
	if _, err := ParseXID(ev); err != nil {
		return Outside, err
	}
	if a.ddl {
		return a.end(QueryXID)
	}
	return a.end(RowsXID)
}

func (a *Assembler) xaPrepare(ev []byte) (Boundary, error) {
	if a.state != stateXA {
		return Outside, a.misplaced(TypeXAPrepare)
	}
	x, err := ParseXAPrepare(ev)
	if err != nil {
		return Outside, err
	}
	if x.XID != a.trx.XID {
		return Outside, fmt.Errorf("%w: XA START %v is prepared as %v", ErrStructure, a.trx.XID, x.XID)
	}
	return a.endPrepare(x)
}

func (a *Assembler) endPrepare(x XAPrepareEvent) (Boundary, error) {
	a.trx.XID, a.trx.OnePhase = x.XID, x.OnePhase
	if x.OnePhase {
		return a.end(XACommit)
	}
	return a.end(XAPrepare)
}

// payload is a whole compressed transaction; a look into it tells rows from XA.
func (a *Assembler) payload(ev []byte) (Boundary, error) {
	if a.state != stateGTID {
		return Outside, a.misplaced(TypeTransactionPayload)
	}
	p, err := ParsePayload(ev)
	if err != nil {
		return Outside, err
	}
	info, err := a.inner.read(p)
	if err != nil {
		return Outside, err
	}
	a.trx.ThreadID = info.ThreadID
	a.trx.Compressed = true
	if !info.XA {
		return a.end(Payload)
	}
	return a.endPrepare(info.Prepare)
}

func (a *Assembler) end(k Kind) (Boundary, error) {
	a.trx.Kind = k
	if k == RowsRollback {
		a.trx.XID = sqlkind.XID{} // of an XA START whose transaction never came to be
	}
	a.trx.Special = k != RowsXID && k != Payload
	return End, nil
}

func (a *Assembler) endXA(kind sqlkind.Kind, sql []byte) (Boundary, error) {
	if err := a.setXID(sql); err != nil {
		return Outside, err
	}
	if kind == sqlkind.XACommit {
		return a.end(XACommit)
	}
	return a.end(XARollback)
}

func (a *Assembler) setXID(sql []byte) (err error) {
	if a.trx.XID, a.trx.OnePhase, err = sqlkind.ParseXID(sql); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

func (a *Assembler) sameXID(sql []byte) error {
	xid, _, err := sqlkind.ParseXID(sql)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if xid != a.trx.XID {
		return fmt.Errorf("%w: XA START %v ends as %v", ErrStructure, a.trx.XID, xid)
	}
	return nil
}
