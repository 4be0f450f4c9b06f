package loop

import (
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func start(t *testing.T, patience time.Duration, hooks ...func() bool) *Loop {
	t.Helper()
	l, err := New(patience)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks {
		l.Hook(h)
	}
	l.Start()
	t.Cleanup(func() {
		l.Stop()
		l.Wait()
	})
	return l
}

// on runs f on the loop and waits for it.
func on(l *Loop, f func()) {
	done := make(chan struct{})
	l.Do(func() {
		f()
		close(done)
	})
	<-done
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal(what + " did not come")
	}
}

// TestCallsAndHooks: calls come in order, and the loop does not sleep while a hook has something to do.
func TestCallsAndHooks(t *testing.T) {
	left := 0
	l := start(t, time.Second, func() bool {
		if left == 0 {
			return false
		}
		left--
		return true
	})
	var got []int
	for i := range 1000 {
		l.Do(func() { got = append(got, i) })
	}
	on(l, func() { left = 100 })
	for deadline := time.Now().Add(20 * time.Second); ; {
		n := 0
		if on(l, func() { n = left }); n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d turns of the hook are left", n)
		}
	}
	if len(got) != 1000 || !slices.IsSorted(got) {
		t.Errorf("calls came out of order: %v", got)
	}
}

// TestSockets: what a socket says is read as it comes, and a removed watch hears nothing.
func TestSockets(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	mine, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s, err := Adopt(mine)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := start(t, time.Second)
	heard, ended := make(chan string, 10), make(chan struct{})
	on(l, func() {
		var w *Watch
		w, err = l.Watch(s.FD(), func(Ready) {
			b := make([]byte, 100)
			n, _ := s.Read(b)
			if n == 0 {
				w.Remove()
				close(ended)
				return
			}
			heard <- string(b[:n])
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two"} {
		if _, err := other.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != word {
			t.Fatalf("heard %q, %q was said", got, word)
		}
	}
	other.Close()
	await(t, "the end", ended)
}

// TestTimers: they come in the order of their times, and one that was stopped does not come.
func TestTimers(t *testing.T) {
	l := start(t, time.Second)
	var got []int
	done := make(chan struct{})
	on(l, func() {
		l.After(30*time.Millisecond, func() { close(done) })
		l.After(20*time.Millisecond, func() { got = append(got, 2) })
		stopped := l.After(15*time.Millisecond, func() { got = append(got, 9) })
		l.After(10*time.Millisecond, func() { got = append(got, 1) })
		stopped.Stop()
	})
	await(t, "the last timer", done)
	if !slices.Equal(got, []int{1, 2}) {
		t.Errorf("timers came as %v", got)
	}
}

// TestStopTheWorld: a loop that waits without the scheduler's knowledge does not hold up the collector.
func TestStopTheWorld(t *testing.T) {
	l := start(t, time.Second)
	var beat func()
	beat = func() { // brief waits with events: it never gets to wait in the runtime's poller
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		l.After(15*time.Millisecond, beat)
	}
	on(l, beat)
	for brief := false; !brief; {
		on(l, func() { brief = l.pace.streak >= busy })
	}
	began := time.Now()
	for range 100 {
		runtime.GC()
	}
	if took := time.Since(began) / 100; took > 15*time.Millisecond {
		t.Errorf("a collection takes %v: it waits for the loop's next timer", took)
	}
}

// TestHungJob: a job that hangs holds the loop up for no longer than twice the patience; its end comes once it has
// ended, and jobs are carried out beside the loop until the disk is fast again.
func TestHungJob(t *testing.T) {
	l := start(t, 20*time.Millisecond)
	hang, then := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	l.Do(func() {
		l.Job(false, func() { <-hang }, func() {
			if !ended.Load() {
				t.Error("the end came before the job had ended")
			}
			close(then)
		})
	})
	called := make(chan struct{})
	l.Do(func() { close(called) }) // in the same turn, or after the hung job
	await(t, "a call in the turn of the job", called)
	on(l, func() {}) // only the spare can do this
	ended.Store(true)
	close(hang)
	await(t, "the end of the job", then)
	for i := range 100 {
		slow := false
		done := make(chan struct{})
		l.Do(func() {
			slow = l.disk.slow
			l.Job(false, func() {}, func() { close(done) })
		})
		await(t, "a job", done)
		if i == 0 && !slow {
			t.Error("the disk hung and counts as fast")
		}
		if !slow {
			return
		}
	}
	t.Error("the disk is fast and counts as slow")
}

// TestLargeJob: a large job does not hold the loop up, on a fast disk too, and says nothing of the disk.
func TestLargeJob(t *testing.T) {
	l := start(t, time.Hour) // no spare takes over
	hang, then := make(chan struct{}), make(chan struct{})
	on(l, func() { l.Job(true, func() { <-hang }, func() { close(then) }) })
	on(l, func() {}) // while it is under way
	time.AfterFunc(2*hungJob, func() { close(hang) })
	await(t, "the end of the job", then)
	if on(l, func() {}); l.disk.slow {
		t.Error("the disk counts as slow")
	}
}

// TestTimersBetweenEvents: a timer that ends a wait does not take its thread from a loop that is busy, and timers alone
// do not keep it busy.
func TestTimersBetweenEvents(t *testing.T) {
	l, err := New(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	deadline := time.Now().Add(20 * time.Second)
	for l.pace.streak < busy {
		l.asleep.Store(true)
		l.Wake()
		l.poll(time.Minute)
		if time.Now().After(deadline) {
			t.Fatal("it never became busy")
		}
	}
	l.poll(time.Millisecond)
	if l.pace.streak < busy {
		t.Error("one timer, and it is not busy any more")
	}
	for l.pace.streak >= busy {
		l.poll(time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatal("nothing came, and it is still busy")
		}
	}
}
