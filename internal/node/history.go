package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/durable"
)

// Bounds of the history.
const (
	maxChanges     = 500  // changes of leaders kept, by every node the same: the newest
	maxOthers      = 500  // other events kept; a mysqld that starts over and over must not push the changes of leaders out
	maxCopies      = 20   // events kept of copies that a backup has made, likewise
	maxWriters     = 100  // events kept of what clients write, who may do it all night (large-transaction, refused)
	maxEventText   = 2000 // bytes of a text of an event
	maxEventBytes  = 4*maxEventText + 4096
	historyBatch   = 200 // events in one answer
	historyTimeout = 2 * time.Second
)

// history is the cluster's flight recorder: elections, fences, switchovers, rejoins of all nodes. Each node adds what
// it does, and nodes fetch from each other what they lack: so every node tells the same, also what a node did that is
// gone, and nothing of it needs a quorum. It is in history.jsonl, a line an event, written whole a moment after each
// change. Nothing depends on it.
type history struct {
	path    string
	log     *slog.Logger
	changed chan struct{} // the file has to be written

	mu     sync.Mutex
	events []api.Event // in order
	ids    map[uint64]bool
	digest uint64 // of ids, whatever their order
}

func openHistory(dir string, log *slog.Logger) *history {
	h := &history{path: filepath.Join(dir, "history.jsonl"), log: log, changed: make(chan struct{}, 1),
		ids: map[uint64]bool{}}
	b, err := os.ReadFile(h.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the history could not be read", "err", err)
	}
	var list []api.Event
	for line := range bytes.Lines(b) {
		var e api.Event
		if json.Unmarshal(line, &e) == nil {
			list = append(list, e)
		}
	}
	h.merge(list)
	return h
}

// eventID tells events apart; the same event has the same id on every node.
func eventID(e api.Event) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d\x00%d\x00%s", e.Node, e.Kind, e.Time.UnixNano(), e.Term, e.Message)
	return h.Sum64()
}

// inOrder sorts by term, then by the clock of the node that noted the event: what belongs to an older term came before,
// whatever the clocks say.
func inOrder(a, b api.Event) int {
	return cmp.Or(cmp.Compare(a.Term, b.Term), a.Time.Compare(b.Time), cmp.Compare(a.Node, b.Node),
		cmp.Compare(eventID(a), eventID(b)))
}

// add records an event.
func (h *history) add(e api.Event) {
	e.Time = e.Time.Round(0).UTC()
	e.Message, e.Cause, e.GTIDs = shorten(e.Message), shorten(e.Cause), shorten(e.GTIDs)
	h.merge([]api.Event{e})
}

// merge takes events of this or another node; those that are known, or too old to be kept, are left out.
func (h *history) merge(list []api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.digest
	for _, e := range list {
		if id := eventID(e); !h.ids[id] && sized(e) {
			h.ids[id] = true
			h.digest ^= id
			h.events = append(h.events, e)
		}
	}
	slices.SortFunc(h.events, inOrder)
	room := [...]int{sortChange: maxChanges, sortOther: maxOthers, sortWriter: maxWriters, sortCopy: maxCopies}
	for i := len(h.events) - 1; i >= 0; i-- {
		sort := sortOf(h.events[i])
		if room[sort]--; room[sort] < 0 {
			id := eventID(h.events[i])
			delete(h.ids, id)
			h.digest ^= id
			h.events = slices.Delete(h.events, i, i+1)
		}
	}
	if h.digest != before {
		select {
		case h.changed <- struct{}{}:
		default:
		}
	}
}

// Sorts of events: each has room of its own.
const (
	sortChange = iota
	sortOther
	sortWriter
	sortCopy
)

func sortOf(e api.Event) int {
	switch {
	case e.To != "":
		return sortChange
	case e.Kind == eventLarge || e.Kind == eventRefused:
		return sortWriter
	case e.Kind == api.EventBackup:
		return sortCopy
	}
	return sortOther
}

// askedEvent is an event of what somebody asked for, with who that is.
func (n *Node) askedEvent(ctx context.Context, kind string, index uint64, text string) api.Event {
	e := n.event(kind, index, text)
	e.By = shorten(api.WhoAsked(ctx))
	return e
}

// shorten bounds a text, and replaces what is not UTF-8 (mysqld quotes data in its errors): JSON would do that on the
// way, and the event would have another id on other nodes.
func shorten(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= maxEventText {
		return s
	}
	return strings.ToValidUTF8(s[:maxEventText], "") + "…"
}

// sized says whether an event is as small as those that nodes make: bounds on their number alone would not bound the
// memory that a peer's events take.
func sized(e api.Event) bool {
	n := len(e.Kind) + len(e.Node) + len(e.From) + len(e.To) + len(e.Message) + len(e.Cause) + len(e.GTIDs) +
		len(e.By) + len(e.Member) + e.Backup.Size()
	if e.RolledBack != nil {
		n += len(e.RolledBack.GTIDs)
	}
	return n <= maxEventBytes
}

// all returns the events, in order.
func (h *history) all() []api.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// sum tells whether two nodes know the same.
func (h *history) sum() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.digest
}

// known are the ids, 8 bytes each.
func (h *history) known() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := make([]byte, 0, 8*len(h.ids))
	for id := range h.ids {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return b
}

// lacking returns events that somebody who has known does not have, the newest that fit into an answer.
func (h *history) lacking(known []byte) []api.Event {
	has := map[uint64]bool{}
	for ; len(known) >= 8; known = known[8:] {
		has[binary.LittleEndian.Uint64(known)] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []api.Event
	for _, e := range slices.Backward(h.events) {
		if !has[eventID(e)] && len(out) < historyBatch {
			out = append(out, e)
		}
	}
	return out
}

// save writes the file.
func (h *history) save() {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range h.all() {
		if err := enc.Encode(e); err != nil {
			h.log.Warn("an event of the history cannot be written", "err", err)
		}
	}
	if err := durable.WriteFile(h.path, b.Bytes(), 0o600); err != nil {
		h.log.Warn("the history could not be written", "err", err)
	}
}

// keep writes the file whenever something changed. Nothing else waits for it: a disk that is stuck must not hold up a
// fence.
func (h *history) keep(ctx context.Context) {
	for {
		select {
		case <-h.changed:
			h.save()
		case <-ctx.Done():
			select {
			case <-h.changed:
				h.save()
			default:
			}
			return
		}
	}
}

// syncHistory fetches what other nodes know and this one does not.
func (n *Node) syncHistory(ctx context.Context) {
	mine := n.history.sum()
	for id, p := range n.gossip.Peers() {
		if !p.Fresh() || p.History == 0 || p.History == mine {
			continue
		}
		rctx, cancel := context.WithTimeout(ctx, historyTimeout)
		list, err := reqHistory.Ask(rctx, n.tr, id, n.history.known())
		cancel()
		if err != nil {
			n.log.Debug("the history was not fetched", "peer", id, "err", err)
			continue
		}
		n.history.merge(list)
	}
}

// event makes one of this node, now, in the present term.
func (n *Node) event(kind string, index uint64, message string) api.Event {
	return api.Event{Time: time.Now(), Kind: kind, Node: n.id.Name, Term: n.cons.Status().Term, Index: index,
		Message: message}
}
