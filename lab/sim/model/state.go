package model

import (
	"bytes"
	"slices"
)

// Rule is a set of rules of docs/GUARANTEES.md that are switched off.
type Rule uint16

// What a node does instead of keeping the rule.
const (
	S1      Rule = 1 << iota // acknowledge what has been proposed
	S2                       // count what has been received, before its fsync
	S3                       // feed what is in the log, committed or not
	S4                       // fence by letting those who wait go on
	S5                       // start mysqld on its old binary log
	S5Judge                  // find every mysqld good
	S6                       // open writes before what is below the barrier is applied
	S7                       // serve a second term without a restart
	S8                       // purge up to the commit index
	S11                      // judge against the leader's gtid_executed
	S12                      // continue after a gap in the stream
	NoPlug                   // S5 in part: do not mark as executed what ran without a trace
	ruleEnd
)

// Config bounds a search.
type Config struct {
	Nodes int
	// Script is what clients send, a letter each: R a transaction of rows, Q a statement that leaves no trace (DROP
	// TABLE IF EXISTS of a missing table), P an XA PREPARE, C the XA COMMIT of the P before it.
	Script    string
	Crashes   int  // of a mysqld or a host
	Elections int  // besides the one that made the first leader
	Disks     int  // that are lost for good, with log and data; an empty node takes the place of each
	Fsync     bool // an entry is received first and on disk later; a host that crashes loses what is not
	Flush     bool // InnoDB's log is flushed now and then, and the raft log purged
	Disorder  bool // a follower's applier commits rows out of order
	Broken    Rule
	// Heal looks, in every state, whether the cluster comes to rest once all faults are over: equal nodes, one of which
	// takes writes.
	Heal bool
}

func (c *Config) broken(r Rule) bool { return c.Broken&r != 0 }

const (
	maxNodes = 3
	maxTxs   = 5
	maxLog   = 20
)

// entry is an entry of a raft log: what it is, and its term.
type entry uint8

const (
	kindBarrier = 14 // S6's
	kindEmpty   = 15 // what a new raft leader begins with; below: number of a transaction
)

func newEntry(kind, term uint8) entry { return entry(kind | term<<4) }
func (e entry) kind() uint8           { return uint8(e & 15) }
func (e entry) term() uint8           { return uint8(e >> 4) }
func (e entry) isTx() bool            { return e.kind() < maxTxs }

// item is a commit in InnoDB: the number of a transaction, and how it is remembered.
type item uint8

const (
	itemTx     item = 7
	itemFrail  item = 0x10 // its GTID, or a prepared XA transaction, is gone after the next restart
	itemNoGTID item = 0x20 // it has taken effect; its GTID is gone
	itemPlug   item = 0x40 // marked as executed; it has taken no effect here
)

func (i item) tx() uint8 { return uint8(i & itemTx) }

// phase is the state of a node's mysqld.
type phase uint8

const (
	off       phase = iota
	unjudged        // up, read-only, not fed
	ready           // judged good, fed
	promoting       // its barrier is proposed
	open            // takes writes
	broken          // judged not to belong to the cluster
	lost            // the disk is gone
)

// node is one node. Logs are on disk and survive; what a mysqld has written to its binary log is gone with it.
type node struct {
	up    bool
	lead  uint8 // the term in which it takes itself for raft's leader, 0: it does not
	phase phase
	serve uint8 // the term in which mysqld was promoted

	log     [maxLog]entry
	n       uint8 // entries in log
	fsynced uint8 // of them on disk

	hist    [maxTxs]item // InnoDB's commits, in order
	commits uint8
	flushed uint8 // of them on disk

	bin      [maxTxs]uint8 // transactions in the binary log of a mysqld that leads
	written  uint8
	proposed uint8 // of them read by the daemon
	acked    uint8 // of them acknowledged and committed in InnoDB; the others wait

	durable uint8 // the durable index, as written down by the daemon (S8)
	keep    uint8 // from where its recovery may need the log, as last told; 0: not known
}

// state is the whole cluster.
type state struct {
	nodes  [maxNodes]node
	chosen [maxLog]entry // what Raft has committed
	n      uint8
	purged uint8 // entries up to here are in no log any more
	term   uint8 // newest

	sent  uint8 // transactions that a client has sent, a bit each
	acked uint8 // answered OK
	seen  uint8 // visible to readers of a server

	crashes, elections, disks uint8 // left
}

// model is a configuration under search.
type model struct {
	Config
	judged map[question]verdict // see verdict
	label  [maxNodes]string     // names of the nodes, for what is told
}

