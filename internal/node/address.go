package node

import (
	"context"
	"encoding/json"
	"fmt"

	"trireme/internal/config"
	"trireme/internal/consensus"
)

// Where a node is reached its own file says; the others know it by its record in the cluster settings. When the two differ the node tells
// the leader, over the link that its certificate vouches for, and the leader changes the record. A link finds a peer that has moved by
// itself: the newest word of the peer's own counts.

// sayAddress brings this node's record in line with its file.
func (n *Node) sayAddress(ctx context.Context) {
	n.mu.Lock()
	rec, ok := n.cluster.MemberByID(n.id.ID)
	n.mu.Unlock()
	if mine := withAddresses(rec, n.cfg.Member(rec.ID, rec.Role)); !ok || mine == rec {
		return
	}
	st := n.cons.Status()
	body, err := json.Marshal(n.cfg.Member(rec.ID, rec.Role))
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	switch {
	case err != nil || st.Leader == 0:
	case st.Role == consensus.Leader:
		err = n.takeAddress(ctx, n.id.ID, body)
	default:
		_, err = n.tr.Request(ctx, st.Leader, reqAddress, body)
	}
	if n.warnings.isNew("address", err) {
		n.log.Warn("the cluster does not know this node's new addresses yet", "err", err)
	}
}

// takeAddress changes a member's record as it says itself (leader only).
func (n *Node) takeAddress(ctx context.Context, from uint64, body []byte) error {
	var said config.Member
	if err := json.Unmarshal(body, &said); err != nil {
		return err
	}
	var before, after config.Member
	_, err := n.changeCluster(ctx, func(c *config.Cluster) error {
		return editMember(c, from, func(m *config.Member) {
			before = *m
			*m = withAddresses(*m, said)
			after = *m
		})
	})
	if err != nil {
		return err
	}
	n.history.add(n.event("address", 0, fmt.Sprintf("%s has moved: %s; before: %s", after.Name, addressText(after), addressText(before))))
	return nil
}

// addressText is where a member is reached, for the history.
func addressText(m config.Member) string {
	text := fmt.Sprintf("peers %s, API %s, router %d %d", m.Peer, m.API, m.RWPort, m.ROPort)
	if m.Role != config.RoleLogger {
		text += fmt.Sprintf(", mysqld %s:%d", m.MySQLHost, m.MySQLPort)
	}
	return text
}

// withAddresses is a record with the addresses of another one.
func withAddresses(m, from config.Member) config.Member {
	m.Peer, m.API, m.RWPort, m.ROPort = from.Peer, from.API, from.RWPort, from.ROPort
	if m.Role != config.RoleLogger {
		m.MySQLHost, m.MySQLPort = from.MySQLHost, from.MySQLPort
	}
	return m
}

// setKnown tells the transport where an operator says that others are.
func (n *Node) setKnown(c *config.Cluster) {
	known, err := n.cfg.Peer.KnownPeers()
	if err != nil {
		return // Load has checked it
	}
	addrs := map[uint64]string{}
	for name, addr := range known {
		if m, ok := c.Member(name); ok {
			addrs[m.ID] = addr
		} else {
			n.log.Warn("peer.known names a node that is not in this cluster", "name", name)
		}
	}
	n.tr.SetKnown(addrs)
}
