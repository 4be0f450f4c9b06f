package binlog

import (
	"encoding/binary"
	"fmt"
)

// QueryEvent is what matters in a QUERY event. Schema and SQL lie in the event.
type QueryEvent struct {
	ThreadID  uint32 // the client's connection id on the server that ran it
	Seconds   uint32 // that the statement had run for when it was logged, there
	ErrorCode uint16
	Schema    []byte
	SQL       []byte
	// XID is the engine transaction's number when HasXID: an atomic DDL or account statement.
	XID    uint64
	HasXID bool
	// UnknownVars is set when the status variables hold one that is not known here; HasXID may then be false for a
	// statement that has an XID, so a caller takes the careful branch.
	UnknownVars bool
}

// ParseQuery reads a QUERY event: thread id u32, execution time u32, schema length u8, error code u16, length of the
// status variables u16, status variables, schema, 00, statement. The error is ErrShort or ErrMalformed.
func ParseQuery(ev []byte) (QueryEvent, error) {
	_, body, err := bodyOf(ev, TypeQuery)
	if err != nil {
		return QueryEvent{}, err
	}
	return parseQueryBody(body)
}

func parseQueryBody(body []byte) (QueryEvent, error) {
	f := fields{b: body}
	var q QueryEvent
	q.ThreadID = uint32(f.uint(4))
	q.Seconds = uint32(f.uint(4))
	schemaLen := f.uint(1)
	q.ErrorCode = uint16(f.uint(2))
	vars := f.take(f.uint(2))
	q.Schema = f.take(schemaLen)
	terminator := f.take(1)
	q.SQL = f.b
	if f.failed || terminator[0] != 0 {
		return QueryEvent{}, fmt.Errorf("%w: QUERY event with a body of %d bytes", ErrMalformed, len(body))
	}
	return q, q.parseVars(vars)
}

// Codes of status variables (enum Query_event_status_vars in libs/mysql/binlog/event/statement_events.h).
const (
	varFlags2                         = 0
	varSQLMode                        = 1
	varCatalog                        = 2
	varAutoIncrement                  = 3
	varCharset                        = 4
	varTimeZone                       = 5
	varCatalogNZ                      = 6
	varLCTimeNames                    = 7
	varCharsetDatabase                = 8
	varTableMapForUpdate              = 9
	varSourceDataWritten              = 10
	varInvoker                        = 11
	varUpdatedDBNames                 = 12
	varMicroseconds                   = 13
	varExplicitDefaultsForTS          = 16
	varDDLLoggedWithXID               = 17
	varDefaultCollationUTF8MB4        = 18
	varRequirePrimaryKey              = 19
	varDefaultTableEncryption         = 20
	varEnableCascadeTriggers          = 21
	maxUpdatedDBNames                 = 16 // MAX_DBS_IN_EVENT_MTS; a greater count means "too many" and no names follow
	invalidXID                 uint64 = 1<<64 - 1
)

// parseVars walks the status variables to find the XID. They are mostly in the order of their codes, which is not
// relied on.
func (q *QueryEvent) parseVars(vars []byte) error {
	f := fields{b: vars}
	for len(f.b) > 0 && !f.failed {
		switch f.uint(1) {
		case varDDLLoggedWithXID:
			q.XID = f.uint(8)
			q.HasXID = q.XID != invalidXID
		case varSQLMode, varTableMapForUpdate:
			f.take(8)
		case varCharset:
			f.take(6)
		case varFlags2, varAutoIncrement, varSourceDataWritten:
			f.take(4)
		case varMicroseconds:
			f.take(3)
		case varLCTimeNames, varCharsetDatabase, varDefaultCollationUTF8MB4:
			f.take(2)
		case varExplicitDefaultsForTS, varRequirePrimaryKey, varDefaultTableEncryption, varEnableCascadeTriggers:
			f.take(1)
		case varTimeZone, varCatalogNZ:
			f.take(f.uint(1))
		case varCatalog:
			if n := f.uint(1); n > 0 {
				f.take(n + 1)
			}
		case varInvoker:
			f.take(f.uint(1))
			f.take(f.uint(1))
		case varUpdatedDBNames:
			if n := f.uint(1); n <= maxUpdatedDBNames {
				f.skipStrings(int(n))
			}
		default:
			// A later version's variable: its length is unknown, so nothing after it can be read.
			q.UnknownVars = true
			return nil
		}
	}
	if f.failed {
		return fmt.Errorf("%w: QUERY event: status variables are cut", ErrMalformed)
	}
	return nil
}

// skipStrings skips n zero-terminated strings.
func (f *fields) skipStrings(n int) {
	for range n {
		for f.uint(1) != 0 {
		}
	}
}

// AppendQuery appends a QUERY event without status variables: enough for BEGIN, COMMIT and ROLLBACK. The server's
// applier runs it in schema, which may be empty.
func AppendQuery(dst []byte, h Header, threadID uint32, schema, sql string) []byte {
	start := len(dst)
	h.Type = TypeQuery
	dst = h.Append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, threadID)
	dst = append(dst, 0, 0, 0, 0, byte(len(schema)), 0, 0, 0, 0)
	dst = append(dst, schema...)
	dst = append(dst, 0)
	dst = append(dst, sql...)
	return finishEvent(dst, start)
}

// AppendRollback appends a QUERY event "ROLLBACK", which ends an unfinished transaction: the abort marker.
// h gives timestamp, server id, log_pos and flags.
func AppendRollback(dst []byte, h Header) []byte { return AppendQuery(dst, h, 0, "", "ROLLBACK") }
