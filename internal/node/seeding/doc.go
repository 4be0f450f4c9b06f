// Package seeding is how a member comes to its data, and how it gives it up.
//
//   - Seed replaces the data by a copy of another member's, made by the CLONE plugin. The donor is asked before the
//     copy and once more when it is complete. Copies are between the servers; the daemons say what they hold.
//   - Heal: a follower whose applier cannot go on, or whose data is found to differ, gives its data up, with the
//     leader's permission, and is seeded.
//   - Reinit: an operator has a member give its data up.
//   - Decisions: an operator has an entry that no node could apply declared void, or applied tolerantly. Data that has
//     it already is given up, too.
//
// That a member has to be seeded is a state of its mysqld (lifecycle.Status). ha.Decide says when a copy begins.
//
// # What changes together
//
// Why a member's applier does not run, and what it has stopped at (failure), are shown with the status of mysqld. They
// are replaced whole, and only while the status cannot change: in Server.Change, or by Started and Applied, whose
// callers hold the lock of Server.Change. Reading them needs no lock.
//
// # Locks
//
// Server.Change holds the member's lock (Node.mu) and within it that of lifecycle.Lives. What is given to it must not
// call any port, and does not wait. Server.Now takes the member's lock for a moment, as does Cluster.Census: both are
// asked with no lock of this package held.
//
// mu and grants.mu are leaves. They may be taken with the member's lock held (View does so), and no port is asked with
// mu held. With grants.mu held only Cluster.Settings and Cluster.Peers are, which never wait.
//
// No lock is held while mysqld, the disk or another member is waited for.
//
// # A copy
//
// A copy is made with CLONE INSTANCE by a server of its own, on an empty directory, which then becomes the data
// directory. The end of the statement proves that the copy is complete, and no half-replaced data directory ever
// exists: any interruption leaves none, and the cure is always the same. The old data goes first, because no host needs
// room for two copies. The donor is watched, because CLONE waits five minutes for a dead one (measured).
//
// The donor's own local GTIDs come with its data. It names them, and they are remembered as inherited: by S5 they would
// otherwise be errant. The copy holds at least what the donor had applied before it began, and it is on disk. That is
// its durable index from then on (S8); it includes what the donor had plugged. A lost data directory takes its durable
// index with it: otherwise everything below would be plugged and never fed again.
//
// # Healing
//
// After an error of the data (mysqld.ApplyError tells it from one of resources, which is waited out) a node tries once
// more, then asks the leader (ReqHeal). The leader keeps its permission in memory; a new leader sees from the statuses
// which node is being seeded. The donor must have applied the entry. A node remembers in node.json how often it was
// seeded for this, and waits longer each time.
//
// Here the old data stays until the copy is complete (KeepOld). It is good up to the entry, so it may be the only copy
// if a data node fails. Without room for both it goes first, provided every majority of voters holds the data without
// it.
//
// Two kinds of data are known to be wrong: a session has ended a prepared XA transaction on the follower, or its
// applier has left a transaction out (lifecycle/leftout.go). The node is fenced first (fenceDiverged). It remembers
// that in node.json until a copy is complete, because after a restart of mysqld the data would look right. The data is
// given up no matter who else holds it. The leader is preferred as donor: another follower may have lost the same
// transaction without having noticed.
//
// # Decisions
//
// A node adopts a decision only when its mysqld is judged, because an old relay log may hold the transaction as it was.
// So its mysqld is restarted. The judgement writes the decision to node.json before the feed begins, and a copy
// inherits its donor's note. Data that holds the GTID without that note differs from the others' and is seeded. Until
// then a node neither opens writes nor serves as a donor.
package seeding
