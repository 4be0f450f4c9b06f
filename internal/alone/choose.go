package alone

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"trireme/internal/api"
	"trireme/internal/router"
)

// heard is a node's view and when it came.
type heard struct {
	view api.RouteView
	at   time.Time
}

// choose picks the view that counts at a moment; false: there is none that may be used.
func choose(all []heard, now time.Time) (best heard, found bool) {
	for _, h := range all {
		if now.Sub(h.at) < api.RouteLimit && (!found || better(h.view, best.view)) {
			best, found = h, true
		}
	}
	return best, found
}

// better says whether a is to be believed rather than b. In one term there is one leader at most: who does not know it is behind, and nobody
// knows more than it does itself.
func better(a, b api.RouteView) bool {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Term, b.Term), cmp.Compare(rank(a), rank(b))) > 0
}

func rank(v api.RouteView) int {
	switch {
	case v.Hold != 0:
		return 3
	case v.RW == nil:
		return 0
	case v.RW.Name != v.Node:
		return 1
	}
	return 2
}

// routes is a view as the router takes it.
func routes(v api.RouteView) router.View {
	out := router.View{RW: (*router.Target)(v.RW), KeepRW: v.KeepRW}
	for _, t := range v.RO {
		out.RO = append(out.RO, router.Target(t))
	}
	return out
}

// logOf names the log that a node's indexes belong to, as tokens have it. A force-quorum gives entries up: indexes from before it may mean something else.
func logOf(v api.RouteView) string { return fmt.Sprintf("%s/%d", v.Cluster, v.Generation) }

// lagGrows is a lag that goes on growing until more is heard; a smaller one does when a sign of life is missing.
const lagGrows = 400 * time.Millisecond

// lags is how far the followers of a view are behind by now, those of whom it is not known endlessly.
func lags(h heard, now time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	age := now.Sub(h.at)
	for _, t := range h.view.RO {
		out[t.Name] = math.MaxInt64
		if seconds, known := h.view.Lags[t.Name]; known {
			lag := time.Duration(seconds * float64(time.Second))
			if lag >= lagGrows || age >= api.RouteLimit/2 {
				lag += age
			}
			out[t.Name] = lag
		}
	}
	return out
}

// holding is what the router does without a view.
func holding() router.View { return router.View{KeepRW: true} }
