package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"trireme/internal/api"
)

// maxHistory is how many events are kept in memory and, about, in the file.
const maxHistory = 1000

// history is the node's flight recorder: elections, fences, switchovers, rejoins. It is in history.jsonl, a line an event, and
// is lost line by line at worst: nothing depends on it.
type history struct {
	mu     sync.Mutex
	path   string
	log    *slog.Logger
	events []api.Event
	lines  int // in the file
}

func openHistory(dir string, log *slog.Logger) *history {
	h := &history{path: filepath.Join(dir, "history.jsonl"), log: log}
	f, err := os.Open(h.path)
	if err != nil {
		return h
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e api.Event
		if json.Unmarshal(s.Bytes(), &e) == nil {
			h.events = append(h.events, e)
		}
		h.lines++
	}
	h.trim()
	return h
}

func (h *history) trim() {
	if over := len(h.events) - maxHistory; over > 0 {
		h.events = append([]api.Event(nil), h.events[over:]...)
	}
}

// add records an event.
func (h *history) add(e api.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	h.trim()
	if err := h.write(e); err != nil {
		h.log.Warn("the history could not be written", "err", err)
	}
}

// write appends a line, or writes the file anew when it has grown to twice what is kept.
func (h *history) write(e api.Event) error {
	flags, lines := os.O_WRONLY|os.O_CREATE|os.O_APPEND, []api.Event{e}
	if h.lines >= 2*maxHistory {
		flags, lines, h.lines = os.O_WRONLY|os.O_CREATE|os.O_TRUNC, h.events, 0
	}
	f, err := os.OpenFile(h.path, flags, 0o600)
	if err != nil {
		return err
	}
	for _, e := range lines {
		b, jerr := json.Marshal(e)
		if jerr != nil {
			return jerr
		}
		if _, err = f.Write(append(b, '\n')); err != nil {
			break
		}
		h.lines++
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.path, err)
	}
	return nil
}

// all returns the events, oldest first.
func (h *history) all() []api.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]api.Event(nil), h.events...)
}

// event makes one of this node, now, in the present term.
func (n *Node) event(kind string, index uint64, message string) api.Event {
	return api.Event{Time: time.Now(), Kind: kind, Node: n.id.Name, Term: n.cons.Status().Term, Index: index, Message: message}
}
