// Package recorder keeps what a node saw of its load on its disk, for `trireme report`: each second it looks at what
// the active sessions wait for, each ten seconds it takes the difference of all counters, each minute that of the
// statements' and the files' counters.
//
//	node -> Recorder (differences) -> Store (files, bounded) -> Store.Period (one node's sums) -> api.Report (all nodes) -> page of the dashboard
//
// Nothing else depends on it: it has a session of its own at mysqld and never fsyncs. What it cannot read or write is
// missing in the report only.
//
// # Format
//
// The directory samples holds files NNNNNNNNNN.rec with rising numbers. A daemon begins a new file at its start, and
// whenever the file is full or a day old. It deletes the oldest files when all files together exceed their limit, and
// files older than 7 days. Integers are little-endian.
//
//	offset  size
//	     0     8  "TRIREC\x00\x01"; the last byte is the version
//	     8        frames
//
// A frame is what was recorded in some ten seconds:
//
//	 0     4  length n of the body, at most 4 MiB
//	 4     4  CRC32C of all that follows
//	 8     8  time of its beginning, ms since 1970
//	16     4  flags: 1 it holds texts of statements, which later frames need
//	20     n  DEFLATE of the JSON of a Frame
//
// Frames are written with one write each and never changed. A frame that is torn, or whose checksum is wrong, ends its
// file: a daemon that was killed may leave one, and nothing is written after it. Times are the node's time of day, so
// they may go back from one frame to the next. The length of an interval is measured on a monotonic clock. The page is
// docs/format/samples.md.
package recorder
