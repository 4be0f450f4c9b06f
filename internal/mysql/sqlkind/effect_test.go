package sqlkind

import "testing"

const mixedSet = "SET of global and session variables in one statement"

func TestEffectOf(t *testing.T) {
	for text, want := range map[string]Effect{
		"SELECT 1":                     {Verb: VerbRead},
		"  /* app */ select '@x'":      {Verb: VerbRead},
		"SELECT 'it\\'s @x', \"@x\"":   {Verb: VerbRead},
		"SELECT `a@b` FROM t -- @x":    {Verb: VerbRead, Tables: true},
		"SELECT 1 --@x":                {Verb: VerbRead, Reason: "user variables (@x)"},
		"SELECT 5--@x":                 {Verb: VerbRead, Reason: "user variables (@x)"},
		"SELECT 1 # @x\n, @@version":   {Verb: VerbRead},
		"SELECT f(1)":                  {Verb: VerbRead, Calls: true},
		"SELECT COUNT(*) FROM t":       {Verb: VerbRead, Tables: true},
		"SELECT 1 INTO @x":             {Verb: VerbRead, Reason: "user variables (@x)", Calls: true},
		"SELECT @`x`":                  {Verb: VerbRead, Reason: "user variables (@x)"},
		"SELECT @":                     {Verb: VerbRead, Reason: "user variables (@x)"},
		"SELECT GET_LOCK('a', 1)":      {Verb: VerbRead, Reason: "user locks", Calls: true},
		"/*!40101 SET NAMES utf8 */":   {Verb: VerbSet, Doubt: true},
		"/*!50003 SET @x = 1 */;":      {Verb: VerbSet, Reason: "user variables (@x)", Doubt: true},
		"SET @@autocommit = 0":         {Verb: VerbSet},
		"SET GLOBAL a = 1":             {Verb: VerbSet, Global: true},
		"SET a = @@GLOBAL.a":           {Verb: VerbSet, Reads: true},
		"SET a = CONCAT(b, 'x')":       {Verb: VerbSet, Reads: true},
		"SET a = f(1)":                 {Verb: VerbSet, Reads: true, Calls: true},
		"SET GLOBAL a = 1, SESSION b":  {Verb: VerbSet, Global: true, Reason: mixedSet},
		"SET a = 1, PERSIST b = 2":     {Verb: VerbSet, Reason: mixedSet},
		"SET @@GLOBAL.a = 1, @@b = 2":  {Verb: VerbSet, Global: true, Reason: mixedSet},
		"SET @@transaction_isolation":  {Verb: VerbSet, Reason: "@@transaction_… for the next transaction"},
		"SET transaction_isolation":    {Verb: VerbSet},
		"SET @@SESSION.transaction_is": {Verb: VerbSet},
		"SET `autocommit` = 1":         {Verb: VerbSet, Reason: "SET with a quoted name"},
		"SET GTID_NEXT = 'AUTOMATIC'":  {Verb: VerbSet, Reason: "gtid_next"},
		"SET DEFAULT ROLE r TO u":      {Verb: VerbSet, Reason: "SET DEFAULT"},
		"SET ROLE r":                   {Verb: VerbSet},
		"SET completion_type = 1":      {Verb: VerbSet, Reason: "completion_type"},
		"COMMIT WORK;":                 {Verb: VerbCommit},
		"COMMIT AND CHAIN":             {Verb: VerbOther},
		"COMMIT RELEASE":               {Verb: VerbOther},
		"RELEASE SAVEPOINT a":          {Verb: VerbRollback},
		"LOAD DATA LOCAL INFILE 'x'":   {Verb: VerbWrite},
		"LOAD INDEX INTO CACHE t":      {Verb: VerbOther, Calls: true},
		"WITH a AS (SELECT 1) SELECT":  {Verb: VerbRead},
		"WITH a AS (SELECT 1) DELETE":  {Verb: VerbRead, Calls: true},
		"EXPLAIN ANALYZE UPDATE t SET": {Verb: VerbRead, Calls: true},
		"DESC ANALYZE SELECT f()":      {Verb: VerbRead, Calls: true},
		"SELECT d.count(1)":            {Verb: VerbRead, Calls: true},
		"/**/ SELECT 1 /***/ + @x":     {Verb: VerbRead, Reason: "user variables (@x)"},
		"SELECT /*!80000 1 */* @x":     {Verb: VerbRead, Reason: "user variables (@x)"},
		"SELECT 1 /*/ @x":              {Verb: VerbRead},
		"SELECT d./**/now()":           {Verb: VerbRead, Calls: true},
		"SELECT `d`.concat ('x')":      {Verb: VerbRead, Calls: true},
		"SELECT t.*, COUNT(*) FROM t":  {Verb: VerbRead, Tables: true},
		"SELECT t.id IN (1), d.a, (1)": {Verb: VerbRead},
		"SET TRANSACTION READ ONLY":    {Verb: VerbSet, Once: true},
		"SET SESSION TRANSACTION READ": {Verb: VerbSet},
		"CREATE TEMPORARY TABLE t":     {Verb: VerbOther, Reason: "temporary tables", Tables: true},
		"LOCK TABLES t READ":           {Verb: VerbOther, Reason: "LOCK TABLES"},
		"INSERT INTO t VALUES (1);":    {Verb: VerbWrite, Calls: true},
		"INSERT 1; SELECT 2":           {Verb: VerbWrite, Several: true},
		"INSERT 1; DROP TABLE t":       {Verb: VerbOther, Several: true, Tables: true},
		"SELECT 1; SET a = 1":          {Verb: VerbRead, Several: true, Reason: "SET or USE among several statements"},
		"SELECT 1; /* nothing */ ; ":   {Verb: VerbRead},
		"SELECT \"f\"(1)":              {Verb: VerbRead, Calls: true},
		"SELECT \"a\\\" FROM t -- \"":  {Verb: VerbRead, Tables: true},
		"SELECT 'a\\' FROM t -- '":     {Verb: VerbRead},
		"CALL p()":                     {Verb: VerbOther, Reason: "CALL", Calls: true},
		"":                             {},
	} {
		if got := EffectOf([]byte(text), false); got != want {
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
		e := EffectOf([]byte(text), false)
		if got := [3]bool{e.MayCommit(false, true), e.MayCommit(true, true), e.MayCommit(false, false)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestEffectOfDoesNotAllocate(t *testing.T) {
	for _, q := range benchEffects {
		text := []byte(q)
		if n := testing.AllocsPerRun(20, func() { EffectOf(text, false) }); n != 0 {
			t.Errorf("%s: %v allocations", q, n)
		}
	}
}

func BenchmarkEffectOf(b *testing.B) {
	for name, q := range benchEffects {
		text := []byte(q)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				EffectOf(text, false)
			}
		})
	}
}

var benchEffects = map[string]string{
	"select": "SELECT c FROM sbtest1 WHERE id = 5012345 AND pad = 'a text that makes it a little longer'",
	"update": "UPDATE stock SET s_quantity = 10, s_ytd = s_ytd + 3 WHERE s_i_id = 3821 AND s_w_id = 12",
	"set":    "SET SESSION sql_mode = 'ANSI', autocommit = 1",
	"commit": "COMMIT",
}

// A text has the same effect in however many parts it comes.
func FuzzEffectScanner(f *testing.F) {
	f.Add([]byte("SELECT /*! @x */ 'a\\'b' -- c\n;SET @@y = 1"), uint8(3), uint8(5), false)
	f.Fuzz(func(t *testing.T, text []byte, first, second uint8, noBackslash bool) {
		s := NewEffectScanner(noBackslash)
		i := min(int(first), len(text))
		j := min(i+int(second), len(text))
		for _, part := range [][]byte{text[:i], text[i:j], text[j:]} {
			s.Write(part)
		}
		s.Finish()
		if want := EffectOf(text, noBackslash); s.Effect != want {
			t.Errorf("in parts %+v, in one %+v", s.Effect, want)
		}
	})
}
