package router

import (
	"bytes"
	"testing"

	"trireme/internal/mysql/mysqlwire"
)

func scanned(text string) effect {
	var s scanner
	s.write([]byte(text))
	s.finish()
	return s.effect()
}

const mixedSet = "SET of global and session variables in one statement"

func TestScan(t *testing.T) {
	for text, want := range map[string]effect{
		"SELECT 1":                     {verb: verbRead},
		"  /* app */ select '@x'":      {verb: verbRead},
		"SELECT 'it\\'s @x', \"@x\"":   {verb: verbRead},
		"SELECT `a@b` FROM t -- @x":    {verb: verbRead, tables: true},
		"SELECT 1 --@x":                {verb: verbRead, reason: "user variables (@x)"},
		"SELECT 5--@x":                 {verb: verbRead, reason: "user variables (@x)"},
		"SELECT 1 # @x\n, @@version":   {verb: verbRead},
		"SELECT f(1)":                  {verb: verbRead, calls: true},
		"SELECT COUNT(*) FROM t":       {verb: verbRead, tables: true},
		"SELECT 1 INTO @x":             {verb: verbRead, reason: "user variables (@x)", calls: true},
		"SELECT @`x`":                  {verb: verbRead, reason: "user variables (@x)"},
		"SELECT @":                     {verb: verbRead, reason: "user variables (@x)"},
		"SELECT GET_LOCK('a', 1)":      {verb: verbRead, reason: "user locks", calls: true},
		"/*!40101 SET NAMES utf8 */":   {verb: verbSet, doubt: true},
		"/*!50003 SET @x = 1 */;":      {verb: verbSet, reason: "user variables (@x)", doubt: true},
		"SET @@autocommit = 0":         {verb: verbSet},
		"SET GLOBAL a = 1":             {verb: verbSet, global: true},
		"SET a = @@GLOBAL.a":           {verb: verbSet, reads: true},
		"SET a = CONCAT(b, 'x')":       {verb: verbSet, reads: true},
		"SET a = f(1)":                 {verb: verbSet, reads: true, calls: true},
		"SET GLOBAL a = 1, SESSION b":  {verb: verbSet, global: true, reason: mixedSet},
		"SET a = 1, PERSIST b = 2":     {verb: verbSet, reason: mixedSet},
		"SET @@GLOBAL.a = 1, @@b = 2":  {verb: verbSet, global: true, reason: mixedSet},
		"SET @@transaction_isolation":  {verb: verbSet, reason: "@@transaction_… for the next transaction"},
		"SET transaction_isolation":    {verb: verbSet},
		"SET @@SESSION.transaction_is": {verb: verbSet},
		"SET `autocommit` = 1":         {verb: verbSet, reason: "SET with a quoted name"},
		"SET GTID_NEXT = 'AUTOMATIC'":  {verb: verbSet, reason: "gtid_next"},
		"SET DEFAULT ROLE r TO u":      {verb: verbSet, reason: "SET DEFAULT"},
		"SET ROLE r":                   {verb: verbSet},
		"SET completion_type = 1":      {verb: verbSet, reason: "completion_type"},
		"COMMIT WORK;":                 {verb: verbCommit},
		"COMMIT AND CHAIN":             {verb: verbOther},
		"COMMIT RELEASE":               {verb: verbOther},
		"RELEASE SAVEPOINT a":          {verb: verbRollback},
		"LOAD DATA LOCAL INFILE 'x'":   {verb: verbWrite},
		"LOAD INDEX INTO CACHE t":      {verb: verbOther, calls: true},
		"WITH a AS (SELECT 1) SELECT":  {verb: verbRead},
		"WITH a AS (SELECT 1) DELETE":  {verb: verbRead, calls: true},
		"EXPLAIN ANALYZE UPDATE t SET": {verb: verbRead, calls: true},
		"DESC ANALYZE SELECT f()":      {verb: verbRead, calls: true},
		"SELECT d.count(1)":            {verb: verbRead, calls: true},
		"/**/ SELECT 1 /***/ + @x":     {verb: verbRead, reason: "user variables (@x)"},
		"SELECT 1 /*/ @x":              {verb: verbRead},
		"SELECT d./**/now()":           {verb: verbRead, calls: true},
		"SELECT `d`.concat ('x')":      {verb: verbRead, calls: true},
		"SELECT t.*, COUNT(*) FROM t":  {verb: verbRead, tables: true},
		"SELECT t.id IN (1), d.a, (1)": {verb: verbRead},
		"SET TRANSACTION READ ONLY":    {verb: verbSet, once: true},
		"SET SESSION TRANSACTION READ": {verb: verbSet},
		"CREATE TEMPORARY TABLE t":     {verb: verbOther, reason: "temporary tables", tables: true},
		"LOCK TABLES t READ":           {verb: verbOther, reason: "LOCK TABLES"},
		"INSERT INTO t VALUES (1);":    {verb: verbWrite, calls: true},
		"INSERT 1; SELECT 2":           {verb: verbWrite, several: true},
		"INSERT 1; DROP TABLE t":       {verb: verbOther, several: true, tables: true},
		"SELECT 1; SET a = 1":          {verb: verbRead, several: true, reason: "SET or USE among several statements"},
		"SELECT 1; /* nothing */ ; ":   {verb: verbRead},
		"SELECT \"f\"(1)":              {verb: verbRead, calls: true},
		"SELECT \"a\\\" FROM t -- \"":  {verb: verbRead, tables: true},
		"SELECT 'a\\' FROM t -- '":     {verb: verbRead},
		"CALL p()":                     {verb: verbOther, reason: "CALL", calls: true},
		"":                             {},
	} {
		if got := scanned(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// What commits by itself may have been committed, whatever word it begins with.
func TestMayCommit(t *testing.T) {
	for text, want := range map[string][3]bool{ // by itself, within a transaction, with autocommit=0
		"WITH a AS (SELECT 1) DELETE FROM t WHERE i IN (SELECT * FROM a)": {true, false, false},
		"with a as (select 1) update t, a set v = 1":                      {true, false, false},
		"SELECT app.count(1)":                     {true, false, false},
		"DESCRIBE ANALYZE SELECT f()":             {true, false, false},
		"SET sql_mode = f()":                      {true, true, false},
		"SET autocommit = 1":                      {false, true, false},
		"LOAD DATA LOCAL INFILE 'x' INTO TABLE t": {true, false, false},
		"LOAD INDEX INTO CACHE t":                 {true, true, true},
		"RELEASE SAVEPOINT a":                     {false, false, false},
		"COMMIT AND CHAIN":                        {true, true, true},
		"/*!999999 SHOW */ DELETE FROM t":         {true, true, true},
		"BEGIN":                                   {false, true, false},
		"DROP TABLE t":                            {true, true, true},
		"SELECT 1; DELETE FROM t":                 {true, true, true},
		"SELECT 1 FROM t WHERE (a = 1)":           {false, false, false},
	} {
		e := scanned(text)
		if got := [3]bool{e.mayCommit(false, true), e.mayCommit(true, true), e.mayCommit(false, false)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("SELECT /*! @x */ 'a\\'b' -- c\n;SET @@y = 1"), uint8(3))
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		var s scanner
		i := min(int(cut), len(text))
		s.write(text[:i])
		s.write(text[i:])
		s.finish()
		if got, want := s.effect(), scanned(string(text)); got != want {
			t.Errorf("in two parts %+v, in one %+v", got, want)
		}
	})
}

// An answer ends at the same byte however it is cut into parts, and never beyond what there is.
func FuzzAnswer(f *testing.F) {
	ok := mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: 2}))
	rows := bytes.Join([][]byte{{1, 0, 0, 1, 1}, {3, 0, 0, 2, 3, 'd', 'e'}, {5, 0, 0, 3, 0xfe, 0, 0, 2, 0},
		{2, 0, 0, 4, 1, 'x'}, {5, 0, 0, 5, 0xfe, 0, 0, 2, 0}}, nil)
	f.Add(ok, byte(comPing), true, uint8(1))
	f.Add(rows, byte(comQuery), false, uint8(7))
	f.Add([]byte{12, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, byte(comStmtPrepare), true, uint8(5))
	f.Fuzz(func(t *testing.T, b []byte, command byte, deprecate bool, part uint8) {
		whole, parts := newAnswer(command, deprecate), newAnswer(command, deprecate)
		end, err := whole.feed(b)
		if end > len(b) {
			t.Fatalf("%d of %d bytes", end, len(b))
		}
		used := 0
		for used < len(b) {
			n, perr := parts.feed(b[used:min(len(b), used+int(part)+1)])
			used += n
			if perr != nil {
				if err == nil {
					t.Fatalf("in parts %v", perr)
				}
				return
			}
			if n == 0 {
				break
			}
		}
		if err == nil && (used != end || parts.state != whole.state || parts.status != whole.status ||
			parts.failed != whole.failed) {
			t.Errorf("in parts %d %+v, in one %d %+v", used, parts, end, whole)
		}
	})
}

