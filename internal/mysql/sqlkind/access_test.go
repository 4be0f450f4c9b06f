package sqlkind

import "testing"

func TestAccessOf(t *testing.T) {
	for _, test := range []struct {
		want Access
		sql  []string
	}{
		{Read, []string{
			"SELECT 1", "select * from t", " \n(SELECT a FROM t) UNION (SELECT b FROM u);",
			"SELECT COUNT(*), max(a) FROM `t` WHERE id IN (1, 2) AND (a OR b)", "WITH x AS (SELECT 1) SELECT * FROM x",
			"TABLE t", "VALUES ROW(1,2)", "SELECT REPLACE(a, 'x', 'INTO') FROM t", "SELECT 'a;b', \"FOR UPDATE\", 'it''s'",
			"SELECT t.update, t.`for` FROM t", "/* FOR UPDATE */ SELECT 1 -- INTO x", "SELECT /*+ NO_INDEX_MERGE(t) */ 1",
			"SELECT 1;", "SELECT 1 # x", "SELECT a FROM t WHERE b = 'mysql'", "SELECT 'x\\'', a",
			"SELECT ? FROM t WHERE d > NOW() - INTERVAL 1 DAY", "SELECT a IS NULL, -(b) FROM t",
			"SELECT ROW_NUMBER() OVER (ORDER BY a) FROM t", "SELECT CAST(a AS CHAR(10)) FROM t",
			"SELECT a FROM t GROUP BY (a) LIMIT 3",
		}},
		{ReadOnlyTransaction,
			[]string{"START TRANSACTION READ ONLY", "start transaction with consistent snapshot, read only;",
				"START /* x */ TRANSACTION READ ONLY"}},
		{Diagnosis, []string{"SHOW WARNINGS", "show count(*) errors", "SHOW WARNINGS LIMIT 10", "SELECT FOUND_ROWS()",
			"SELECT ROW_COUNT()",
			"SELECT @@warning_count", "select @@session.warning_count, @@LOCAL.error_count + 1 FROM t WHERE a = 1"}},
		{Write, []string{
			"", "INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "SELECT 1 FOR UPDATE", "SELECT 1 FOR SHARE",
			"SELECT 1 LOCK IN SHARE MODE", "SELECT 1 INTO @x", "SELECT 1 INTO OUTFILE 'x'", "SELECT @x := 1",
			"SELECT @@server_id", "SELECT @@warning_count, @@server_id", "SELECT @warning_count",
			"SELECT @@global.error_count", "SELECT @@warning_count()", "SELECT @@", "SELECT @@session",
			"SELECT LAST_INSERT_ID()", "SELECT last_insert_id ()", "SELECT GET_LOCK('a', 1)", "SELECT f(1)", "SELECT d.f(1)",
			"SELECT d.count(1)", "SELECT `f`(1)", "SELECT \"f\"(1)", "SELECT COUNT (*)", "SELECT SLEEP(1)",
			"SELECT CONNECTION_ID()", "WITH x AS (SELECT 1) DELETE FROM t", "WITH x AS (SELECT 1) UPDATE t SET a = 1",
			"SELECT 1; SELECT 2", "SELECT 1;DELETE FROM t", "SELECT SQL_CALC_FOUND_ROWS a FROM t",
			"SELECT * FROM information_schema.tables", "SELECT * FROM `performance_schema`.threads",
			"SELECT * FROM \"mysql\".user", "SELECT 1 /*! INTO @x */", "SELECT 1 /*!80000 FOR UPDATE */", "START TRANSACTION",
			"START TRANSACTION READ WRITE", "START TRANSACTION READ ONLY; DELETE FROM t",
			"START TRANSACTION READ ONLY, READ WRITE", "BEGIN", "SHOW TABLES", "SHOW WARNINGS; DELETE FROM t",
			"EXPLAIN SELECT 1", "DO 1", "CALL p()", "SET a = 1", "COMMIT", "SELECT '\x81\\' FOR UPDATE -- '",
			"SELECT FOUND_ROWS(), @x", "CREATE TABLE t AS SELECT 1", "SELECT NEXT(1)", "SELECT * FROM t PROCEDURE ANALYSE()",
			"SHOW COUNT(*",
		}},
	} {
		for _, q := range test.sql {
			if got := AccessOf([]byte(q), false); got != test.want {
				t.Errorf("%q: %v, want %v", q, got, test.want)
			}
		}
	}
	// Where a backslash is a letter, the string ends before the word that counts.
	q := []byte(`SELECT '\' FOR UPDATE -- '`)
	if got := AccessOf(q, true); got != Write {
		t.Errorf("without escapes: %v", got)
	}
	if got := AccessOf(q, false); got != Read {
		t.Errorf("with escapes: %v", got)
	}
}

func TestAccessOfDoesNotAllocate(t *testing.T) {
	q := []byte("SELECT c, COUNT(*) FROM sbtest1 WHERE id BETWEEN 1 AND 100 AND k IN (1, 2, 3) ORDER BY c")
	if n := testing.AllocsPerRun(100, func() { AccessOf(q, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzAccessOf(f *testing.F) {
	for _, q := range []string{"SELECT 1", "SELECT 'a\\", "/*!", "START TRANSACTION READ ONLY", "SELECT `", "(((",
		"SHOW COUNT(*) WARNINGS"} {
		f.Add([]byte(q), true)
	}
	f.Fuzz(func(t *testing.T, q []byte, noBackslash bool) {
		if a := AccessOf(q, noBackslash); a > Diagnosis {
			t.Errorf("%q: %v", q, a)
		}
	})
}
