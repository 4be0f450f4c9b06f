package routing

import (
	"reflect"
	"sync"

	"trireme/internal/access/router"
)

// news tells those who follow this node's view from elsewhere that it has changed.
type news struct {
	mu      sync.Mutex
	last    router.View
	changed chan struct{} // closed, and replaced, at each change; nil: it was not asked for yet
}

func (r *news) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// tell takes the present view, as often as the caller likes.
func (r *news) tell(v router.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reflect.DeepEqual(r.last, v) {
		return
	}
	r.last = v
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
