-- Tagged GTIDs; the second file's PREVIOUS_GTIDS has them, in the tagged encoding.
CREATE DATABASE app;
USE app;
CREATE TABLE t (id INT PRIMARY KEY);
SET gtid_next = 'AUTOMATIC:backup';
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2);
SET gtid_next = 'AUTOMATIC:_x9';
INSERT INTO t VALUES (3);
SET gtid_next = 'ffffffff-80ff-7f01-0040-3fc0ffffffff:abcdefghijklmnopqrstuvwxyz_01234:1234567890123';
INSERT INTO t VALUES (4);
SET gtid_next = 'ffffffff-80ff-7f01-0040-3fc0ffffffff:9223372036854775806';
INSERT INTO t VALUES (5);
SET gtid_next = AUTOMATIC;
INSERT INTO t VALUES (6);
FLUSH BINARY LOGS;
INSERT INTO t VALUES (7);
