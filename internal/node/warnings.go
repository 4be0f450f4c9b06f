package node

import (
	"context"
	"errors"
	"sync"

	"trireme/internal/api"
)

// warnings lets periodic work tell of a problem once, and again only when it has changed or was gone in between. The
// zero value is ready.
type warnings struct {
	mu   sync.Mutex
	last map[string]error // by what was tried
}

// isNew notes how an attempt at what has ended, and says whether it failed in a way that was not told yet.
func (w *warnings) isNew(what string, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.last[what]
	if w.last == nil {
		w.last = map[string]error{}
	}
	w.last[what] = err
	return kindOfProblem(err) != kindOfProblem(told) && err != nil
}

// kindOfProblem is equal for problems that need not be told one after the other: what ran out of time names another
// entry each time.
func kindOfProblem(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded) || api.KindOf(err) == api.KindTimeout:
		return string(api.KindTimeout)
	}
	return err.Error()
}
