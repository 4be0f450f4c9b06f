// Package backup keeps copies of a cluster's data outside of it, and makes a server of them again.
//
// A backup is a Store, a set of named objects, each written once, whole or not at all:
//
//	backup.json                      which cluster it is of
//	base/TIME/manifest.json          a copy of a data directory; it counts once this is there
//	base/TIME/data/PATH.zst          a file of it
//	log/FIRST-LAST.seg               committed entries of the raft log, FIRST to LAST in 16 hex digits each
//	log/reached.json                 up to when the log is known to be complete
//
// docs/format/backup.md draws them. A copy alone restores nothing: it needs the entries after it, which replication
// applies to it as a follower would, up to the one that was asked for.
//
// # What is archived
//
// Only what the node whose log is read has applied. That is committed, and it is on this node's disk as it was
// committed: the commit index alone may for a moment be ahead of the file, where entries of a deposed leader may still
// stand.
//
// # Who writes
//
// One process at a time takes copies and one archives the log; both may be the same, or not (Place.Lock). An object is
// never changed.
package backup
