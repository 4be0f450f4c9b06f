package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// How long nobody took writes, and since when, must be known after an outage in which every daemon that saw its begin
// has ended. So each node keeps the last moment at which it knew somebody to take writes: in its status, for those
// who saw less, and in a file, for its next life. The file is not fsynced: a power loss makes the outage a little
// longer than it was, and nothing rests on it.

// openInterval is how old that moment may be in the file.
const openInterval = 5 * time.Second

// openSeen is when a node last knew that the leader of a term took writes.
type openSeen struct {
	Term uint64    `json:"term"` // 0: never
	At   time.Time `json:"at"`   // by the clock of the node that says so
}

func (n *Node) openFile() string { return filepath.Join(n.cfg.Dir, "open.json") }

// loadOpen reads what the life before knew.
func (n *Node) loadOpen() {
	var s openSeen
	if b, err := os.ReadFile(n.openFile()); err == nil && json.Unmarshal(b, &s) == nil && !s.At.After(time.Now()) {
		n.openSeen = s
	}
}

// watchOpen notes that somebody takes writes.
func (n *Node) watchOpen() func(context.Context) {
	var saved time.Time
	return func(context.Context) {
		n.mu.Lock()
		n.noteOpenSeenLocked()
		s := n.openSeen
		n.mu.Unlock()
		if s.Term == 0 || s.At.Sub(saved) < openInterval && !s.At.Before(saved) {
			return
		}
		saved = s.At
		b, err := json.Marshal(s)
		if err == nil {
			err = os.WriteFile(n.openFile()+".tmp", b, 0o600)
		}
		if err == nil {
			err = os.Rename(n.openFile()+".tmp", n.openFile())
		}
		if n.warnings.isNew("open.json", err) {
			n.log.Warn("when writes were last taken was not written down", "err", err)
		}
	}
}

func (n *Node) noteOpenSeenLocked() {
	if n.serving.Term() != 0 && n.serving.TakesWrites() {
		n.openSeen = openSeen{n.serving.Term(), time.Now()}
	}
	for id := range n.peers {
		if p := n.heardLocked(id); p != nil && p.status.OpenTerm != 0 && p.status.OpenTerm >= n.openSeen.Term {
			n.openSeen = openSeen{p.status.OpenTerm, time.Now().Add(p.at - now())}
		}
	}
}

// lastOpenLocked is when the leader of a term was last known to take writes, by any node that this one hears, and who
// knows that; empty: nobody does. It has to be asked before this node takes writes itself.
func (n *Node) lastOpenLocked(term uint64) (at time.Duration, by string) {
	if n.openSeen.Term == term {
		at, by = now()-time.Since(n.openSeen.At), n.id.Name
	}
	for _, m := range n.cluster.Members {
		p := n.peers[m.ID]
		if p == nil || !p.fresh() || p.status.Seen.Term != term || p.status.Clock.IsZero() {
			continue
		}
		if seen := p.at - p.status.Clock.Sub(p.status.Seen.At); seen <= now() && (by == "" || seen > at) {
			at, by = seen, m.Name
		}
	}
	return at, by
}

// outageText is the cause of an outage that this daemon did not see begin.
func (n *Node) outageText(from string, t *takeover) string {
	text := fmt.Sprintf("%s was last known to take writes %.0f s before, by %s", from, (t.elected - t.seen).Seconds(), t.seenBy)
	if n.started > t.seen {
		text += fmt.Sprintf("; the daemon of %s was started %.0f s after that", n.id.Name, (n.started - t.seen).Seconds())
	}
	return text
}
