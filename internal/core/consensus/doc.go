// Package consensus runs one member of the Raft group: etcd-io/raft's RawNode with asynchronous storage writes,
// pre-vote, quorum checks and proposals on the leader only.
//
//	         Propose  Step  ReadIndex  tick
//	             \     |     /        /
//	              +--- inbox --------+
//	                     |
//	  a hook of the loop: core (owns RawNode) ---- messages ----> Config.Send
//	       |                     |      \
//	 MsgStorageAppend   MsgStorageApply  State
//	       |                     |         \
//	a job of the loop     OnCommitted       OnSoftState
//	write all, ONE sync   on the loop or    state goroutine
//	       |              apply goroutine
//	responses, in order -> Config.Send / inbox
//
// core and its two workers (appender, applier) are synchronous: they have no goroutine and no clock of their own, so
// tests and the simulation drive them step by step. Node runs them on a loop (base/loop), to completion: what is on a
// commit's way meets no other goroutine. Entries that Config.Quick does not know, and whatever follows them until they
// are done, are delivered on the apply goroutine, which may wait.
//
// A disk that is slow lets the loop go on: what comes meanwhile is written together by the next job. So heartbeats,
// elections and the lease keep their promises while it hangs.
//
// # The caller's duties
//
//   - Storage keeps its promises about durability (see Storage). A failed write or sync is final: OnFatal is called,
//     the node stops, and the process must exit; the page cache can no longer be believed (S2).
//   - Send must not block and may drop; it is called from two goroutines.
//   - Messages from peers go to Step after the transport has checked who sent them.
//   - OnCommitted and OnSoftState must return once Stop was called.
//   - PeerGone is called only when the peer's process is known to be dead: it makes this node grant votes at once,
//     which breaks the promise that a live leader's lease rests on.
//
// # What is counted (S2)
//
// A follower's MsgAppResp, of any kind, is a response of a MsgStorageAppend. The append job delivers responses
// strictly in order and only after everything that came before them is written and synced. So a match index never
// counts what its owner has not fsynced; the leader's own match is counted in the same way.
//
// # Lease (S10)
//
// Every heartbeat interval a leader starts a quorum round (a read index request) and remembers when. Once a majority
// has answered, the lease lasts until that start + 0.8 × election timeout on CLOCK_BOOTTIME: each of those voters knows
// this leader, and so refuses votes to others, for one election timeout after it heard the round (it forgets a silent
// leader one tick later, see elections). Two things end that promise early, and both end the lease: the message that
// tells a voter to take over (a failed transfer gives no new lease for three election timeouts), and PeerGone for a
// voter (its answer no longer counts; a fresh round starts at once). A leader that steps down has dropped its lease
// before it asks for votes, by which the others forget it at once. The message that tells a voter to take over, and the
// votes that it asks for then, must not be acted on later: a node whose turn comes more than an election timeout after
// its last one (it was stopped) ignores both for another election timeout. The network must not keep them for longer
// than one either.
//
// # Elections tell what is committed
//
// Raft puts a membership in force when it is applied (https://github.com/etcd-io/etcd/issues/12359). A voter that
// was killed with a change in its log that it had not applied asks the members of the older membership for votes,
// and refuses its own vote to candidates with a shorter log. If those members are gone, after a removal or a
// Takeover, no member could ever be elected.
//
// So each message of an election, request or answer, granted or not, also names the newest entry that its sender
// knows to be committed, by index and term (attachCommitHint). A voter whose own log holds that entry takes it, and
// everything below, for committed (acceptCommitHint). TiKV's raft does likewise (tikv/raft-rs,
// maybe_commit_by_vote).
//
// This is safe because only true statements spread. A sender of (index, term) had that entry in its own log when it
// was committed, or has heard of it from a leader or from another vote; at a start it knows it from its disk. The
// receiver's log holds an entry of the same index and the same term: by Log Matching it is the same entry, and so is
// everything below. An index without its term would prove nothing, because the log may hold there what a deposed
// leader left; nor would an index that is cut to the log's length. Raft itself compares both once more.
//
// To know sooner that a change is committed is what a quicker message of the leader would have done. Raft's argument
// for its memberships requires that no member campaigns with one membership while it knows the next to be committed.
// That still holds: a current campaign ends, and raft begins no other before the change is applied.
//
// No lease changes. Members vote, wait and answer as before, and a member accepts a hint only while it is free to
// vote: it knows no leader, and has promised nothing in an earlier life. No term rises because of a hint. What a
// removed member reports is still true, and a former member that still campaigns learns of its removal.
//
// A leader is found as soon as a majority of the newest committed membership is there and one of those voters has it
// in force. The voter with the newest log, X, holds every committed entry. If X knows the membership, it wins.
// Otherwise the voter that knows it campaigns, by raft's own timer at the latest, and X is among those that it asks;
// or X asks it, and gets the answer. X then knows the membership, and wins. Since the newest log holds the entry
// that is reported, an exact match is enough. If no remaining member knows, no hint can help, as in raft: a leader
// that counts a change as done has it on disk, so this takes the loss of that leader too. Members of older versions
// send no hints and ignore them: among them nothing changes.
package consensus
