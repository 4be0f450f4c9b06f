package mysql_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

const workload = `
CREATE DATABASE test; USE test;
CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(100), b BLOB);
CREATE TABLE b (id INT AUTO_INCREMENT PRIMARY KEY, x JSON, d DECIMAL(20,5), t TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6));
DROP TABLE IF EXISTS nothere;
CREATE USER u IDENTIFIED BY 'x'; GRANT SELECT ON test.* TO u; GRANT SELECT ON test.* TO u;
INSERT INTO a VALUES (1,'ä€',x'00ff27'),(2,'two',NULL);
BEGIN; INSERT INTO a VALUES (3,'three',NULL); SAVEPOINT s; INSERT INTO a VALUES (4,'x',NULL); ROLLBACK TO s; UPDATE a SET v='zwei' WHERE id=2; COMMIT;
INSERT INTO b (x,d) VALUES ('{"a":[1,2,3]}', 1.5), (NULL, -7);
CREATE TABLE c AS SELECT id, v FROM a;
XA START 'x1'; INSERT INTO a VALUES (10,'xa',NULL); XA END 'x1'; XA PREPARE 'x1'; XA COMMIT 'x1';
XA START 'x2'; INSERT INTO a VALUES (11,'xa',NULL); XA END 'x2'; XA PREPARE 'x2'; XA ROLLBACK 'x2';
ALTER TABLE a ADD COLUMN n INT DEFAULT 5, ADD INDEX (n);
CREATE TABLE big (id INT AUTO_INCREMENT PRIMARY KEY, s LONGTEXT);
INSERT INTO big (s) VALUES (REPEAT('q',50000));
INSERT INTO big (s) SELECT s FROM big; INSERT INTO big (s) SELECT s FROM big; INSERT INTO big (s) SELECT s FROM big;
INSERT INTO big (s) SELECT s FROM big; INSERT INTO big (s) SELECT s FROM big; INSERT INTO big (s) SELECT s FROM big;
ANALYZE TABLE a; FLUSH TABLES;
SET binlog_transaction_compression=ON; INSERT INTO a (id,v) VALUES (20,'compressed'); SET binlog_transaction_compression=OFF;
DELETE FROM big WHERE id % 3 = 0;
UPDATE a SET n = n + id;
`

// The last transaction of a source that died: it is in the log with its first events only.
const lostTrx = `USE test; BEGIN; INSERT INTO a (id,v) VALUES (100,'lost'); INSERT INTO big (s) SELECT s FROM big LIMIT 3; DELETE FROM b; COMMIT;`

// The same as an XA transaction, which has to be ended in another way.
const lostXA = `USE test; XA START 'lost','q',7; INSERT INTO a (id,v) VALUES (101,'lost'); INSERT INTO big (s) SELECT s FROM big LIMIT 3; XA END 'lost','q',7; XA PREPARE 'lost','q',7;`

func workloadSums(s *testkit.Server) string {
	return s.Script("CHECKSUM TABLE test.a, test.b, test.c, test.big; SELECT COUNT(*) FROM mysql.user WHERE user='u';")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// trxEvents are a transaction's events.
type trxEvents struct {
	gtid   gtid.GTID
	events [][]byte
}

// readBinlogs takes a server's binary logs apart.
func readBinlogs(t *testing.T, dir string) (fde []byte, trxs []trxEvents) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "binlog.0*"))
	check(t, err)
	slices.Sort(files)
	for _, f := range files {
		b, err := os.ReadFile(f)
		check(t, err)
		var asm binlog.Assembler
		var cur trxEvents
		for b = b[4:]; len(b) > 0; {
			h, ev, rest, err := binlog.Cut(b)
			check(t, err)
			b = rest
			if h.Type == binlog.TypeFormatDescription {
				fde, err = binlog.AppendWithCreatedZero(nil, ev)
				check(t, err)
			}
			where, err := asm.Feed(h, ev)
			check(t, err)
			if where == binlog.Outside {
				continue
			}
			cur.events = append(cur.events, ev)
			if where == binlog.End {
				cur.gtid = asm.Trx().GTID
				trxs = append(trxs, cur)
				cur = trxEvents{}
			}
		}
	}
	return fde, trxs
}

// entries are made of real transactions, as dump.Source would.
type entries struct {
	inc   uint64 // incarnation
	pos   raftlog.Pos
	index uint64
	fde   []byte
	out   []*raftpb.Entry
}

func (s *entries) add(m *raftlog.Meta, events []byte) {
	m.Node, m.Incarnation, m.Start = 1, s.inc, s.pos
	if m.Kind == raftlog.Trx {
		s.pos.Off += uint64(len(events))
	}
	m.End = s.pos
	s.index++
	index, term := s.index, uint64(1)
	s.out = append(s.out, &raftpb.Entry{Index: &index, Term: &term, Data: append(raftlog.AppendMeta(nil, m), events...)})
}

