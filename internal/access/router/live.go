package router

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
)

// liveAgain is the least time between two questions of a router about nodes that did not count as live: however many
// sessions wait for one, or would read one, the leader is asked that often only.
const liveAgain = 100 * time.Millisecond

// liveTold is who counts as live by the answer that was asked for last.
type liveTold struct {
	mu    sync.Mutex
	asked time.Duration
	live  api.ReadIndexView
}

// holds reports whether a node may be read at some time, and the index that its server must have applied. If not, again
// says whether it is time to ask again.
func (t *liveTold) holds(now time.Duration, node string) (index uint64, live, again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live.Index, now < t.asked+api.LiveFor && slices.Contains(t.live.Live, node), now >= t.asked+liveAgain
}

// take keeps what was asked for last; answers may overtake each other.
func (t *liveTold) take(asked time.Duration, l api.ReadIndexView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if asked > t.asked {
		t.asked, t.live = asked, l
	}
}

// live is an index that the server in use must have applied to be read at a level; an error: it must not be read. At
// After its node must count as live, according to an answer that was asked for after the connection began: until then
// its server may have ended and come back with less. The same holds for the leader: its host may have stood still while
// another one was elected.
func (s *session) live(ctx context.Context, level Level) (uint64, error) {
	if level != After {
		return 0, nil
	}
	r, node := s.r, s.link.target.Name
	if r.cfg.Reads == nil {
		return 0, errNoReads
	}
	if s.link.live {
		switch index, live, again := r.told.holds(boottime(), node); {
		case live:
			return index, nil
		case !again:
			return 0, notLive(node)
		}
	}
	asked := boottime()
	l, err := r.cfg.Reads.Live(ctx)
	if err != nil {
		return 0, err
	}
	r.told.take(asked, l)
	s.link.live = true
	index, live, _ := r.told.holds(boottime(), node)
	if !live {
		return 0, notLive(node)
	}
	return index, nil
}

func notLive(node string) error {
	return fmt.Errorf("%s does not count as live: it does not answer the leader, does not serve, or has not caught up",
		node)
}

func boottime() time.Duration { return time.Duration(consensus.Boottime()) }
