package loop

import (
	"runtime/debug"
	"time"
)

// job blocks, and has an end on the loop.
type job struct {
	f, then func()
	large   bool
}

// disk says whether jobs have been fast.
type disk struct {
	mean time.Duration // of the last ones
	slow bool
}

const (
	// slowJobs hold up the network too long; a single one of hungJob does as well.
	slowJobs = 4 * time.Millisecond
	hungJob  = 20 * time.Millisecond
	// fastJobs make a disk fast again.
	fastJobs = 2 * time.Millisecond
)

func (d *disk) took(t time.Duration) {
	d.mean += (min(t, 10*hungJob) - d.mean) / 8
	switch {
	case t >= hungJob, d.mean >= slowJobs:
		d.slow = true
	case d.mean <= fastJobs:
		d.slow = false
	}
}

// Job has f called, which may block on a disk, and then then on the loop. f runs at the end of the turn, or beside the
// loop where the disk is slow, or f is large. There is at most one job at a time: the next may begin in then.
func (l *Loop) Job(large bool, f, then func()) {
	if l.job != nil {
		panic("loop: two jobs\n" + string(debug.Stack()))
	}
	j := &job{f, then, large}
	if !l.disk.slow && !large {
		l.job = j
		return
	}
	l.ended.Add(1)
	go func() {
		defer l.ended.Done()
		took := j.carryOut()
		l.Do(func() { l.finish(j, took) })
	}()
}

// carryOut returns how long it took.
func (j *job) carryOut() time.Duration {
	began := time.Now()
	j.f()
	return time.Since(began)
}

// finish is the end of a job, on the loop. How long a large one took says nothing of the disk, but that it hangs.
func (l *Loop) finish(j *job, took time.Duration) {
	if !j.large || took >= 10*hungJob {
		l.disk.took(took)
	}
	j.then()
}

// carryOut does a job on this goroutine; false means that the spare drives the loop now.
func (l *Loop) carryOut(j *job) bool {
	l.jobs++
	number := l.jobs
	l.blocked.Store(number)
	took := j.carryOut()
	if l.blocked.CompareAndSwap(number, 0) {
		l.finish(j, took)
		return true
	}
	l.Do(func() { l.finish(j, took) })
	return false
}

// standBy waits until a job has held up the loop for too long, and takes over: true. It returns false when the loop
// has ended.
func (l *Loop) standBy() bool {
	ticker := time.NewTicker(l.patience)
	defer ticker.Stop()
	seen := int64(0)
	for {
		select {
		case <-l.stop:
			return false
		case <-ticker.C:
		}
		number := l.blocked.Load()
		if number != 0 && number == seen && l.blocked.CompareAndSwap(number, 0) {
			l.disk.slow = true
			l.wait(0) // what has come meanwhile comes before the time that has passed
			return true
		}
		seen = number
	}
}
