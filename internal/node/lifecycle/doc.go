// Package lifecycle is this member's mysqld from its start to its death.
//
//	start -> judge -> feed -> lead -> drain -> retire -> feed ... -> death
//
// Each start makes a Life: a new incarnation with a server_uuid of its own and without the binary log of the one before
// (S5). A life is judged against the committed log: holes are plugged, and what Raft does not have makes it unfit. Then
// it is fed. To lead it adopts prepared XA transactions, applies everything, and logs what Raft is to commit. To follow
// again it is drained (no commit waits, everything that it wrote is committed: S4) and retired.
//
// Three pictures say who may go where: Server how far recovery has come, Serving what is served in which term, and
// writes (of a life) whether writes are open. Lives guards the first two with its lock, and shows them as Status.
//
// What a member does next is decided by who calls: Host. A Life knows nothing of terms. A Leader is a life in one: its
// promotion is a list of steps (S6). A fence ends serving whatever is under way, and the guard is told of each step how
// long it may take (S10).
//
// The simulation of whole nodes (lab/sim) runs this package as it is: waits go through run.Exec, and mysqld, its
// process and the stream of its binary log are ports.
package lifecycle
