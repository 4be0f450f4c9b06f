package node

import (
	"context"
	"encoding/json"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/relay"
	"trireme/internal/transport"
)

var _ transport.RelayHandler = (*Node)(nil)

// reqNotPassed is a request between daemons: body notPassed; answered when the leader has taken note.
const reqNotPassed uint8 = 32

// notPassed is what an upstream tells the leader whose messages it does not pass on.
type notPassed struct {
	Learner uint64 `json:"learner"`
	Why     string `json:"why"`
}

func (n *Node) newRelay() *relay.Relay {
	return relay.New(relay.Config{Links: n.tr, Log: n.rlog, Unreachable: n.RaftUnreachable, Logger: n.log,
		Failed: func(ctx context.Context, leader, learner uint64, why string) {
			body, err := json.Marshal(notPassed{learner, why})
			if err == nil {
				_, err = n.tr.Request(ctx, leader, reqNotPassed, body)
			}
			if err != nil { // it will notice when the learner does not get on
				n.log.Debug("the leader was not told that its messages are not passed on", "learner", learner, "why", why, "err", err)
			}
		}})
}

// HandleRelay takes a message that this node is to pass on to a learner.
func (n *Node) HandleRelay(from uint64, r transport.Relay) {
	if n.isUp() {
		n.relay.HandleRelay(from, r)
	}
}

// HandleForwarded takes a message of the leader that came through an upstream.
func (n *Node) HandleForwarded(by uint64, m *raftpb.Message) {
	if n.up() {
		n.via.Store(by)
		n.stepRaft(m)
	}
}

// takeNotPassed is the leader's part of reqNotPassed.
func (n *Node) takeNotPassed(from uint64, body []byte) error {
	var r notPassed
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	n.relay.Refused(from, r.Learner, r.Why)
	return nil
}

// steerRelay tells the relay which learners can get their entries through their upstreams now.
func (n *Node) steerRelay() {
	st := n.cons.Status()
	n.mu.Lock()
	paths := n.pathsLocked(&st)
	n.mu.Unlock()
	n.relay.SetPaths(paths)
}

// pathsLocked: an upstream has to be a member that is heard of. What it does not have in time, or cannot pass on, it says itself.
func (n *Node) pathsLocked(st *consensus.Status) map[uint64]uint64 {
	if st.Role != consensus.Leader {
		return nil
	}
	var paths map[uint64]uint64
	for _, m := range n.cluster.Members {
		p := n.peers[m.Upstream]
		if m.Upstream == 0 || m.Upstream == n.id.ID || p == nil || !p.fresh() || !contains(st.Learners, m.ID) {
			continue
		}
		if paths == nil {
			paths = map[uint64]uint64{}
		}
		paths[m.ID] = m.Upstream
	}
	return paths
}

// upstreamViewLocked shows this learner's upstream; nil: it has none.
func (n *Node) upstreamViewLocked() *api.UpstreamView {
	m, _ := n.cluster.MemberByID(n.id.ID)
	name := n.cluster.UpstreamOf(m)
	if name == "" {
		return nil
	}
	return &api.UpstreamView{Name: name, Followed: n.via.Load() == m.Upstream || n.raft.Leader == m.Upstream}
}

// upstreamForJoin is the raft id of the upstream that a node is to join with; 0 for an empty name.
func upstreamForJoin(c *config.Cluster, name, role string) (uint64, error) {
	if name == "" {
		return 0, nil
	}
	up, err := memberOf(c, name)
	if err != nil {
		return 0, err
	}
	if err := c.CheckFollower(up, role); err != nil {
		return 0, api.Errorf(api.KindInvalid, "upstream: %v", err)
	}
	return up.ID, nil
}