func (m *model) first() state {
	var s state
	s.term, s.crashes, s.elections, s.disks = 1, uint8(m.Crashes), uint8(m.Elections), uint8(m.Disks)
	s.chosen[0], s.n = newEntry(kindBarrier, 1), 1
	for i := range m.Nodes {
		n := &s.nodes[i]
		n.up, n.phase = true, ready
		n.log[0], n.n, n.fsynced = s.chosen[0], 1, 1
	}
	s.nodes[0].lead, s.nodes[0].serve, s.nodes[0].phase = 1, 1, open
	return s
}

func (n *node) entries() []entry    { return n.log[:n.n] }
func (n *node) commit(i item)       { n.hist[n.commits] = i; n.commits++ }
func (n *node) items() []item       { return n.hist[:n.commits] }
func (n *node) waiters() []uint8    { return n.bin[n.acked:n.written] }
func (n *node) good() bool          { return n.phase == ready || n.phase == promoting || n.phase == open }
func (n *node) append(e entry)      { n.log[n.n] = e; n.n++ }
func (s *state) committed() []entry { return s.chosen[:s.n] }

// executed is gtid_executed, effects what has taken effect, a bit for each transaction.
func (n *node) executed() (set uint8) {
	for _, i := range n.items() {
		if i&itemNoGTID == 0 {
			set |= 1 << i.tx()
		}
	}
	return set
}

func (n *node) effects() (set uint8) {
	for _, i := range n.items() {
		if i&itemPlug == 0 {
			set |= 1 << i.tx()
		}
	}
	return set
}

// agreed is how far a log is the same as another one.
func agreed(a, b []entry) int {
	k := 0
	for k < len(a) && k < len(b) && a[k] == b[k] {
		k++
	}
	return k
}

// known is how much of its log a node can know to be committed.
func (s *state) known(n *node) int { return agreed(n.entries(), s.committed()) }

func txs(es []entry) (set uint8) {
	for _, e := range es {
		if e.isTx() {
			set |= 1 << e.kind()
		}
	}
	return set
}

// leader is the index of raft's newest leader, -1: none.
func (m *model) leader(s *state) int {
	for i := range m.Nodes {
		if n := &s.nodes[i]; n.up && n.lead == s.term {
			return i
		}
	}
	return -1
}

// key is the state with its nodes in a fixed order: what the search remembers of it.
func (m *model) key(s *state, buf []byte) []byte {
	var parts [maxNodes][]byte
	for i := range m.Nodes {
		from := len(buf)
		buf = s.nodes[i].encode(buf)
		parts[i] = buf[from:len(buf):len(buf)]
	}
	of := parts[:m.Nodes]
	slices.SortFunc(of, bytes.Compare)
	from := len(buf)
	for _, p := range of {
		buf = append(buf, p...)
	}
	buf = append(buf, s.n, s.purged, s.term, s.sent, s.acked, s.seen, s.crashes<<4|s.elections, s.disks)
	for _, e := range s.committed() {
		buf = append(buf, byte(e))
	}
	return buf[from:]
}

func (n *node) encode(b []byte) []byte {
	up := byte(0)
	if n.up {
		up = 1
	}
	b = append(b, up|byte(n.phase)<<1, n.lead|n.serve<<4, n.n, n.fsynced|n.commits<<5, n.flushed|n.written<<3,
		n.proposed|n.acked<<3, n.durable, n.keep)
	for _, e := range n.entries() {
		b = append(b, byte(e))
	}
	for _, i := range n.items() {
		b = append(b, byte(i))
	}
	return append(b, n.bin[:n.written]...)
}

// decode reads a key.
func (m *model) decode(b []byte) (s state) {
	take := func(k uint8) []byte { v := b[:k]; b = b[k:]; return v }
	for i := range m.Nodes {
		n, h := &s.nodes[i], take(8)
		n.up, n.phase = h[0]&1 != 0, phase(h[0]>>1)
		n.lead, n.serve = h[1]&15, h[1]>>4
		n.n, n.fsynced, n.commits = h[2], h[3]&31, h[3]>>5
		n.flushed, n.written = h[4]&7, h[4]>>3
		n.proposed, n.acked = h[5]&7, h[5]>>3
		n.durable, n.keep = h[6], h[7]
		for k, e := range take(n.n) {
			n.log[k] = entry(e)
		}
		for k, e := range take(n.commits) {
			n.hist[k] = item(e)
		}
		copy(n.bin[:], take(n.written))
	}
	h := take(8)
	s.n, s.purged, s.term, s.sent, s.acked, s.seen = h[0], h[1], h[2], h[3], h[4], h[5]
	s.crashes, s.elections, s.disks = h[6]>>4, h[6]&15, h[7]
	for k, e := range take(s.n) {
		s.chosen[k] = entry(e)
	}
	return s
}
