package sqlkind

import "testing"

func TestCommitsImplicitly(t *testing.T) {
	for sql, want := range map[string]bool{
		"CREATE TABLE t (i INT)": true, "/* x */ create view v as select 1": true, "DROP TABLE t": true, "CREATE TEMPORARY TABLE t (i INT)": false,
		"DROP TEMPORARY TABLE t": false, "ALTER TABLE t ADD j INT": true, "LOCK TABLES t READ": true, "BEGIN": true, "START TRANSACTION": true,
		"START TRANSACTION READ ONLY": true, "LOAD INDEX INTO CACHE t": true, "LOAD DATA INFILE 'x' INTO TABLE t": false, "SET PASSWORD = 'x'": true,
		"SET a = 1": false, "SELECT 1": false, "INSERT INTO t VALUES (1)": false, "COMMIT": false, "SAVEPOINT s": false, "": false,
	} {
		if got := CommitsImplicitly([]byte(sql)); got != want {
			t.Errorf("%s: %t", sql, got)
		}
	}
}
