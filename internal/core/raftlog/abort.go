package raftlog

import (
	"encoding/binary"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/sqlkind"
)

// abortEvents makes the events that end the open transaction, which never ended in the log, for a reader that replays
// the log's text. They come before the Barrier that aborts it.
func (l *Log) abortEvents(stamp uint32) ([]byte, error) {
	if err := l.flush(); err != nil { // the transaction may be in this very batch
		return nil, err
	}
	h := binlog.Header{Timestamp: stamp, ServerID: uint32(l.opts.NodeID)}
	xid, ended, err := l.openXA()
	if err != nil {
		return nil, err
	}
	if xid == (sqlkind.XID{}) {
		return binlog.AppendRollback(appendStatementEnd(nil, h), h), nil
	}
	var out []byte
	if !ended {
		out = binlog.AppendQuery(appendStatementEnd(nil, h), h, 0, "", "XA END "+xid.String())
	}
	return binlog.AppendQuery(out, h, 0, "", "XA ROLLBACK "+xid.String()), nil
}

// appendStatementEnd appends a row event of a table without a table map: mysqld skips it, but it ends the statement.
// mysqlbinlog holds back the rows of a statement until its end, and would otherwise print them in the middle of the
// next one.
func appendStatementEnd(dst []byte, h binlog.Header) []byte {
	const (
		noTable = 1<<48 - 2 // the highest table ids; mysqld numbers tables from 1 on
		stmtEnd = 1
	)
	var body []byte
	body = binary.LittleEndian.AppendUint64(body, noTable)[:6]
	body = binary.LittleEndian.AppendUint16(body, stmtEnd)
	body = binary.LittleEndian.AppendUint16(body, 2) // no extra data
	body = append(body, 1, 0xff)                     // one column, present
	body = append(body, 0, 0, 0, 0, 0)               // a row: nothing NULL, an INT
	h.Type = binlog.TypeWriteRows
	return binlog.AppendEvent(dst, h, body)
}

// openXA returns the xid if the open transaction is an XA transaction, and whether its XA END is there. It reads the
// first and the last chunk only.
func (l *Log) openXA() (xid sqlkind.XID, ended bool, err error) {
	events, err := l.trxEvents(l.ledger.open)
	if err != nil || !framed(events) {
		return xid, false, err
	}
	var asm binlog.Assembler
	for h, ev := range binlog.Events(events) {
		if _, err := asm.Feed(h, ev); err != nil {
			return xid, false, nil // no events that a text could be made of
		}
	}
	if xid = asm.Trx().XID; !asm.InTransaction() || xid == (sqlkind.XID{}) {
		return sqlkind.XID{}, false, nil
	}
	for at := l.last; at >= l.ledger.open; at-- {
		if events, err = l.trxEvents(at); err != nil || len(events) > 0 {
			return xid, endsXA(events), err
		}
	}
	return xid, false, nil
}

// trxEvents returns the events of the entry at index, none when it is no Trx entry.
func (l *Log) trxEvents(index uint64) ([]byte, error) {
	es, err := l.Entries(index, index+1, 0)
	if err != nil {
		return nil, err
	}
	var m Meta
	if events, ok := entryMeta(&m, es[0]); ok && m.Kind == Trx {
		return events, nil
	}
	return nil, nil
}

// endsXA reports whether the last event is XA END.
func endsXA(events []byte) bool {
	var last []byte
	for _, ev := range binlog.Events(events) {
		last = ev
	}
	q, err := binlog.ParseQuery(last)
	return err == nil && framed(events) && sqlkind.Classify(q.SQL) == sqlkind.XAEnd
}
