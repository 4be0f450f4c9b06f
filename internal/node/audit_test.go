package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"trireme/internal/api"
)

// TestAuditLog: a line for each verb, whole and in a file for nobody else; a file that has become large makes room for the next.
func TestAuditLog(t *testing.T) {
	n := newTestNode(t)
	path := filepath.Join(n.cfg.Dir, "audit.log")
	n.audited(api.Audited{Verb: "switchover", By: "operator", From: "192.0.2.1:9", Request: []byte("{\n \"to\":\"n2\"}")})
	n.audited(api.Audited{Verb: "remove", By: "node", From: "192.0.2.2:9", Via: "n2", Request: []byte("{}"), Error: "no"})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	var first, second auditLine
	if len(lines) != 2 || json.Unmarshal(lines[0], &first) != nil || json.Unmarshal(lines[1], &second) != nil {
		t.Fatalf("%s", b)
	}
	if first.State != "done" || first.Node != "db1" || first.Time.IsZero() || string(first.Request) != `{"to":"n2"}` || second.State != "refused" || second.Error != "no" || second.Via != "n2" {
		t.Errorf("%s", b)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
	if err := os.Truncate(path, auditBytes); err != nil {
		t.Fatal(err)
	}
	n.audited(api.Audited{Verb: "pause", By: "operator"})
	if b, err := os.ReadFile(path); err != nil || bytes.Count(b, []byte("\n")) != 1 {
		t.Errorf("%s %v", b, err)
	}
	if st, err := os.Stat(path + ".1"); err != nil || st.Size() != auditBytes {
		t.Error(st, err)
	}
}
