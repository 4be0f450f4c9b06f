// Package consensus runs one member of the Raft group: etcd-io/raft's RawNode with asynchronous storage writes,
// pre-vote, quorum checks and proposals on the leader only.
//
//	         Propose  Step  ReadIndex  tick
//	             \     |     /        /
//	              +--- inbox --------+
//	                     |
//	  raft goroutine: core (owns RawNode) ---- messages ----> Config.Send
//	       |                     |      \
//	 MsgStorageAppend   MsgStorageApply  State
//	       |                     |         \
//	append goroutine      apply goroutine   state goroutine
//	write all, ONE sync   OnCommitted       OnSoftState
//	       |
//	responses, in order -> Config.Send / inbox
//
// core and its two workers (appender, applier) are synchronous: they have no goroutine and no clock of their own, so
// tests and the simulation drive them step by step. Node adds the goroutines.
//
// # The caller's duties
//
//   - Storage keeps its promises about durability (see Storage). A failed write or sync is final: OnFatal is called, the
//     node stops, and the process must exit; the page cache can no longer be believed (S2).
//   - Send must not block and may drop; it is called from two goroutines.
//   - Messages from peers go to Step after the transport has checked who sent them.
//   - OnCommitted and OnSoftState must return once Stop was called.
//   - PeerGone is called only when the peer's process is known to be dead: it makes this node grant votes at once, which
//     breaks the promise that a live leader's lease rests on.
//
// # What is counted (S2)
//
// A follower's MsgAppResp, of any kind, is a response of a MsgStorageAppend. The append goroutine delivers responses
// strictly in order and only after everything that came before them is written and synced. So a match index never
// counts what its owner has not fsynced; the leader's own match is counted in the same way.
//
// # Lease (S10)
//
// Every heartbeat interval a leader starts a quorum round (a read index request) and remembers when. Once a majority has answered, the
// lease lasts until that start + 0.8 × election timeout on CLOCK_BOOTTIME: each of those voters knows this leader, and so refuses votes
// to others, for one election timeout after it heard the round (it forgets a silent leader one tick later, see elections). Two things end
// that promise early, and both end the lease: the message that tells a voter to take over (a failed transfer gives no new lease for three
// election timeouts), and PeerGone for a voter (its answer no longer counts; a fresh round starts at once). A leader that steps down has
// dropped its lease before it asks for votes, by which the others forget it at once. The message that tells a voter to take over, and the
// votes that it asks for then, must not be acted on later: a node whose turn comes more than an election timeout after its last one (it
// was stopped) ignores both for another election timeout. The network must not keep them for longer than one either.
package consensus
