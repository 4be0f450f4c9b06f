// Package membership is who belongs to a cluster, and by which settings it goes: the committed settings
// (config.Cluster) and their changes, joining, roles, giving and taking of votes, and what must not be given up.
//
// An operator's wish is a change of the settings. The leader then brings Raft's membership in line with them, step by
// step (Reconcile), and takes out of the settings what is done.
//
// # Votes
//
// All that is due is one change (steps.go, without side effects). If it moves more than one vote, Raft goes through a
// joint configuration, which needs majorities of the old and the new voters. Votes that one command gives and takes
// (`trireme promote db4 --remove db3`) carry the same move in their records and change together, once all learners
// among them have caught up. So no configuration on the way tolerates fewer losses than the first.
//
// The leader keeps its vote: while its record says that it goes, its weight counts as 0, so it hands leadership over
// and the next leader takes the vote. Remove and Demote of the leader do the switchover first, so a refused one changes
// nothing. Before votes are taken, the rest is checked again: the quorum is alive, and every majority has the data
// (S8).
package membership
