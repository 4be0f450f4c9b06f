package certs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
)

// auditBytes is the size from which audit.log becomes audit.log.1, in whose place it is.
const auditBytes = 16 << 20

// AuditLine is a line of audit.log: docs/format/generation.md.
type AuditLine struct {
	Time    time.Time        `json:"time"`
	Node    string           `json:"node"`
	What    string           `json:"what"`  // the verb
	State   string           `json:"state"` // done, refused; of force-quorum itself: asked, decided
	By      string           `json:"by"`
	From    string           `json:"from,omitempty"`
	Via     string           `json:"via,omitempty"`
	Request json.RawMessage  `json:"request,omitempty"`
	Error   string           `json:"error,omitempty"`
	Plan    *api.ForceReport `json:"plan,omitempty"`
}

// Audit adds a line to audit.log, durably.
func (cs *Certs) Audit(line AuditLine) (err error) {
	path := filepath.Join(cs.cfg.Dir, "audit.log")
	line.Time, line.Node = time.Now().UTC(), cs.id.Name
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	cs.auditing.Lock()
	defer cs.auditing.Unlock()
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case st.Size() >= auditBytes:
		if err := os.Rename(path, path+".1"); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err = file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return file.Sync()
}

// Audited is called by the API for each control verb.
func (cs *Certs) Audited(v api.Audited) {
	line := AuditLine{What: v.Verb, State: "done", By: v.By, From: v.From, Via: v.Via, Request: v.Request, Error: v.Error}
	if v.Error != "" {
		line.State = "refused"
	}
	if err := cs.Audit(line); err != nil {
		cs.log.Error("the audit record could not be written", "err", err)
	}
	// The node that has passed a request on to the leader is told of it too.
	if kind, text := orderText(v); kind != "" && v.Error == "" && cs.host.Raft().Role == consensus.Leader {
		cs.host.Record(kind, v.By, text)
	}
}

// Kinds of events of orders that leave no other event; a token's is api.EventToken.
const (
	eventPause    = "pause"
	eventResume   = "resume"
	eventSettings = "settings"
)

// orderText is what the history says of an order; without a kind: nothing. The order was carried out, so its request
// can be read.
func orderText(v api.Audited) (kind, text string) {
	switch v.Verb {
	case "pause":
		var r api.PauseRequest
		_ = json.Unmarshal(v.Request, &r)
		if r.For != 0 {
			text = " for " + r.For.String()
		}
		return eventPause, "automatic failover was paused" + text
	case "resume":
		return eventResume, "automatic failover was switched on again"
	case "config":
		var r api.ConfigChange
		_ = json.Unmarshal(v.Request, &r)
		for _, key := range slices.Sorted(maps.Keys(r.Set)) {
			text += " " + key + "=" + r.Set[key]
		}
		return eventSettings, "settings were changed:" + text
	case "config/rollback":
		var r api.ConfigRollback
		if _ = json.Unmarshal(v.Request, &r); r.DryRun {
			return "", ""
		}
		return eventSettings, fmt.Sprintf("settings of version %d were taken up again", r.To)
	case "tokens":
		var r api.TokenRequest
		_ = json.Unmarshal(v.Request, &r)
		return api.EventToken, fmt.Sprintf("token %s (%s) was made", r.Name, r.Role)
	case "tokens/remove":
		var r api.TokenName
		_ = json.Unmarshal(v.Request, &r)
		return api.EventToken, "token " + r.Name + " was removed"
	case "join-tokens":
		var r api.JoinTokenRequest
		_ = json.Unmarshal(v.Request, &r)
		who := "a " + r.Role
		if r.Name != "" {
			who = r.Name + ", a " + r.Role + ","
		}
		return api.EventToken, "a token for " + who + " to join was made"
	}
	return "", ""
}
