package binlog

import (
	"trireme/internal/mysql/sqlkind"
)

// Kind says how a transaction is written, which decides how recovery treats it when it is missing (S5).
type Kind uint8

const (
	// KindNone: the transaction has not ended yet.
	KindNone Kind = iota
	// RowsXID: changes in a transactional engine, ended by an XID event.
	RowsXID
	// RowsCommit: changes ended by QUERY COMMIT: no transactional engine took part.
	RowsCommit
	// RowsRollback: changes ended by QUERY ROLLBACK: those of a non-transactional engine, or Trireme's abort marker.
	RowsRollback
	// QueryXID: atomic DDL or an account statement with an engine XID; also CREATE TABLE … SELECT, which has rows.
	QueryXID
	// QueryNoXID: a single QUERY without XID: the engines did nothing that a commit record would tell.
	QueryNoXID
	// XAPrepare: changes ended by XA PREPARE.
	XAPrepare
	// XACommit: XA COMMIT of a prepared transaction, or the whole transaction with COMMIT ONE PHASE.
	XACommit
	// XARollback: XA ROLLBACK.
	XARollback
	// Payload: compressed rows, which are RowsXID inside. A compressed XA transaction is XAPrepare or XACommit.
	Payload
)

var kindNames = [...]string{
	"none", "rows-xid", "rows-commit", "rows-rollback", "query-xid", "query-no-xid", "xa-prepare", "xa-commit",
	"xa-rollback", "payload",
}

// String gives the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// TrxInfo describes a transaction. At Start only the fields of GTIDEvent are set; at End all are.
type TrxInfo struct {
	GTIDEvent
	Kind Kind
	// XID names the XA transaction when Kind is XAPrepare, XACommit or XARollback.
	XID sqlkind.XID
	// OnePhase is set for XA COMMIT … ONE PHASE: the changes are in this transaction.
	OnePhase bool
	// Compressed is set when the transaction is a TRANSACTION_PAYLOAD event: Payload, XAPrepare, or XACommit OnePhase.
	Compressed bool
	// Account is set for an account statement: with or without XID it may leave no trace in the engine (S5).
	Account bool
	// Special is set unless the transaction is plain row data closed by an XID.
	Special bool
	// ThreadID is the connection that ran the transaction, from its first QUERY.
	ThreadID uint32
	// Bytes is the length of the transaction so far, from its GTID event, checksums included.
	Bytes uint64
}
