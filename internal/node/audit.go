package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"trireme/internal/api"
)

// auditBytes is the size from which audit.log becomes audit.log.1, in whose place it is.
const auditBytes = 16 << 20

// auditLine is a line of audit.log: docs/format/generation.md.
type auditLine struct {
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

// auditLog is the file of who asked this node for what.
type auditLog struct {
	mu   sync.Mutex
	path string
	node string
}

// append adds a line, durably.
func (a *auditLog) append(line auditLine) (err error) {
	line.Time, line.Node = time.Now().UTC(), a.node
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	st, err := os.Stat(a.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case st.Size() >= auditBytes:
		if err := os.Rename(a.path, a.path+".1"); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(a.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err = file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	return file.Sync()
}

// audited is told of control verbs by the API.
func (n *Node) audited(v api.Audited) {
	line := auditLine{What: v.Verb, State: "done", By: v.By, From: v.From, Via: v.Via, Request: v.Request, Error: v.Error}
	if v.Error != "" {
		line.State = "refused"
	}
	if err := n.audit.append(line); err != nil {
		n.log.Error("the audit record could not be written", "err", err)
	}
}
