package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/leave"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
	"trireme/lab/heap"
)

// jsonBytes is what decoding n bytes of JSON may take: an empty object of two bytes becomes a struct of some hundreds.
func jsonBytes(n int) int { return 64<<10 + 1024*n }

// scratch gives one directory for all runs of a fuzz test in this process: making one each would be most of the work.
func scratch(f *testing.F) string {
	f.Helper()
	dir := f.TempDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	return dir
}

// put makes a file of a node's directory hold b.
func put(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzLocalFile starts a node from any node.json: it is refused by its name, or every change of it keeps the rest.
func FuzzLocalFile(f *testing.F) {
	f.Add(golden(f, "node.json"))
	f.Add([]byte("null"))
	f.Add([]byte(`{"led":[1,1,2],"retired":null,"prelude":{"3":-1}}`))
	dir := scratch(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		put(t, dir, "node.json", b)
		l, err := openLocalFile(dir)
		if err != nil {
			if !strings.Contains(err.Error(), "node.json is damaged") {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		before := *l.get()
		if err := l.update(func(s *localState) { s.Lead(before.Incarnation+1, 5) }); err != nil {
			t.Fatal(err)
		}
		again, err := openLocalFile(dir)
		if err != nil || !sameJSON(t, again.get(), l.get()) {
			t.Fatalf("%+v became %+v: %v", l.get(), again.get(), err)
		}
		if s := again.get(); s.Durable != before.Durable || s.LogMade != before.LogMade ||
			s.Led[len(s.Led)-1] != before.Incarnation+1 {
			t.Fatalf("%+v became %+v", before, *s)
		}
	})
}

// FuzzGenerationFile starts a node from any generation.json.
func FuzzGenerationFile(f *testing.F) {
	f.Add(golden(f, "generation.json"))
	f.Add(golden(f, "generation-left.json"))
	f.Add([]byte(`{"takeover":{"Entries":[{"data":"////"}]}}`))
	dir := scratch(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		put(t, dir, "generation.json", b)
		s, err := recovery.Load(raftlog.OSFS{}, dir)
		if err != nil {
			if !strings.Contains(err.Error(), "generation.json") {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		if s.Takeover != nil && s.Takeover.End() < s.Takeover.Base && len(s.Takeover.Entries) < 1<<32 &&
			s.Takeover.Base < 1<<62 {
			t.Fatalf("%+v ends before it begins", s.Takeover)
		}
		if err := s.Save(raftlog.OSFS{}, dir); err != nil {
			if s.Event == nil && s.Left == nil && s.Generation == nil { // a year after 9999 cannot be written
				t.Fatal(err)
			}
			return
		}
		if again, err := recovery.Load(raftlog.OSFS{}, dir); err != nil || !sameJSON(t, again, s) {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
	})
}

// sameJSON compares by what is written.
func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// FuzzStatus takes any status from a peer.
func FuzzStatus(f *testing.F) {
	f.Add(golden(f, "status.json"))
	f.Add(
		[]byte(`{"open_term":18446744073709551615,"left":{"term":1,"ago_ns":-9223372036854775808},"election_timeout_ns":-1,"rules":{}}`))
	f.Add([]byte(`{"member":{"mysql":null,"raft":{"id":9}}}`))
	dir := scratch(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		n := listener(t, func(d *testDir) { d.cfg.Dir = dir })
		heap.Within(t, jsonBytes(len(b)), func() {
			n.HandleStatus(2, b)
			n.HandleStatus(2, b)
			p := n.gossip.Peers()[2]
			if p == nil {
				if json.Valid(b) && json.Unmarshal(b, new(gossip.Status)) == nil {
					t.Fatal("a status was not taken")
				}
				return
			}
			v, term := n.routing.RouterView(p.Status)
			if (v.RW == nil) != (term == 0) {
				t.Fatalf("%+v in term %d", v, term)
			}
			if n.gossip.LeastTimeout() <= 0 {
				t.Fatal("an election timeout below 0 is taken for one")
			}
			p.Incarnation()
		})
	})
}

// listener is a node that hears of others and does nothing else.
func listener(t testing.TB, changes ...func(*testDir)) *Node {
	t.Helper()
	n := newTestNode(t, append(changes, withMembers(testVoters(6)...))...)
	n.cons = new(consensus.Node)
	close(n.ready)
	return n
}

// FuzzPeerRequests reads any body of every request and answer between daemons: what was read, written again, is read as
// the same.
func FuzzPeerRequests(f *testing.F) {
	kinds := []func() any{
		func() any { return new(leadership.Applied) }, func() any { return new(config.Member) },
		func() any { return new(leadership.Order) }, func() any { return new(leave.Order) },
		func() any { return new(seeding.Donation) },
		func() any { return new(bool) }, func() any { return new(recovery.Survey) }, func() any { return new([]api.Event) },
		func() any { return new(config.Generation) },
	}
	for i, v := range []any{leadership.Applied{Index: 7, Patience: time.Second}, testVoters(1)[0],
		leadership.Order{Term: 3, To: 2}, leave.Order{Port: 1},
		seeding.Donation{Host: "h"}, true, recovery.Survey{ID: 1, Conf: &raftpb.ConfState{Voters: []uint64{1}}},
		[]api.Event{{Kind: "fence"}}, config.Generation{Number: 2}} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		v := kinds[int(kind)%len(kinds)]()
		var err error
		heap.Within(t, jsonBytes(len(b)), func() { err = json.Unmarshal(b, v) })
		if err != nil {
			return
		}
		out, err := json.Marshal(v)
		if err != nil {
			return // a year after 9999
		}
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(out, again); err != nil || !sameJSON(t, again, v) {
			t.Fatalf("%s became %+v: %v", out, again, err)
		}
	})
}
