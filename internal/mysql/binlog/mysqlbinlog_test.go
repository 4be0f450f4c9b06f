package binlog

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/needs"
	"trireme/lab/testkit"
)

// TestMysqlbinlog has the vendor's tool read a file made of this package's own events around a server's transactions,
// as a segment of the raft log is.
func TestMysqlbinlog(t *testing.T) {
	_, tagged := sample(t, "tagged-2")
	_, dml := sample(t, "dml-1")
	h := Header{Timestamp: 1_700_000_000, ServerID: 4711}
	file := []byte(Magic)
	add := func(ev []byte) {
		file = append(file, ev...)
		SetLogPos(file[len(file)-len(ev):], uint32(len(file)))
	}
	add(AppendFormatDescription(nil, h, "9.7.4-trireme", 0))
	add(AppendPreviousGTIDs(nil, Header{Timestamp: h.Timestamp, ServerID: h.ServerID, Flags: FlagIgnorable},
		mustSet(t, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:backup:1-3,3e11fa47-71ca-11e1-9e33-c80aa9429563:9")))
	add(AppendIgnorable(nil, h, []byte("term 3 index 17")))
	trx := tagged[2:]
	for _, ev := range trx {
		add(append([]byte(nil), ev...))
	}
	add(AppendIgnorable(nil, h, nil))
	for _, ev := range dml[5:9] { // CREATE TABLE, CREATE TABLE
		add(append([]byte(nil), ev...))
	}
	for _, ev := range trx[:3] { // cut in the middle, then the abort marker
		add(append([]byte(nil), ev...))
	}
	add(AppendRollback(nil, h))
	add(AppendRotate(nil, h, "segment.000002", 4))

	path := filepath.Join(t.TempDir(), "segment.000001")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out := testkit.Tool(t, "", "mysqlbinlog", "--no-defaults", "--verify-binlog-checksum", "--verbose", path)
	for _, want := range []string{
		"Start: binlog v 4, server v 9.7.4-trireme",
		"# 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:backup:1-3,\n# 3e11fa47-71ca-11e1-9e33-c80aa9429563:9",
		"Unrecognized ignorable event",
		"### INSERT INTO `app`.`t`",
		"CREATE TABLE b",
		"Rotate to segment.000002  pos: 4",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("mysqlbinlog does not print %q:\n%s", want, out)
		}
	}
	// A wrong checksum must be noticed, or this test shows nothing.
	file[len(file)-1] ^= 1
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), needs.Tool(t, "mysqlbinlog"), "--no-defaults", "--verify-binlog-checksum",
		path).Run(); err == nil {
		t.Error("mysqlbinlog takes a wrong checksum")
	}
}
