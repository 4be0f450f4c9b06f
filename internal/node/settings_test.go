package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/config"
	"trireme/internal/base/loop"
	"trireme/internal/base/pki"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
	"trireme/internal/node/membership"
)

// TestFetchHoldsNobodyUp: while another node takes its time to answer with newer settings, a change of the settings
// goes its way.
func TestFetchHoldsNobodyUp(t *testing.T) {
	n := newTestNode(t)
	newer := n.Settings().Clone()
	newer.Version = 7
	body, err := newer.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	other := &slowPeer{settings: body, asked: make(chan struct{}), answer: make(chan struct{})}
	connectTestPeer(t, n, other)
	n.gossip.Peers()[2] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Settings: 7}}
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		n.members.FetchSettings(t.Context())
	}()
	<-other.asked
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		_, _ = n.members.Change(t.Context(), 0, func(*config.Cluster) error { return errors.New("no change") })
	}()
	select {
	case <-changed:
	case <-time.After(membership.Timeout / 2):
		t.Error("a change waits for an answer to another question")
	}
	close(other.answer)
	<-fetched
	<-changed
	if got := n.Settings().Version; got != 7 {
		t.Errorf("settings of version %d, the other node told of 7", got)
	}
}

// TestUnreadableSettings: a node that cannot read the settings in force stops, whether it has them from the log or from
// another node. Earlier ones do not matter.
func TestUnreadableSettings(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	n.Settings().Version = 6
	committed := func(body string) error {
		m := raftlog.Meta{Kind: raftlog.Settings, Node: 2}
		index := n.led.Index() + 1
		return n.acks.OnCommitted([]*raftpb.Entry{{Index: &index, Term: new(uint64(1)),
			Data: append(raftlog.AppendMeta(nil, &m), body...)}})
	}
	for _, body := range []string{`{"version":6,"members":"?"}`, `{"version":5,"needs":99}`} {
		if err := committed(body); err != nil {
			t.Errorf("older settings %s: %v", body, err)
		}
	}
	if err := committed(`{"version":7,"needs":99}`); !errors.Is(err, config.ErrNewer) {
		t.Errorf("settings of a newer version: %v", err)
	}
	for _, body := range []string{`{"version":7,"members":"?"}`, `?`} {
		if err := committed(body); !errors.Is(err, ErrFinal) {
			t.Errorf("settings %s: %v", body, err)
		}
	}
	if got := n.Settings().Version; got != 6 {
		t.Errorf("settings of version %d", got)
	}

	other := &slowPeer{settings: []byte(`{"version":7,"needs":99}`), asked: make(chan struct{}),
		answer: make(chan struct{})}
	close(other.answer)
	connectTestPeer(t, n, other)
	n.gossip.Peers()[2] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Settings: 7}}
	n.members.FetchSettings(t.Context())
	select {
	case err := <-n.fatal:
		if !errors.Is(err, config.ErrNewer) || !errors.Is(final(err), ErrFinal) {
			t.Error(err)
		}
	default:
		t.Error("the node goes on with settings that are not in force")
	}
}

// connectTestPeer gives a node its links, with node 2 at the other end.
func connectTestPeer(t *testing.T, n *Node, other *slowPeer) {
	t.Helper()
	ca, err := pki.NewCA("prod", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	link := func(id uint64, name string, h transport.Handler) *transport.Transport {
		b, err := ca.Issue(pki.NodeCert{Name: name, ID: id}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		l, err := loop.New(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := transport.New(transport.Config{ID: id, Loop: l, Cluster: "prod", Listen: "127.0.0.1:0", TLS: b.PeerTLS,
			Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		l.Start()
		t.Cleanup(func() {
			_ = tr.Close()
			l.Stop()
			l.Wait()
		})
		if id == n.id.ID {
			if err := errors.Join(ca.Save(n.cfg.TLSDir()), b.Save(n.cfg.TLSDir()), n.certs.Open()); err != nil {
				t.Fatal(err)
			}
		}
		return tr
	}
	mine := &slowPeer{}
	n.tr = link(1, "db1", mine)
	tr := link(2, "db2", other)
	n.tr.SetPeers(map[uint64]string{2: tr.Addr()})
	tr.SetPeers(map[uint64]string{1: n.tr.Addr()})
	eventually(t, func() bool { return n.tr.Connected(2) })
}

// slowPeer answers the question for the settings once it may.
type slowPeer struct {
	settings      []byte
	asked, answer chan struct{}
}

func (p *slowPeer) HandleRequest(context.Context, uint64, uint8, []byte) ([]byte, error) {
	close(p.asked)
	<-p.answer
	return p.settings, nil
}

func (*slowPeer) HandleRaft(*raftpb.Message)                   {}
func (*slowPeer) HandleStatus(uint64, []byte)                  {}
func (*slowPeer) PeerUp(uint64)                                {}
func (*slowPeer) PeerDown(uint64, error)                       {}
func (*slowPeer) RaftUnreachable(uint64)                       {}
func (*slowPeer) OtherGeneration(uint64, transport.Generation) {}
func (*slowPeer) SnapshotStatus(uint64, bool)                  {}
