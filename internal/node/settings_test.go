package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/config"
	"trireme/internal/pki"
	"trireme/internal/transport"
)

// TestFetchHoldsNobodyUp: while another node takes its time to answer with newer settings, a change of the settings goes its way.
func TestFetchHoldsNobodyUp(t *testing.T) {
	n := newTestNode(t)
	other := &slowPeer{asked: make(chan struct{}), answer: make(chan struct{})}
	connectTestPeer(t, n, other)
	n.peers[2] = &peer{up: true, at: now(), status: status{Settings: 7}}
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		n.fetchSettings(t.Context())
	}()
	<-other.asked
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		_, _ = n.changeCluster(t.Context(), func(*config.Cluster) error { return errors.New("no change") })
	}()
	select {
	case <-changed:
	case <-time.After(settingsTimeout / 2):
		t.Error("a change waits for an answer to another question")
	}
	close(other.answer)
	<-fetched
	<-changed
	if got := n.Settings().Version; got != 7 {
		t.Errorf("settings of version %d, the other node told of 7", got)
	}
}

// connectTestPeer gives a node its links, with node 2 behind them.
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
		tr, err := transport.New(transport.Config{ID: id, Cluster: "prod", Listen: "127.0.0.1:0", TLS: b.PeerTLS, Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.Close() })
		if id == n.id.ID {
			n.bundle = b
		}
		return tr
	}
	newer := *n.cluster
	newer.Version = 7
	other.settings = &newer
	mine := &slowPeer{}
	n.tr = link(1, "db1", mine)
	tr := link(2, "db2", other)
	n.tr.SetPeers(map[uint64]string{2: tr.Addr()})
	tr.SetPeers(map[uint64]string{1: n.tr.Addr()})
	eventually(t, func() bool { return n.tr.Connected(2) })
}

// slowPeer answers the question for the settings once it may.
type slowPeer struct {
	settings      *config.Cluster
	asked, answer chan struct{}
}

func (p *slowPeer) HandleRequest(context.Context, uint64, uint8, []byte) ([]byte, error) {
	close(p.asked)
	<-p.answer
	return p.settings.Marshal()
}

func (*slowPeer) HandleRaft(*raftpb.Message)                   {}
func (*slowPeer) HandleStatus(uint64, []byte)                  {}
func (*slowPeer) PeerUp(uint64)                                {}
func (*slowPeer) PeerDown(uint64, error)                       {}
func (*slowPeer) RaftUnreachable(uint64)                       {}
func (*slowPeer) OtherGeneration(uint64, transport.Generation) {}
func (*slowPeer) SnapshotStatus(uint64, bool)                  {}
