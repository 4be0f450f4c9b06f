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
	// CreateIfNotExists is a DDL with IF NOT EXISTS, which may change nothing.
	CreateIfNotExists
	// DropIfExists is a DDL with IF EXISTS, which may change nothing.
	DropIfExists
	// Flush is FLUSH.
	Flush
	// Maintenance is ANALYZE, OPTIMIZE, REPAIR, CHECK or CHECKSUM TABLE.
	Maintenance
)

var kindNames = [...]string{
	"other", "begin", "commit", "rollback", "savepoint", "xa-start", "xa-end", "xa-prepare", "xa-commit", "xa-rollback",
	"account", "ddl", "create-if-not-exists", "drop-if-exists", "flush", "maintenance",
}

// String gives the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// IsDDL reports whether k is DDL, CreateIfNotExists or DropIfExists.
func (k Kind) IsDDL() bool { return k == DDL || k == CreateIfNotExists || k == DropIfExists }

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
	case t.is("FLUSH"):
		return Flush
	case t.is("ANALYZE"), t.is("OPTIMIZE"), t.is("REPAIR"), t.is("CHECK"), t.is("CHECKSUM"):
		return Maintenance
	}
	return Other
}

// classifyRollback: ROLLBACK [WORK] [TO [SAVEPOINT] name].
func classifyRollback(s *scanner) Kind {
	t := s.next()
	if t.is("WORK") {
		t = s.next()
	}
	if t.is("TO") {
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
	if !s.next().is("ROLLBACK") {
		return false
	}
	t := s.next()
	if t.is("WORK") {
		t = s.next()
	}
	if t.kind == tokenOther && t.text[0] == ';' {
		t = s.next()
	}
	return t.kind == tokenEnd
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
// CREATE OR REPLACE ALGORITHM = MERGE DEFINER = `u`@`h` SQL SECURITY DEFINER VIEW IF NOT EXISTS.
const ddlPrefixTokens = 24

// classifyDDL continues after CREATE, ALTER, DROP or RENAME: first it reads the type of the object, which identifies an
// account statement, then IF [NOT] EXISTS, which follows directly.
func classifyDDL(s *scanner) Kind {
	for range ddlPrefixTokens {
		t := s.next()
		switch {
		case t.kind == tokenEnd:
			return DDL
		case t.kind != tokenWord:
			continue // an operator or a name of a DEFINER or ALGORITHM clause
		case t.is("DEFINER"):
			s.skipAccount()
			continue
		case t.is("USER"), t.is("ROLE"):
			return Account
		case !t.isObjectType():
			continue
		}
		return classifyExists(s)
	}
	return DDL
}

// classifyExists reads IF EXISTS or IF NOT EXISTS after the object's type. The types UNDO TABLESPACE, SPATIAL REFERENCE
// SYSTEM and RESOURCE GROUP have more than one word.
func classifyExists(s *scanner) Kind {
	t := s.next()
	for t.is("REFERENCE") || t.is("SYSTEM") || t.is("GROUP") || t.is("TABLESPACE") {
		t = s.next()
	}
	if !t.is("IF") {
		return DDL
	}
	switch t = s.next(); {
	case t.is("EXISTS"):
		return DropIfExists
	case t.is("NOT"):
		return CreateIfNotExists
	}
	return DDL
}
