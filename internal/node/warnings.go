package node

import "sync"

// warnings lets periodic work tell of a problem once, and again only when it has changed or was gone in between. The zero value is ready.
type warnings struct {
	mu   sync.Mutex
	last map[string]string // by what was tried
}

// isNew notes how an attempt at what has ended, and says whether it failed in a way that was not told yet.
func (w *warnings) isNew(what string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[what] == text {
		return false
	}
	if w.last == nil {
		w.last = map[string]string{}
	}
	w.last[what] = text
	return err != nil
}
