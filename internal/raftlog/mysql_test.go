package raftlog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/binlog"
	"trireme/internal/gtid"
	"trireme/internal/needs"
)

// run runs one of MySQL's programs with a time limit and returns its output.
func run(t *testing.T, input []byte, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, tail(stderr.String()))
	}
	return stdout.String()
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// server is a mysqld of the test.
type server struct {
	t                   *testing.T
	client, socket, dir string
}

func startServer(t *testing.T, id int) *server {
	t.Helper()
	mysqld := needs.MySQL(t).Path
	base, err := os.MkdirTemp("", "trl") // a socket's path must be short
	check(t, err)
	s := &server{t: t, client: needs.Tool(t, "mysql"), dir: filepath.Join(base, "d"), socket: filepath.Join(base, "s")}
	common := []string{"--no-defaults", "--user=root", "--datadir=" + s.dir, "--log-error=" + filepath.Join(base, "err")}
	run(t, nil, mysqld, append(common, "--initialize-insecure")...)
	cmd := exec.Command(mysqld, append(common, "--socket="+s.socket, "--skip-networking", "--mysqlx=OFF",
		fmt.Sprintf("--server-id=%d", id), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-bin="+filepath.Join(s.dir, "binlog"),
		"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
		"--secure-file-priv=NULL", "--pid-file="+filepath.Join(base, "pid"))...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	check(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		os.RemoveAll(base)
	})
	ping := time.NewTicker(50 * time.Millisecond)
	defer ping.Stop()
	limit := time.After(time.Minute)
	for {
		select {
		case err := <-done:
			done <- err
			log, _ := os.ReadFile(filepath.Join(base, "err"))
			t.Fatalf("mysqld ended: %v\n%s%s", err, tail(stderr.String()), tail(string(log)))
		case <-limit:
			t.Fatal("mysqld does not answer")
		case <-ping.C:
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := exec.CommandContext(ctx, s.client, "--no-defaults", "-uroot", "-S", s.socket, "-e", "SELECT 1").Run()
			cancel()
			if err == nil {
				return s
			}
		}
	}
}

func (s *server) sql(text string) string {
	s.t.Helper()
	return run(s.t, []byte(text), s.client, "--no-defaults", "-uroot", "-S", s.socket, "-NB", "--binary-mode")
}

func (s *server) checksums() string {
	return s.sql("CHECKSUM TABLE test.a, test.b, test.c, test.big; SELECT COUNT(*) FROM mysql.user WHERE user='u';")
}

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

// source makes entries of real transactions, as dump.Source would.
type source struct {
	stream
	index, term uint64
	fde         []byte
	out         []*raftpb.Entry
}

func (s *source) add(m *Meta, events []byte) {
	m.Node, m.Incarnation, m.Start = s.node, s.inc, s.pos
	if m.Kind == Trx {
		s.pos.Off += uint64(len(events))
	}
	m.End = s.pos
	s.index++
	s.out = append(s.out, entry(s.index, s.term, append(AppendMeta(nil, m), events...)))
}

func (s *source) begin(inc uint64) {
	s.stream = *newStream(1, inc)
	s.add(&Meta{Kind: Barrier}, s.fde)
}

// trx adds a transaction in chunks of about 64 KiB.
func (s *source) trx(t trxEvents) {
	const chunkBytes = 64 << 10
	var flags Flags
	for i := 0; i < len(t.events); {
		var chunk []byte
		for i < len(t.events) && len(chunk) < chunkBytes {
			chunk = append(chunk, t.events[i]...)
			i++
		}
		m := Meta{Kind: Trx, Flags: flags}
		if i < len(t.events) {
			m.Flags |= FlagUnfinished
		} else {
			m.AddGTID(t.gtid)
		}
		s.add(&m, chunk)
		flags = FlagContinues
	}
}

// TestMysqlbinlog prints a log with the vendor's program and replays the text into an empty server: it must end up the same.
func TestMysqlbinlog(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	a := startServer(t, 101)
	a.sql(workload)
	want, executed := a.checksums(), a.sql("SELECT @@gtid_executed")
	a.sql(lostTrx)
	a.sql(lostXA)
	fde, trxs := readBinlogs(t, a.dir)
	if len(trxs) < 30 {
		t.Fatalf("%d transactions only", len(trxs))
	}
	s := &source{term: 1, fde: fde}
	s.begin(1)
	trxs, lost := trxs[:len(trxs)-2], trxs[len(trxs)-2:]
	half := len(trxs) - 5 // the tables of the lost transactions are there already
	for _, trx := range trxs[:half] {
		s.trx(trx)
	}
	for _, l := range lost {
		for n := 1; n < len(l.events); n++ { // after the GTID, within a statement, between statements, before the end
			s.add(&Meta{Kind: Trx, Flags: FlagUnfinished}, slices.Concat(l.events[:n]...))
			s.begin(s.inc + 1)
		}
	}
	for _, trx := range trxs[half:] {
		s.trx(trx)
	}

	opts := testOptions(t.TempDir(), nil)
	opts.SegmentBytes, opts.ZeroAheadBytes = 256<<10, 0
	l := mustOpen(t, opts)
	setTerm(t, l, 1, 0)
	for _, e := range s.out {
		check(t, l.Append([]*raftpb.Entry{e}))
	}
	check(t, l.Sync())
	files, err := filepath.Glob(filepath.Join(opts.Dir, "*.log"))
	check(t, err)
	if len(files) < 3 || len(lost[0].events) < 10 || len(lost[1].events) < 8 {
		t.Fatalf("%d segments, lost transactions of %d and %d events", len(files), len(lost[0].events), len(lost[1].events))
	}
	mysqlbinlog := needs.Tool(t, "mysqlbinlog")
	// The last segment is still open: zeros and a filler follow its records.
	text := run(t, nil, mysqlbinlog, append([]string{"--no-defaults"}, files...)...)
	if d := os.Getenv("KEEP_TEXT"); d != "" {
		_ = os.WriteFile(d, []byte(text), 0o600)
	}
	for _, f := range files {
		run(t, nil, mysqlbinlog, "--no-defaults", "-v", f)
	}
	check(t, l.Close())
	closed := run(t, nil, mysqlbinlog, append([]string{"--no-defaults", "--verify-binlog-checksum"}, files...)...)
	if a, b := withoutFiller(text), withoutFiller(closed); a != b {
		t.Error("an open log prints differently from a closed one")
	}
	b := startServer(t, 102)
	b.sql(text)
	if got := b.checksums(); got != want {
		t.Errorf("after the replay:\n%s\nwant:\n%s", got, want)
	}
	if got := b.sql("SELECT @@gtid_executed"); got != executed {
		t.Errorf("gtid_executed %s, want %s", got, executed)
	}
}

// withoutFiller drops what mysqlbinlog prints for ignorable events: the last one of an open segment is a filler.
func withoutFiller(text string) string {
	return regexp.MustCompile(`(?m)^(# at \d+\n#.*Ignorable\n)?# Unrecognized ignorable event.*\n`).ReplaceAllString(text, "")
}

// TestMysqlbinlogRefusesEncrypted: it says what the file is, instead of printing nothing.
func TestMysqlbinlogRefusesEncrypted(t *testing.T) {
	out, err := exec.Command(needs.Tool(t, "mysqlbinlog"), filepath.Join("testdata", "encrypted", "v1", "0000000000000001.log")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "encrypted") {
		t.Errorf("%v: %s", err, out)
	}
}
