// Package sim runs a whole cluster below mysqld on one goroutine, and repeats a run from its seed: the real consensus,
// the real log on a file system in memory, the real frames between nodes, under simulated clocks, network, disks and
// processes that fail.
//
//	Run(seed) -> schedule of faults (a list, drawn from the seed alone)
//	          -> World: events in order of (time, sequence); each one lets a node do one piece of work
//	               Node: consensus.Stepper | raftlog on memfs | Top
//	               network: transport's frames, delays, losses, cuts
//	          -> the invariants are checked after every piece of work
//	          -> all faults end; a leader must be there soon, and commit
//
// # What a node is
//
// A Node is a machine: a disk, a clock, a process that dies, is stopped, starts again. It has one Top as long as the
// disk lives, which is what runs above consensus. Package sim brings one that proposes random entries and checks what
// Raft promises (S2, S10, S12); the member of a node with a model of mysqld is another: SQLTop, the daemon's work above
// consensus on fakemysql, with clients. The organs of a member do there what they do in the daemon, in simulated time
// (exec); see member. It checks S1, S3 to S8, S11, S12 and the commit rules as they show on servers, that no lock is
// held over a wait, and at the end that all hold what is committed, once, and nothing else. Where the majority is lost,
// an operator makes a new generation of the survivors, and it checks what that keeps and who may go on (force).
//
//	Opening, LogOpened, Start   as a life begins; consensus starts when Start returns
//	OtherGeneration   when a node of another generation is met, of which nothing else is heard
//	Committed, Snapshot, State, Asked, Told   as things happen in that life
//	Step      -> after every piece of work of the node; no time passes in it
//	Crash     -> the life has ended; with power: so has that of everything on the machine
//
// A Top acts through its Node: Propose, ReadIndex, Transfer, ConfChange, After, Tell, Status, HoldsLease, Clock, Log,
// World. Whatever it wants random it takes from World.Rand, and it must not look at the real clock, start goroutines,
// or go through a map in Go's order. World.Violate ends the run.
//
// # Time
//
// World.Now is true time in nanoseconds; Node.Clock is the node's CLOCK_BOOTTIME, which runs up to 8% faster or slower:
// S10 allows for a fifth between two. A stopped process does nothing, and its timers fire when it goes on; its clock
// goes on meanwhile.
//
// # What is not simulated
//
// TLS and TCP themselves, which give order within a stream and lose its end; a message that hands leadership over and
// is older than an election timeout when it arrives (transport's deadlines end such a connection); the hello by which
// transport keeps generations apart (Node.parted does); a force-quorum beside a logger, or on both sides of a cut,
// which makes two clusters; the file of the cluster settings.
//
// # Counting
//
// Campaign runs many seeds on several goroutines, each with a World of its own, and adds up the counters of their
// Results. A failing seed is run again with a trace, and Shrink looks for a smaller schedule that fails by the same
// rule.
package sim
