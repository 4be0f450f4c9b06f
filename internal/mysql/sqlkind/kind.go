package sqlkind

import "bytes"

// Kind is what a statement does, as far as replication and recovery care.
type Kind uint8

const (
	// Other is any statement not listed below; DML is one of them.
	Other Kind = iota
	// Begin is BEGIN [WORK] or START TRANSACTION.
	Begin
	// Commit is COMMIT.
	Commit
	// Rollback is ROLLBACK, but not ROLLBACK TO.
	Rollback
	// Savepoint is SAVEPOINT, ROLLBACK TO or RELEASE SAVEPOINT: it neither begins nor ends a transaction.
	Savepoint
	// XAStart is XA START or XA BEGIN.
	XAStart
	// XAEnd is XA END.
	XAEnd
	// XAPrepare is XA PREPARE.
	XAPrepare
	// XACommit is XA COMMIT, with or without ONE PHASE.
	XACommit
	// XARollback is XA ROLLBACK.
	XARollback
	// Account statements write the grant tables: CREATE, ALTER, DROP and RENAME USER, CREATE and DROP ROLE, GRANT,
	// REVOKE, SET PASSWORD, SET DEFAULT ROLE. They may change nothing although their event carries an XID.
	Account
	// DDL is any other CREATE, ALTER, DROP, RENAME, TRUNCATE, IMPORT, INSTALL or UNINSTALL.
	DDL
)

var kindNames = [...]string{
	"other", "begin", "commit", "rollback", "savepoint", "xa-start", "xa-end", "xa-prepare", "xa-commit", "xa-rollback",
	"account", "ddl",
}

// String gives the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Classify tells what kind of statement sql is. It does not allocate.
func Classify(sql []byte) Kind {
	s := scanner{src: sql}
	t := s.next()
	switch {
	case t.is("BEGIN"):
		return Begin
	case t.is("START"):
		if s.next().is("TRANSACTION") {
			return Begin
		}
	case t.is("COMMIT"):
		return Commit
	case t.is("ROLLBACK"):
		return classifyRollback(&s)
	case t.is("SAVEPOINT"):
		return Savepoint
	case t.is("RELEASE"):
		if s.next().is("SAVEPOINT") {
			return Savepoint
		}
	case t.is("XA"):
		return classifyXA(&s)
	case t.is("GRANT"), t.is("REVOKE"):
		return Account
	case t.is("SET"):
		return classifySet(&s)
	case t.is("CREATE"), t.is("ALTER"), t.is("DROP"), t.is("RENAME"):
		return classifyDDL(&s)
	case t.is("TRUNCATE"), t.is("IMPORT"), t.is("INSTALL"), t.is("UNINSTALL"):
		return DDL
	}
	return Other
}

// classifyRollback: ROLLBACK [WORK] [TO [SAVEPOINT] name].
func classifyRollback(s *scanner) Kind {
	s.takesWord("WORK")
	if s.takesWord("TO") {
		return Savepoint
	}
	return Rollback
}

// IsRollback reports whether sql is ROLLBACK [WORK], to the letter: without AND CHAIN, RELEASE or a savepoint, and
// without a comment, which might hide one of them.
func IsRollback(sql []byte) bool {
	if bytes.ContainsAny(sql, "/#-") {
		return false
	}
	s := scanner{src: sql}
	if !s.takesWord("ROLLBACK") {
		return false
	}
	s.takesWord("WORK")
	return s.ends()
}

func classifyXA(s *scanner) Kind {
	switch t := s.next(); {
	case t.is("START"), t.is("BEGIN"):
		return XAStart
	case t.is("END"):
		return XAEnd
	case t.is("PREPARE"):
		return XAPrepare
	case t.is("COMMIT"):
		return XACommit
	case t.is("ROLLBACK"):
		return XARollback
	}
	return Other
}

// classifySet knows the forms of SET that write the grant tables. SET ROLE does not.
func classifySet(s *scanner) Kind {
	switch t := s.next(); {
	case t.is("PASSWORD"):
		return Account
	case t.is("DEFAULT"):
		if s.next().is("ROLE") {
			return Account
		}
	}
	return Other
}

// ddlPrefixTokens bounds the search for an object's type: the longest way to it is
// CREATE OR REPLACE ALGORITHM = MERGE DEFINER = `u`@`h` SQL SECURITY DEFINER VIEW.
const ddlPrefixTokens = 24

// classifyDDL continues after CREATE, ALTER, DROP or RENAME, up to the type of the object.
func classifyDDL(s *scanner) Kind {
	for range ddlPrefixTokens {
		t := s.next()
		switch {
		case t.kind == tokenEnd:
			return DDL
		case t.kind != tokenWord:
			// an operator or a name of a DEFINER or ALGORITHM clause
		case t.is("DEFINER"):
			s.skipAccount()
		case t.is("USER"), t.is("ROLE"):
			return Account
		case t.among(objectTypes[:]...):
			return DDL
		}
	}
	return DDL
}

// objectTypes are those that CREATE, ALTER and DROP take, USER and ROLE aside.
var objectTypes = [...]string{
	"TABLE", "TABLES", "VIEW", "DATABASE", "SCHEMA", "INDEX", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "SERVER",
	"TABLESPACE", "UNDO", "LOGFILE", "SPATIAL", "RESOURCE", "INSTANCE", "LIBRARY",
}
