package node

import (
	"testing"

	"trireme/internal/router"
)

// TestRouteNews: who waits hears of each change, and of nothing else.
func TestRouteNews(t *testing.T) {
	var news routeNews
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	view := func(epoch string) router.View { return router.View{RW: &router.Target{Name: "n1", Epoch: epoch}} }
	for _, step := range []struct {
		view router.View
		want bool
	}{{view("1/1"), true}, {view("1/1"), false}, {view("1/2"), true}, {router.View{KeepRW: true}, true}, {router.View{KeepRW: true}, false}} {
		one, other := news.next(), news.next()
		news.tell(step.view)
		if told(one) != step.want || told(other) != step.want {
			t.Errorf("%+v: told %v and %v, wanted %v", step.view, told(one), told(other), step.want)
		}
	}
}
