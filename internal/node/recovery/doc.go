// Package recovery brings a cluster back that has permanently lost the majority of its voters (force-quorum). An
// operator has the survivors make a new generation of the cluster; a node of an older one follows, or is given up.
//
//	survey of all members -> plan (no side effects) -> the operator confirms -> the others hold still -> the same plan?
//	  -> generation.json of the source: from now on it has happened -> the next start carries it out
//
// # Why it is safe
//
//   - One file is the decision. It contains the new generation and the entries that follow the log's end (settings
//     without the members given up, a joint membership change and its end), in a term higher than any that a survivor
//     knows. consensus.Takeover.CarryOut writes them before raft runs; it can be repeated if the process dies.
//   - The other survivors change nothing. They adopt the generation when they meet it, then follow by ordinary Raft.
//     Their logs are not more up to date, and with the old membership they have no majority, so they cannot elect a
//     leader before they have the new one. A survivor whose log has grown beyond the plan does not adopt it and is
//     left out.
//   - Nothing that a survivor committed is missing. A committed entry that any survivor has is in the most up-to-date
//     log among them, as in an election. If the lost nodes are no majority, every committed entry is on some survivor.
//   - The transport separates generations (hello and welcome), so no layer above can mix them. OtherGeneration kills
//     mysqld first and reads later.
//
// Rejected: changing every survivor's log (all would have to agree without Raft), a new cluster id (identities, GTIDs
// and certificates depend on it), and any judgement by time ("the others have been away long enough").
package recovery