func (s *entries) begin(inc uint64) {
	s.inc, s.pos = inc, raftlog.Pos{File: 1, Off: 4}
	s.add(&raftlog.Meta{Kind: raftlog.Barrier}, s.fde)
}

// trx adds a transaction in chunks of about 64 KiB.
func (s *entries) trx(t trxEvents) {
	const chunkBytes = 64 << 10
	var flags raftlog.Flags
	for i := 0; i < len(t.events); {
		var chunk []byte
		for i < len(t.events) && len(chunk) < chunkBytes {
			chunk = append(chunk, t.events[i]...)
			i++
		}
		m := raftlog.Meta{Kind: raftlog.Trx, Flags: flags}
		if i < len(t.events) {
			m.Flags |= raftlog.FlagUnfinished
		} else {
			m.AddGTID(t.gtid)
		}
		s.add(&m, chunk)
		flags = raftlog.FlagContinues
	}
}

// TestMysqlbinlog prints a log with the vendor's program and replays the text into an empty server: it must end up the
// same.
func TestMysqlbinlog(t *testing.T) {
	a := testkit.StartServer(t, "--server-id=101", "--performance-schema=OFF")
	a.Script(workload)
	want, executed := workloadSums(a), a.Script("SELECT @@gtid_executed")
	a.Script(lostTrx)
	a.Script(lostXA)
	fde, trxs := readBinlogs(t, a.DataDir())
	if len(trxs) < 30 {
		t.Fatalf("%d transactions only", len(trxs))
	}
	s := &entries{fde: fde}
	s.begin(1)
	trxs, lost := trxs[:len(trxs)-2], trxs[len(trxs)-2:]
	half := len(trxs) - 5 // the tables of the lost transactions are there already
	for _, trx := range trxs[:half] {
		s.trx(trx)
	}
	for _, l := range lost {
		for n := 1; n < len(l.events); n++ { // after the GTID, within a statement, between statements, before the end
			s.add(&raftlog.Meta{Kind: raftlog.Trx, Flags: raftlog.FlagUnfinished}, slices.Concat(l.events[:n]...))
			s.begin(s.inc + 1)
		}
	}
	for _, trx := range trxs[half:] {
		s.trx(trx)
	}

	opts := raftlog.Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, CacheBytes: 16 << 10, Cluster: 7, NodeID: 1}
	l, err := raftlog.Open(opts)
	check(t, err)
	term, vote, commit := uint64(1), uint64(1), uint64(0)
	check(t, l.SetHardState(&raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}))
	for _, e := range s.out {
		check(t, l.Append([]*raftpb.Entry{e}))
	}
	check(t, l.Sync())
	files, err := filepath.Glob(filepath.Join(opts.Dir, "*.log"))
	check(t, err)
	if len(files) < 3 || len(lost[0].events) < 10 || len(lost[1].events) < 8 {
		t.Fatalf("%d segments, lost transactions of %d and %d events", len(files), len(lost[0].events), len(lost[1].events))
	}
	// The last segment is still open: zeros and a filler follow its records.
	text := testkit.Tool(t, "", "mysqlbinlog", append([]string{"--no-defaults"}, files...)...)
	for _, f := range files {
		testkit.Tool(t, "", "mysqlbinlog", "--no-defaults", "-v", f)
	}
	check(t, l.Close())
	closed := testkit.Tool(t, "", "mysqlbinlog", append([]string{"--no-defaults", "--verify-binlog-checksum"},
		files...)...)
	if a, b := withoutFiller(text), withoutFiller(closed); a != b {
		t.Error("an open log prints differently from a closed one")
	}
	b := testkit.StartServer(t, "--server-id=102", "--performance-schema=OFF")
	b.Script(text)
	if got := workloadSums(b); got != want {
		t.Errorf("after the replay:\n%s\nwant:\n%s", got, want)
	}
	if got := b.Script("SELECT @@gtid_executed"); got != executed {
		t.Errorf("gtid_executed %s, want %s", got, executed)
	}
}

// withoutFiller drops what mysqlbinlog prints for ignorable events: the last one of an open segment is a filler.
func withoutFiller(text string) string {
	return regexp.MustCompile(`(?m)^(# at \d+\n#.*Ignorable\n)?# Unrecognized ignorable event.*\n`).
		ReplaceAllString(text, "")
}

// TestMysqlbinlogRefusesEncrypted: it says what the file is, instead of printing nothing.
func TestMysqlbinlogRefusesEncrypted(t *testing.T) {
	out, err := exec.Command(needs.Tool(t, "mysqlbinlog"), filepath.Join("..", "..", "internal", "core", "raftlog",
		"testdata", "encrypted", "v1", "0000000000000001.log")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "encrypted") {
		t.Errorf("%v: %s", err, out)
	}
}
