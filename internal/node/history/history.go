// Package history is the cluster's flight recorder: elections, fences, switchovers, rejoins of all members. Each member
// adds what it does, and members fetch from each other what they lack: so every member tells the same, also what a
// member did that is gone, and nothing of it needs a quorum. Nothing depends on it.
//
// The package owns the list of events and its file (history.jsonl, a line an event, written whole a moment after each
// change), and makes the events of changes of leaders, and of members that the leader loses sight of.
package history

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
	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/core/consensus"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
)

// Bounds of the history.
const (
	maxChanges     = 500  // changes of leaders kept, by every member the same: the newest
	maxOthers      = 500  // other events kept; a mysqld that starts over and over must not push the changes of leaders out
	maxCopies      = 20   // events kept of copies that a backup has made, likewise
	maxWriters     = 100  // events kept of what clients write, who may do it all night (large-transaction, refused)
	maxEventText   = 2000 // bytes of a text of an event
	maxEventBytes  = 4*maxEventText + 4096
	historyBatch   = 200 // events in one answer
	historyTimeout = 2 * time.Second
)

// Kinds of events of what clients write.
const (
	EventLarge   = "large-transaction"
	EventRefused = "refused"
)

// ReqEvents is a request between daemons: the ids of events, 8 bytes each, answered with events that are not among
// them.
var ReqEvents = transport.Kind[[]byte, []api.Event]{Number: 5}

// Host is the rest of the member.
type Host interface {
	transport.Asker
	Settings() *config.Cluster
	MemberName(id uint64) string
	// Term is the present one.
	Term() uint64
	// Leads says whether this member leads, and since when it did last, by CLOCK_BOOTTIME.
	Leads() (since time.Duration, leads bool)
	// Routed is the term of the leader that this member's router leads to; 0: none.
	Routed() uint64
	// Unreached says who cannot reach a member at which address, as far as this member has heard, and for how long this
	// member itself has not reached it.
	Unreached(name string) (why string, own time.Duration)
}

// History is of one member. Its methods may be called from any goroutine.
type History struct {
	path    string
	id      config.Identity
	gossip  *gossip.Gossip
	host    Host
	log     *slog.Logger
	started time.Duration // when this daemon was; never changed
	changed chan struct{} // the file has to be written

	mu     sync.Mutex
	events []api.Event // in order
	ids    map[uint64]bool
	digest uint64 // of ids, whatever their order
}

// New reads what the life before has written in the member's directory.
func New(dir string, id config.Identity, g *gossip.Gossip, host Host, log *slog.Logger) *History {
	h := &History{path: filepath.Join(dir, "history.jsonl"), id: id, gossip: g, host: host, log: log, started: now(),
		changed: make(chan struct{}, 1), ids: map[uint64]bool{}}
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

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }

// Started is when this daemon was, by CLOCK_BOOTTIME.
func (h *History) Started() time.Duration { return h.started }

// Event makes one of this member, now, in the present term.
func (h *History) Event(kind string, index uint64, message string) api.Event {
	return api.Event{Time: time.Now(), Kind: kind, Node: h.id.Name, Term: h.host.Term(), Index: index, Message: message}
}

// Record adds an event of this member, now; by is who asked for it, empty: the member itself.
func (h *History) Record(kind, by, message string) {
	e := h.Event(kind, 0, message)
	e.By = by
	h.Add(e)
}

// Add records an event.
func (h *History) Add(e api.Event) {
	e.Time = e.Time.Round(0).UTC()
	e.Message, e.Cause, e.GTIDs, e.By = Shorten(e.Message), Shorten(e.Cause), Shorten(e.GTIDs), Shorten(e.By)
	h.merge([]api.Event{e})
}

// merge takes events of this or another node; those that are known, or too old to be kept, are left out.
func (h *History) merge(list []api.Event) {
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
	case e.Kind == EventLarge || e.Kind == EventRefused:
		return sortWriter
	case e.Kind == api.EventBackup:
		return sortCopy
	}
	return sortOther
}

// Shorten bounds a text, and replaces what is not UTF-8 (mysqld quotes data in its errors): JSON would do that on the
// way, and the event would have another id on other nodes.
func Shorten(s string) string {
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

// All returns the events, in order.
func (h *History) All() []api.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Sum tells whether two members know the same.
func (h *History) Sum() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.digest
}

// known are the ids, 8 bytes each.
func (h *History) known() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := make([]byte, 0, 8*len(h.ids))
	for id := range h.ids {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return b
}

// EventsForPeer answers another member's Sync: events that it does not know, the newest that fit into an answer.
func (h *History) EventsForPeer(_ context.Context, _ uint64, known []byte) (out []api.Event, err error) {
	has := map[uint64]bool{}
	for ; len(known) >= 8; known = known[8:] {
		has[binary.LittleEndian.Uint64(known)] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range slices.Backward(h.events) {
		if !has[eventID(e)] && len(out) < historyBatch {
			out = append(out, e)
		}
	}
	return out, nil
}

// save writes the file.
func (h *History) save() {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range h.All() {
		if err := enc.Encode(e); err != nil {
			h.log.Warn("an event of the history cannot be written", "err", err)
		}
	}
	if err := durable.WriteFile(h.path, b.Bytes(), 0o600); err != nil {
		h.log.Warn("the history could not be written", "err", err)
	}
}

// Keep writes the file whenever something changed. Nothing else waits for it: a disk that is stuck must not hold up a
// fence.
func (h *History) Keep(ctx context.Context) {
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

// Sync fetches what other members know and this one does not.
func (h *History) Sync(ctx context.Context) {
	mine := h.Sum()
	for id, p := range h.gossip.Peers() {
		if !p.Fresh() || p.History == 0 || p.History == mine {
			continue
		}
		rctx, cancel := context.WithTimeout(ctx, historyTimeout)
		list, err := ReqEvents.Ask(rctx, h.host, id, h.known())
		cancel()
		if err != nil {
			h.log.Debug("the history was not fetched", "peer", id, "err", err)
			continue
		}
		h.merge(list)
	}
}
