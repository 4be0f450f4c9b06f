package standalone

import (
	"log/slog"
	"testing"

	"trireme/internal/api"
)

// What sessions want to see is asked of the node whose view counts, and of another one if it does not answer. They can
// move nothing.
func TestCluster(t *testing.T) {
	ca, trust := authority(t)
	f := newFollower(t.Context(), trust, slog.New(slog.DiscardHandler))
	if _, err := f.View(t.Context()); api.KindOf(err) != api.KindNoLeader {
		t.Errorf("without a node: %v", err)
	}
	n1, n2 := newNode(t, ca, "n1", 1), newNode(t, ca, "n2", 2)
	follow(t, f, n1.server.Addr(), api.RouteView{Node: "n1", Term: 4})
	follow(t, f, n2.server.Addr(), api.RouteView{Node: "n2", Term: 5})
	if v, err := f.View(t.Context()); err != nil || v.Cluster != "as n2 sees it" {
		t.Errorf("%+v, %v", v, err)
	}
	if e, err := f.History(t.Context()); err != nil || len(e) != 1 || e[0].Node != "n2" {
		t.Errorf("%+v, %v", e, err)
	}
	follow(t, f, "127.0.0.1:1", api.RouteView{Node: "n3", Term: 6})
	if v, err := f.View(t.Context()); err != nil || v.Cluster == "" {
		t.Errorf("%+v, %v", v, err)
	}
}
