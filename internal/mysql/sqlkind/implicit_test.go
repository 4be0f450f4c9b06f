package sqlkind

import "testing"

func TestCommitsImplicitly(t *testing.T) {
	for sql, want := range map[string]bool{
		"CREATE TABLE t (i INT)": true, "/* x */ create view v as select 1": true, "DROP TABLE t": true,
		"CREATE TEMPORARY TABLE t (i INT)": false, "DROP TEMPORARY TABLE t": false, "ALTER TABLE t ADD j INT": true,
		"LOCK TABLES t READ": true, "BEGIN": true, "START TRANSACTION": true, "START TRANSACTION READ ONLY": true,
		"LOAD INDEX INTO CACHE t": true, "LOAD DATA INFILE 'x' INTO TABLE t": false, "SET PASSWORD = 'x'": true,
		"SET a = 1": false, "SELECT 1": false, "INSERT INTO t VALUES (1)": false, "COMMIT": false, "SAVEPOINT s": false,
		"": false,
	} {
		if got := CommitsImplicitly([]byte(sql)); got != want {
			t.Errorf("%s: %t", sql, got)
		}
	}
}

func TestDropsSchema(t *testing.T) {
	for sql, want := range map[string]bool{
		"DROP DATABASE shop": true, "drop schema if exists `shop`;": true, "/* x */ DROP /* y */ DATABASE \"shop\"": true,
		"INSERT INTO t VALUES ('; x'); DROP DATABASE shop; SELECT 1": true,
		"DROP DATABASE Shop": false, "DROP DATABASE shops": false, "DROP TABLE shop": false, "DROP DATABASE": false,
		"DROP": false, "": false, ";": false, ";;": false, "SELECT 'DROP DATABASE shop'": false,
		"CREATE DATABASE shop": false, "SELECT 1 DROP DATABASE shop": false,
	} {
		if got := DropsSchema([]byte(sql), []byte("shop")); got != want {
			t.Errorf("%s: %v", sql, got)
		}
	}
}
