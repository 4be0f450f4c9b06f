package standalone

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
)

// heard is a node's view and when it came.
type heard struct {
	view api.RouteView
	at   time.Time
}

// choose picks the view that counts at this moment; false if no view may be used. last is the view that counted before.
func choose(all []heard, last api.RouteView, now time.Time) (best heard, found bool) {
	members := owned(all, last, now)
	for _, h := range members {
		if usable(h.view, last, members, len(all)) && (!found || better(h.view, best.view)) {
			best, found = h, true
		}
	}
	return best, found
}

// owned are the views that are young enough, of nodes that the others take for members.
func owned(all []heard, last api.RouteView, now time.Time) []heard {
	all = slices.DeleteFunc(slices.Clone(all), func(h heard) bool { return now.Sub(h.at) >= api.RouteLimit })
	return api.Owned(all, func(h heard) api.RouteView { return h.view }, last)
}

// usable reports whether a view may count. One of a newer term than the last one needs a second member that knows of
// that term: a single node could have made it up. The only survivor of a force-quorum has none; that it is a member the
// last view has told (owned). At the start a node may only claim to be the only member if the router knows of no other.
func usable(v, last api.RouteView, members []heard, known int) bool {
	only := len(v.Nodes) < 2 && (known == 1 || last.Next != 0)
	if v.Next == 0 || only || !later(v, last) {
		return true
	}
	return slices.ContainsFunc(members, func(h heard) bool { return h.view.Node != v.Node && !later(v, h.view) })
}

// later reports whether a is of a newer generation or term than b.
func later(a, b api.RouteView) bool {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Term, b.Term)) > 0
}

// better reports whether a is more credible than b. A term has at most one leader: a node that does not know the leader
// lags, and no node knows more than the leader itself.
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

// logOf names the log that a node's indexes belong to, as tokens have it. A force-quorum gives entries up: indexes from
// before it may mean something else.
func logOf(v api.RouteView) string { return fmt.Sprintf("%s/%d", v.Cluster, v.Generation) }

// lagGrows is a lag that goes on growing until more is heard; a smaller one does when a sign of life is missing.
const lagGrows = 400 * time.Millisecond

// lags is how much the followers of a view lag by now; endlessly where that is not known.
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
