package certs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
)

// TestOrdersAreInTheHistory: what was ordered, and by whom; once, by the leader, and not what was refused or only
// tried.
func TestOrdersAreInTheHistory(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	pause := api.Audited{Verb: "pause", By: "token ops (operator)", Request: []byte(`{"for_ns":3600000000000}`)}
	cs.Audited(pause)
	if len(h.recorded) != 0 {
		t.Errorf("a node that only passed it on tells of it: %q", h.recorded)
	}
	h.raft.Role = consensus.Leader
	cs.Audited(pause)
	for _, v := range []api.Audited{
		{Verb: "resume", By: "operator", Error: "it is not paused"},
		{Verb: "config", By: "operator", Request: []byte(`{"set":{"lag_objective":"4s","failback_after":"1m"}}`)},
		{Verb: "config/rollback", By: "operator", Request: []byte(`{"to":3,"dry_run":true}`)},
		{Verb: "tokens", By: "operator", Request: []byte(`{"name":"eyes","role":"viewer"}`)},
		{Verb: "switchover", By: "operator", Request: []byte(`{"to":"db2"}`)},
	} {
		cs.Audited(v)
	}
	want := []string{"pause automatic failover was paused for 1h0m0s by token ops (operator)",
		"settings settings were changed: failback_after=1m lag_objective=4s by operator",
		"token token eyes (viewer) was made by operator"}
	if !slices.Equal(h.recorded, want) {
		t.Errorf("%q", h.recorded)
	}
}

// TestAuditLog: a line for each verb, whole and in a file that only its owner can read; a file that has become large
// makes room for the next.
func TestAuditLog(t *testing.T) {
	cs, _, _ := newTestCerts(t)
	path := filepath.Join(cs.cfg.Dir, "audit.log")
	cs.Audited(api.Audited{Verb: "switchover", By: "operator", From: "192.0.2.1:9", Request: []byte("{\n \"to\":\"n2\"}")})
	cs.Audited(api.Audited{Verb: "remove", By: "node", From: "192.0.2.2:9", Via: "n2", Request: []byte("{}"), Error: "no"})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	var first, second AuditLine
	if len(lines) != 2 || json.Unmarshal(lines[0], &first) != nil || json.Unmarshal(lines[1], &second) != nil {
		t.Fatalf("%s", b)
	}
	if first.State != "done" || first.Node != "db1" || first.Time.IsZero() || string(first.Request) != `{"to":"n2"}` ||
		second.State != "refused" || second.Error != "no" || second.Via != "n2" {
		t.Errorf("%s", b)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
	if err := os.Truncate(path, auditBytes); err != nil {
		t.Fatal(err)
	}
	cs.Audited(api.Audited{Verb: "pause", By: "operator"})
	if b, err := os.ReadFile(path); err != nil || bytes.Count(b, []byte("\n")) != 1 {
		t.Errorf("%s %v", b, err)
	}
	if st, err := os.Stat(path + ".1"); err != nil || st.Size() != auditBytes {
		t.Error(st, err)
	}
}
