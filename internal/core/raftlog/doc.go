// Package raftlog keeps a node's Raft log, term and vote on disk.
//
// # Files
//
//	raft/lock                     flock: one process at a time
//	raft/state                    term, vote, commit index, watermark, configuration (docs/format/state.md)
//	raft/0000000000000001.log     segments, named after their first index (docs/format/log.md)
//	raft/0000000000000001.idx     of a closed segment: offsets and terms; can be made again
//	raft/spare.new                becomes the next segment: zeros, with its room reserved, made while the last one fills
//	raft/….new                    a file that is not finished; like spare.new it is removed at the next start
//
// A segment is a MySQL binary log. mysqlbinlog prints it, --include-gtids and --stop-datetime work, and the text can be
// replayed:
//
//	magic
//	FORMAT_DESCRIPTION            of the newest Barrier before the segment
//	PREVIOUS_GTIDS                of everything before the segment
//	IGNORABLE segment header      cluster, node, first index, previous term and CRC, what is open
//	IGNORABLE entry header        index, term, CRC, the entry's meta          \  one Raft
//	events                        as the source wrote them                    /  entry
//	…
//	IGNORABLE filler, zeros       only in the segment that is written to, or after a cut that a power loss undid
//
// Every entry's CRC32C covers that of the previous entry, also across segments: no entry after a damaged or lost one
// verifies.
//
// # What may be cut (S2)
//
// After a crash the file may end in entries that were never fsynced, whole or torn. They may be cut. Nothing that was
// fsynced may be cut, because this node's vote for it may have been counted. The watermark tells them apart: each
// entry's header, each segment's header and the state file say up to where the log was fsynced when they were written.
// Open cuts at the first entry that does not verify only if nothing, before or after it, says that it had been fsynced;
// otherwise the error is ErrCorrupt and the node has to rejoin under a new raft id. A segment is fsynced, closed and
// followed by the next one under its final name in this order, so only the last one can be torn.
//
// A commit that closes a segment waits only a little longer: the records are fsynced (usually they are already), the
// file is cut after them, the next segment's header is written into the spare file and fsynced, the file gets its name,
// and that is fsynced. No fsync follows the cut: what a power loss brings back is the filler and zeros, and the next
// start cuts it. The spare file holds nothing that counts before it has a segment's name, and it has one only once its
// header is durable. It is made, and index files are written, concurrently with the writer. If it is not ready in time,
// or could not be made, a rotation makes the next segment by itself.
//
// A tail that a new leader replaces is cut in an order that leaves, whenever the machine stops, either the old tail or
// none: lower the watermark and sync it, remove later segments from the end, truncate, sync, and only then write.
//
// # Failure
//
// A write or an fsync that fails is final: after it the page cache and the disk may disagree, and no later fsync can be
// trusted. A full disk is the same. Both leave a log that opens: the state file has its blocks from the beginning, and
// a segment's blocks are reserved when it is made, so a disk runs full when a segment is begun rather than in the
// middle of one. Failing to make a spare file is not a failure of the log: it is removed, and made again while the next
// segment fills. It leaves room to others on its disk, and a segment that finds no room takes the spare's.
//
// # The caller's duties
//
//   - SetHardState of a term before Append of an entry of that term.
//   - An entry counts, as this node's vote or towards a majority, after the Sync that follows its Append.
//   - Readers are told the commit index and read nothing above it; what is above may be cut.
//   - Entries given to Append and entries returned are shared and must not be changed.
//   - After ErrInvariant the node fences itself; after ErrFailed the process exits.
package raftlog
