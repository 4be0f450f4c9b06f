package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/api"
)

// TestTellsQuiet: a leader that closes writes hears that nothing is under way here, even while other nodes have not
// heard of it, and no other node is told; open sessions stay. The leader does not wait for a router without a token of
// the cluster.
func TestTellsQuiet(t *testing.T) {
	ca, n1, n2, members := cluster(t)
	view := api.RouteView{Cluster: "c1", Generation: 1, Term: 1, RW: n1.target("1/1"), Nodes: members}
	n1.says(view, "1/1")
	n2.says(view, "")
	for _, token := range []string{"", "trt1.guessed"} {
		rw, _ := startWith(t, token, ca, n1)
		connect(t, rw) // by a view of n1
		if n1.routers.Any() {
			t.Errorf("with the token %q it is waited for", token)
		}
	}
	rw, _ := startWith(t, viewerToken, ca, n1, n2)
	session, _ := connect(t, rw)
	until(t, "both nodes wait for it", func() bool { return n1.routers.Any() && n2.routers.Any() })
	for hold := range uint64(2) {
		closing := api.RouteView{Cluster: "c1", Generation: 1, Term: 1, KeepRW: true, Hold: hold + 7, Nodes: members}
		if n1.routers.AllQuiet(closing.Hold) {
			t.Error("it is quiet before it holds")
		}
		n1.says(closing, "1/1")
		until(t, "the leader is told", func() bool { return n1.routers.AllQuiet(closing.Hold) })
		if n2.routers.AllQuiet(closing.Hold) {
			t.Error("somebody else is told")
		}
		n1.says(view, "1/1") // it did not take place
		if _, who := connect(t, rw); who != "n1" {
			t.Errorf("%s greeted", who)
		}
	}
	n1.says(api.RouteView{Cluster: "c1", Generation: 1, Term: 1, KeepRW: true, Hold: 9, Nodes: members}, "")
	until(t, "the leader is told", func() bool { return n1.routers.AllQuiet(9) })
	n1.says(api.RouteView{Cluster: "c1", Generation: 1, Term: 2, Nodes: members}, "")
	n2.says(api.RouteView{Cluster: "c1", Generation: 1, Term: 2, RW: n2.target("1/2"), Nodes: members}, "1/2")
	ends(t, session)
	if _, who := connect(t, rw); who != "n2" {
		t.Errorf("%s greeted", who)
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{"trt1.abc": "trt1.abc", "trt1.abc\n": "trt1.abc", "": "", "token = 1": "",
		"a\nb\n": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := tokenIn(file)
		if got != want || (want == "") != (err != nil) || err != nil &&
			(!strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "abc")) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if got, err := tokenIn(""); got != "" || err != nil {
		t.Error(got, err)
	}
	if _, err := tokenIn("/nowhere/token"); err == nil || !strings.Contains(err.Error(), "/nowhere/token") {
		t.Error(err)
	}
}
