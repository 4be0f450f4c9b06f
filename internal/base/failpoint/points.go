package failpoint

// Point is a place in the code with a name, and what is done there.
type Point struct{ Name, What string }

// Points lists all points, in the order of the way that a transaction takes, then of what else changes durable state.
var Points = []Point{
	// The leader's way from mysqld to the log.
	{"source.event-read", "an event has been read from mysqld's binary log"},
	{"source.batch-cut", "a batch of transactions has been cut and not yet proposed"},
	{"source.before-propose", "the batch is about to be given to Raft"},
	{"source.after-propose", "Raft has put the batch into its memory"},
	{"raft.before-send", "messages to peers are about to be given to the links"},
	{"raft.before-append", "entries and votes are about to be written"},
	{"log.before-write", "entries are encoded"},
	{"log.after-write", "entries are written, not synced"},
	{"log.after-sync", "entries are on disk, not yet reported"},
	{"raft.before-respond", "the answers to what was synced are about to be delivered"},

	// From the commit index to the client.
	{"raft.before-apply", "committed entries are about to be delivered"},
	{"raft.after-apply", "committed entries have been delivered, Raft is about to be told"},
	{"ack.before", "an entry is committed, mysqld is about to be told"},
	{"ack.after", "mysqld has been sent the acknowledgement"},

	// From the commit index to a follower's mysqld.
	{"feed.before-trx", "a transaction is about to be sent to the receiver"},
	{"feed.after-trx", "all events of a transaction are in the buffer to the receiver, unless it has them"},
	{"feed.after-flush", "what is committed has been written to the receiver's socket"},

	// Term and vote.
	{"state.before-write", "the state file is about to be written"},
	{"state.after-write", "one slot of the state file is written, not synced"},
	{"state.after-sync", "one slot is on disk, the other is still an older one"},

	// Segments of the log.
	{"spare.before-sync", "the next segment's file is made ahead, not synced"},
	{"spare.after-sync", "it is on disk, no rotation knows of it"},
	{"rotate.before-seal", "a segment is full, about to be synced"},
	{"rotate.after-seal", "it is synced, its end is not cut yet"},
	{"rotate.after-cut", "its file was cut at the end of its records, which is not fsynced"},
	{"rotate.after-header", "the next segment's header is in the file that was made ahead, not synced"},
	{"rotate.after-new", "the next segment is whole under its temporary name"},
	{"rotate.after-rename", "it has its name, the directory is not synced"},
	{"rotate.before-state", "it is the last segment, the state file does not say so"},
	{"index.before-write", "a segment is closed and has no index file"},
	{"index.after-write", "its index file is written"},
	{"purge.before-state", "segments are about to be given up"},
	{"purge.after-state", "the state file names the new beginning, all segments are there"},
	{"purge.after-segment", "a segment is gone, its index file is not"},
	{"truncate.before-watermark", "a conflicting tail is about to be cut"},
	{"truncate.after-watermark", "the watermark is lowered, the tail is there"},
	{"truncate.before-file", "segments above the cut are gone, the file is not cut"},
	{"truncate.after-file", "the tail is cut, nothing is written over it"},
	{"reset.before-segment", "the log is about to be replaced by a snapshot"},
	{"reset.after-segment", "the segment of the snapshot has its temporary name, the old log is there"},
	{"reset.after-state", "the state file says that the old log is to go"},
	{"reset.before-rename", "the old log is gone, the new segment has its temporary name"},
	{"reset.before-done", "the new segment is the only one, the state file says that the old log is to go"},

	// The node's own files (node.json, cluster settings).
	{"file.before-rename", "a file is on disk under its temporary name"},
	{"file.after-rename", "it has its name, the directory is not synced"},

	// A start of mysqld.
	{"server.incarnation-persisted", "the number of the next life is on disk"},
	{"server.binlog-deleted", "binary log and relay log are deleted, the old server_uuid is there"},
	{"server.files-written", "auto.cnf and my.cnf are written"},
	{"server.started", "mysqld runs and answers, not yet noted"},
	{"judge.before-plug", "holes are known, about to be plugged"},
	{"judge.after-plug", "holes are plugged, no durable index says so, the feed has not begun"},
	{"judge.after-feed", "the receiver has been started, the server does not count as ready"},
	{"durable.before-flush", "the applied index is known, InnoDB's log is about to be flushed"},
	{"durable.after-flush", "it is flushed, the durable index is not on disk"},
	{"durable.after-persist", "the durable index is on disk"},

	// A promotion.
	{"promote.begin", "elected, nothing done yet"},
	{"promote.semisync-on", "every commit waits, the prelude is on disk"},
	{"promote.before-barrier", "the dump has begun, the barrier is not proposed"},
	{"promote.after-barrier", "the barrier is committed"},
	{"promote.before-open", "everything is applied and verified, writes are closed"},
	{"promote.after-open", "mysqld takes writes, not yet announced"},

	// The end of a leader.
	{"fence.begin", "clients at the routers are cut, mysqld takes writes"},
	{"drain.before-read-only", "writes are about to be closed"},
	{"drain.after-read-only", "writes are closed, clients are there"},
	{"drain.after-cut", "clients are cut, some may wait for an acknowledgement"},
	{"drain.done", "all is committed and acknowledged"},
	{"fence.before-kill", "not drained in time, mysqld is about to be killed"},
	{"switchover.begin", "the target is known, writes are open"},
	{"switchover.before-close", "the target has nearly caught up, writes are about to be closed"},
	{"switchover.drained", "writes are closed and all is committed"},
	{"switchover.before-transfer", "the target has applied everything"},
	{"switchover.after-transfer", "the target is elected"},
	{"retire.before-persist", "a drained leader's dump has ended"},
	{"retire.after-persist", "the end of its leadership is on disk, semi-sync is on"},
	{"retire.done", "it is a follower"},

	// The end of a cluster.
	{"leave.prepared", "every follower is ready to be a plain server, the end is not proposed"},

	// Where clients are led.
	{"routes.before-view", "the router is about to be told who leads and who follows"},

	// Seeding.
	{"seed.begin", "a donor is found, this node's data is there"},
	{"seed.forgotten", "the durable index is 0 on disk, the data is there"},
	{"seed.receiver-up", "the receiving server runs, the old data is there"},
	{"seed.discarded", "the old data is gone, nothing is copied"},
	{"seed.copying", "the copy is under way"},
	{"seed.copied", "the copy is complete, the receiving server has ended"},
	{"seed.confirmed", "the durable index of the copy is on disk, the copy has no name"},
	{"seed.done", "the copy is the data directory, no server has been started on it"},

	// Membership.
	{"conf.before-propose", "a change of the membership is about to be proposed"},
	{"conf.after-apply", "a change is in force in memory, not on disk"},
	{"conf.after-persist", "a change is on disk, not yet reported"},
	{"settings.before-save", "committed settings are in force in memory, the copy on disk is older"},
}
