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
package seeding
