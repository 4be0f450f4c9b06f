package loop

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

const (
	// nap is the longest that the runtime's monitor thread sleeps by itself (runtime/proc.go, sysmon).
	nap = "10000000" // ns
	// spares are more threads than run Go code or are in a system call at any one time.
	spares = 16
)

// CalmMonitor has the runtime's monitor thread take long naps only. It sets the thread's timer slack, which takes
// CAP_SYS_NICE. Call it once, early in main.
//
// Each time a sync keeps a thread, or the process had nothing to do, that thread naps some fifty times for 20 us before
// it doubles its naps, up to 10 ms. Naps that begin at 10 ms cost a goroutine at most 10 ms, where all of GOMAXPROCS are
// in system calls. docs/benchmarks/what-we-tried.md has the measurement.
func CalmMonitor() error {
	monitor, err := monitorThread()
	if err != nil {
		return fmt.Errorf("find the Go runtime's monitor thread: %w", err)
	}
	// A thread inherits its maker's slack: those that the monitor may want to start have to be there before.
	startThreads(spares)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", monitor), []byte(nap), 0); err != nil {
		return fmt.Errorf("commits cost more CPU, because the Go runtime's monitor thread cannot be calmed: give the daemon CAP_SYS_NICE: %w", err)
	}
	return nil
}

// monitorThread is the first thread that the main one has started (runtime.main): ids are given in order, and begin
// again at the end.
func monitorThread() (id int, err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	var ids []int
	for _, t := range tasks {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	main := slices.Index(ids, os.Getpid())
	if main < 0 || len(ids) < 2 {
		return 0, fmt.Errorf("/proc/self/task of process %d has %v", os.Getpid(), ids)
	}
	return ids[(main+1)%len(ids)], nil
}

// startThreads has the runtime start n threads, which it keeps.
func startThreads(n int) {
	var started, ended sync.WaitGroup
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			started.Done()
			started.Wait() // with its thread
			runtime.UnlockOSThread()
		})
	}
	ended.Wait()
}
