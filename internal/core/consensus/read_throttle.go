package consensus

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// readThrottle bounds how long one turn of raft reads entries for peers that lag. Raft fills the whole
// window of what may be in flight to a peer at once, up to MaxInflightBytes, and reads it from disk if the peer lags
// far. Until that has ended the leader sends no heartbeat and sees no answer to one, so on a slow disk it would lose
// its lease by its own work (S10).
//
// Raft takes no entries, without an error, for "nothing to send now", and asks again with the next answer of the peer.
type readThrottle struct {
	raft.Storage
	clock func() int64
	until int64 // reading for peers in this turn ends here; 0: no turn was begun, and there is no end
	// something was read for a peer in this turn: each peer makes progress, however long its other work takes
	begun bool
	peers bool // raft handles an answer of a peer and sends what it reads
}

// Entries is raft.Storage's.
func (p *readThrottle) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if p.peers && p.until != 0 {
		if p.begun && p.clock() >= p.until {
			return nil, nil
		}
		p.begun = true
	}
	return p.Storage.Entries(lo, hi, maxSize)
}

// beginTurn gives a turn half a heartbeat's time to read for peers, and notices that the process was stopped.
func (c *core) beginTurn() {
	now := c.cfg.Clock()
	c.throttle.begun = false
	c.throttle.until = now + int64(c.cfg.TickInterval)*int64(c.cfg.HeartbeatTicks)/2
	c.elections.noteTurn(now, int64(c.cfg.electionTimeout()))
}

// stepAnswer gives raft a peer's answer, after which it may send more.
func (c *core) stepAnswer(m *raftpb.Message) {
	c.throttle.peers = true
	c.step(m)
	c.throttle.peers = false
	if id := m.GetFrom(); c.state.Role == Leader && m.GetTerm() == c.state.Term && !c.answered[id] {
		c.answered[id] = true
		c.publish()
		c.cfg.OnAnswer(id)
	}
}
