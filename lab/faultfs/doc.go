// Package faultfs gives a directory a file system that can lose what was not fsynced, and fail on command.
//
//	f, err := faultfs.New(ctx, "/scratch/n1", faultfs.Options{Seed: 7}) // /scratch/n1 is an empty file system now
//	f.Inject(faultfs.Fault{Path: "raft", Ops: faultfs.Fsync, Delay: 200 * time.Millisecond})
//	kill(pids); f.PowerOff() // every operation fails with EIO from here on
//	f.PowerOn()              // what fsync had promised is there; of the rest, what the seed says
//	f.Close()
//
// It is a FUSE file system and needs /dev/fuse and root, nothing else.
//
// # What a power loss leaves
//
// A file: what fsync, fdatasync or a write with O_DSYNC confirmed is kept; with Options.NoCache also writes with
// O_DIRECT that change neither size nor blocks. Of every other write each 512-byte sector is kept or lost by itself, so
// writes are torn, and reordered within a file and between files. Where two writes hit one sector, it may hold either.
// Changes of size keep their order; the last one that is kept may be torn like a write. Bytes of a longer file that
// were not written are zeros. A failed fsync leaves what it was to write in doubt forever, until it is written again:
// no later fsync makes it durable, as it is with the page cache of Linux. Owner, mode and times are not lost.
//
// A name (create, rename, link, remove) is durable after an fsync of its directory. With Options.Names == Posix that of
// the file does not help, and of the others each change is kept or lost by itself, renames as a whole, those of one
// name in their order. With Journaled they happen in one order, any fsync confirms all before it, and a power loss
// keeps a first part of the others: the least that ext4 does.
//
// The log (internal/core/raftlog) is tested with Posix. mysqld needs Journaled: 9.7 does not fsync the directory in
// which it makes a new binary log, nor that of a new schema's directory. With Posix even a server with sync_binlog = 1
// and innodb_flush_log_at_trx_commit = 1 loses its last commit, or does not start: "File './binlog.000005' not found",
// "Could not find any file associated with the tablespace ID".
//
// With innodb_flush_method = O_DIRECT, its default, it needs NoCache too: it does not fsync the doublewrite files then,
// so that a disk that has a cache may tear a page and its copy, and InnoDB ends with "Assertion failure: buf0dblwr.cc".
// With innodb_flush_method = fsync it comes through without NoCache. Nothing else of it has to be set otherwise:
// O_DIRECT, native AIO, sockets and locks work. With NoCache somebody else has to fsync doublewrite files that mysqld
// has just made (internal/mysql/mysqld does), or copies in them are lost with the file's length.
//
// Nothing is written back with time: what is not fsynced stays in danger until there is too much of it (64 MiB of one
// file, 10,000 names).
//
// # How
//
// The file system is served by a process of its own, this same program started again (init in serve.go), so that a
// program that waits for it, or forks, never waits for itself. It ends with its creator, and the mount goes with it. It
// keeps the names in memory, and the contents in unnamed files next to the directory. Ops are answered from there; the
// page cache of the kernel works as on any disk, so mmap, O_DIRECT, io_submit, locks and sync_file_range do. What a
// process has in its page cache it may still read after PowerOff.
//
// What is not emulated: bit rot, and a disk that lies about fsync.
package faultfs
