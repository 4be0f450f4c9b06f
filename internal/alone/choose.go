package alone

import (
	"cmp"
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
func choose(all []heard, now time.Time) (best api.RouteView, found bool) {
	for _, h := range all {
		if now.Sub(h.at) < api.RouteLimit && (!found || better(h.view, best)) {
			best, found = h.view, true
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

// holding is what the router does without a view.
func holding() router.View { return router.View{KeepRW: true} }
