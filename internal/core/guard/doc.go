// Package guard ends a mysqld whose daemon has stopped without dying (S10).
//
// A daemon that is stopped (SIGSTOP, a debugger, a hung loop) can neither renew its lease nor fence, and its mysqld
// still answers clients that are connected to it directly. So each daemon has a second process, the guard, which does
// one thing: it sends SIGKILL to mysqld when a moment has passed that the daemon keeps moving ahead while it serves.
//
//	daemon --- page of shared memory: until (moved ahead by the daemon), seen and killed (written by the guard) --- guard
//	       --- socket pair: the pidfd of mysqld; its end says that the daemon is dead -------------------------/      |
//	mysqld <---------------------------------------- pidfd_send_signal ----------------------------------------------'
//
// A sign of life is a store to memory: no system call on either side. The guard sleeps until the moment it read last,
// and looks again. It holds mysqld by a pidfd that was made at its fork, so it can never hit another process. Times are
// on CLOCK_BOOTTIME, and so is the guard's timer: a host that was suspended does not give a leader back its past.
//
// The guard ends with its daemon, and then kills mysqld too, in addition to the parent-death signal of mysqld. If the
// node has virtual IP addresses, the guard removes them in both cases after it has sent SIGKILL to mysqld, and tries
// again if that fails. For that it outlives its daemon by a moment. A guard that dies, or is stopped itself, is
// replaced by the daemon.
package guard
