package node

import "trireme/internal/node/gossip"

// gossipHost is what gossip sees of this node.
type gossipHost struct{ host }

func (h gossipHost) Links() gossip.Links {
	if h.n.tr == nil {
		return nil
	}
	return h.n.tr
}

func (h gossipHost) Status() gossip.Status { return h.n.myStatus() }

func (h gossipHost) Heard(p *gossip.Peer) {
	n := h.n
	n.cons.SetLeastTimeout(n.gossip.LeastTimeout())
	n.acks.SetClocks(n.gossip.Clocks())
	if p.Rules != nil {
		n.acks.HeardRules(p.Member.Raft.Term, p.Rules)
	}
}

// HandleStatus takes a peer's status.
func (n *Node) HandleStatus(from uint64, payload []byte) {
	if n.isUp() {
		n.gossip.Hear(from, payload)
	}
}
