package membership

import (
	"context"
	"fmt"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
)

// Where a node is reached its own file says; the others know it by its record in the cluster settings. When the two
// differ the node tells the leader, over the link that its certificate vouches for, and the leader changes the
// record. A link finds a peer that has moved by itself: the newest word of the peer's own counts.

// SayAddress brings this node's record in line with its file.
func (ms *Members) SayAddress(ctx context.Context) {
	rec, ok := ms.Current().MemberByID(ms.id.ID)
	if mine := withAddresses(rec, ms.cfg.Member(rec.ID, rec.Role)); !ok || mine == rec {
		return
	}
	st := ms.host.Raft().Status()
	mine, err := ms.cfg.Member(rec.ID, rec.Role), error(nil)
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch {
	case st.Leader == 0:
	case st.Role == consensus.Leader:
		err = ms.TakeAddress(ctx, ms.id.ID, mine)
	default:
		_, err = ReqAddress.Ask(ctx, ms.host.Links(), st.Leader, mine)
	}
	if ms.host.IsNew("address", err) {
		ms.log.Warn("the cluster does not know this node's new addresses yet", "err", err)
	}
}

// TakeAddress changes a member's record as it says itself (leader only).
func (ms *Members) TakeAddress(ctx context.Context, from uint64, said config.Member) error {
	var before, after config.Member
	_, err := ms.Change(ctx, 0, func(c *config.Cluster) error {
		return editMember(c, from, func(m *config.Member) {
			before = *m
			*m = withAddresses(*m, said)
			after = *m
		})
	})
	if err != nil {
		return err
	}
	ms.host.Record("address", "", fmt.Sprintf("%s has moved: %s; before: %s", after.Name, addressText(after),
		addressText(before)))
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