// A packet that is longer than what is looked at belongs to the answer as a whole.
func TestAnswerLongOK(t *testing.T) {
	p := mysqlwire.AppendOK(nil, mysqlwire.OK{AffectedRows: 2, Status: 2})
	p = mysqlwire.AppendPacket(nil, 1, append(p, "(Records: 2  Duplicates: 0  Warnings: 0"...))
	for cut := range p {
		a := newAnswer(comQuery, true)
		n, err := a.feed(p[:cut])
		if n != cut || err != nil || a.done() {
			t.Fatalf("%d of %d bytes, %v, %+v", n, cut, err, a)
		}
		n, err = a.feed(append(p[cut:len(p):len(p)], 0))
		if n != len(p)-cut || err != nil || !a.done() || a.status != 2 {
			t.Fatalf("after %d: %d bytes, %v, %+v", cut, n, err, a)
		}
	}
}

func TestAnswerRows(t *testing.T) {
	rows := bytes.Join([][]byte{{1, 0, 0, 1, 1}, {3, 0, 0, 2, 3, 'd', 'e'}, {5, 0, 0, 3, 0xfe, 0, 0, 2, 0},
		{2, 0, 0, 4, 1, 'x'}, {5, 0, 0, 5, 0xfe, 0, 0, 3, 0}}, nil)
	a := newAnswer(comQuery, false)
	if n, err := a.feed(append(rows, 0)); n != len(rows) || err != nil || a.state != answerDone || a.status != 3 {
		t.Errorf("%d of %d bytes, %v, %+v", n, len(rows), err, a)
	}
}

func FuzzExecute(f *testing.F) {
	f.Add([]byte{comStmtExecute, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 8, 0, 8, 0, 1}, uint16(2), false)
	f.Fuzz(func(t *testing.T, p []byte, params uint16, attributes bool) {
		if e, ok := parseExecute(p, int(params), attributes); ok && e.flag > 0 && e.flag+1+e.types > len(p) {
			t.Errorf("%+v of %d bytes", e, len(p))
		}
	})
}
