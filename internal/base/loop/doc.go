// Package loop lets one goroutine wait for sockets, timers and calls, and handle all of them one after the other.
//
//	sockets, calls, timers -> handlers -> hooks -> what comes last -> one blocking job -> wait
//
// What is on the way of a commit runs on it to completion: nothing is handed to another goroutine, no thread is woken
// for it, and no lock is waited for. It has an epoll instance of its own, because a thread that the runtime's poller
// wakes first looks for a goroutine to run, and others look with it.
//
// # The scheduler
//
// While there is work the loop waits in a system call that the scheduler is not told of. An announced one wakes the
// runtime's monitor thread, which then naps and looks around some fifty times. The goroutine counts as running
// meanwhile, so GOMAXPROCS has to be 2 or more. A stop of the world, the scan of its stack, and preemption send its
// thread a signal, as to every thread that runs Go code. The signal ends the wait (epoll_wait is never restarted:
// signal(7)), and the loop comes to a safe point. Where the signal comes just before the call, the runtime sends
// another one 100 us later.
//
// While there is little to do, and every 8 ms in any case, it waits in the runtime's poller as any goroutine does (park).
// So it need not be preempted. A call of runtime.Gosched would serve as well, but has another thread look for work.
//
// # Jobs that block
//
// A write to the disk and its sync run on the loop itself as long as the disk is fast: that is one system call and no
// hand-over. Where it was slow lately, a goroutine of its own does it, and the loop goes on. A disk that was fast and
// now hangs would take the loop with it. So a second goroutine, the spare, looks at the clock once per patience, and
// drives the loop from where it stands if a job lasts too long. The one that was held up becomes the spare when its job
// has ended. Job, Do and the end of a job are the only places at which the goroutine may change: handlers and hooks
// never see it.
package loop
