package sim

import (
	"context"
	"fmt"
	"iter"
	"time"

	"trireme/internal/base/run"
)

// task is one of the things that a daemon does at a time of its own: a start, a promotion, a fence. It is written as in
// the daemon, from top to bottom; where the daemon waits, the task lets simulated time pass. It is a coroutine, so
// nothing runs concurrently with it.
type task struct {
	g      *member
	done   bool
	parked bool
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	stop   func()
}

// unwound ends a coroutine whose daemon is dead.
type unwound struct{}

// spawn begins a task. It ends with the daemon.
func (g *member) spawn(f func(ctx context.Context)) {
	k := &task{g: g}
	k.next, k.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			k.done = true
			if p := recover(); p != nil && p != (unwound{}) {
				panic(p)
			}
		}()
		k.yield = yield
		f(g.root)
	})
	g.tasks = append(g.tasks, k)
	g.n.in(g.short(), func() { g.resume(k) })
}

// resume lets a task go on to its next wait.
func (g *member) resume(k *task) {
	if k.done {
		return
	}
	g.running = k
	k.next()
	g.running = nil
	if k.done {
		for i, t := range g.tasks {
			if t == k {
				g.tasks = append(g.tasks[:i:i], g.tasks[i+1:]...)
				break
			}
		}
	}
	g.wakeLoop()
}

// stopTasks ends all tasks where they are.
func (g *member) stopTasks() {
	for _, k := range g.tasks {
		k.stop()
	}
	g.tasks = nil
}

// sleep lets d pass on the node's clock.
func (k *task) sleep(d time.Duration) {
	k.g.lock.free()
	k.g.n.After(d, func() { k.g.resume(k) })
	if !k.yield(struct{}{}) {
		panic(unwound{})
	}
}

// park waits for unpark, or for the end of some context: what is waited for has to be looked at again.
func (k *task) park() {
	k.g.lock.free()
	k.parked = true
	if !k.yield(struct{}{}) {
		panic(unwound{})
	}
}

// unpark lets a parked task go on.
func (k *task) unpark() {
	if k.parked {
		k.parked = false
		k.g.resume(k)
	}
}

// cancel ends a context.
func (c *taskContext) cancel() {
	c.canceled = true
	c.g.wakeParked()
}

// wakeParked lets parked tasks look again at what they wait for.
func (g *member) wakeParked() {
	for _, k := range g.tasks {
		if k.parked {
			g.n.in(g.short(), k.unpark)
		}
	}
}

// short is how long a small thing takes.
func (g *member) short() time.Duration {
	r := g.w.rnd
	if r.IntN(40) == 0 {
		return time.Duration(r.IntN(40)) * time.Millisecond
	}
	return time.Duration(50+r.IntN(900)) * time.Microsecond
}

// taskContext is a context in simulated time, of a life of the daemon. Nothing can wait for its end but exec.
type taskContext struct {
	g        *member
	end      time.Duration // on the node's clock; 0: never
	canceled bool
	parent   *taskContext
}

// Deadline implements context.Context: no moment of real time.
func (c *taskContext) Deadline() (t time.Time, ok bool) { return t, false }

// Done implements context.Context.
func (c *taskContext) Done() <-chan struct{} { return nil }

// Value implements context.Context.
func (c *taskContext) Value(any) any { return nil }

// Err implements context.Context.
func (c *taskContext) Err() error {
	switch {
	case c.canceled:
		return context.Canceled
	case c.end != 0 && c.g.now() >= c.end:
		return context.DeadlineExceeded
	case c.parent != nil:
		return c.parent.Err()
	}
	return nil
}

// left is how much time there is, at most d.
func (c *taskContext) left(d time.Duration) time.Duration {
	for ; c != nil; c = c.parent {
		if c.end != 0 {
			d = min(d, max(c.end-c.g.now(), 0))
		}
	}
	return d
}

// exec implements run.Exec and run.Clock for the tasks of a node.
type exec struct{ g *member }

// Now implements run.Exec.
func (x exec) Now() time.Duration { return x.g.now() }

// Wall implements run.Clock.
func (x exec) Wall() time.Time { return time.Unix(1_800_000_000, x.g.w.now) }

// AfterFunc implements run.Clock.
func (x exec) AfterFunc(d time.Duration, f func()) { x.g.n.After(d, f) }

// Sleep implements run.Exec: it is the running task that sleeps.
func (x exec) Sleep(ctx context.Context, d time.Duration) error {
	c := ctx.(*taskContext)
	if err := c.Err(); err != nil {
		return err
	}
	x.g.running.sleep(max(c.left(d), time.Microsecond)) // of a clock that runs fast, a nanosecond may be none
	return c.Err()
}

// Wait implements run.Exec.
func (x exec) Wait(ctx context.Context, ch <-chan struct{}) error {
	return x.until(ctx, func() bool { return run.Closed(ch) })
}

// Either implements run.Exec, for channels whose end wakes who is parked, and contexts without a deadline.
func (x exec) Either(ctx context.Context, a, b <-chan struct{}) error {
	for !run.Closed(a) && !run.Closed(b) {
		if err := ctx.Err(); err != nil {
			return err
		}
		x.g.running.park()
	}
	return nil
}

// until waits for a condition.
func (x exec) until(ctx context.Context, ok func() bool) error {
	for !ok() {
		if err := x.Sleep(ctx, time.Duration(100+x.g.w.rnd.IntN(3000))*time.Microsecond); err != nil {
			return err
		}
	}
	return nil
}

// within waits for a condition, for at most limit.
func (x exec) within(ctx context.Context, limit time.Duration, what string, ok func() bool) error {
	limited, cancel := x.WithTimeout(ctx, limit)
	defer cancel()
	if err := x.until(limited, ok); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// WithCancel implements run.Exec.
func (x exec) WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	out := &taskContext{g: x.g, parent: ctx.(*taskContext)}
	return out, out.cancel
}

// WithTimeout implements run.Exec.
func (x exec) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	out := &taskContext{g: x.g, end: x.g.now() + d, parent: ctx.(*taskContext)}
	return out, out.cancel
}

// uncontended is a member's lock. Nothing that ships holds it over a wait, so it is free whenever a task begins to run.
type uncontended struct {
	g    *member
	held bool
}

// Lock implements sync.Locker.
func (l *uncontended) Lock() {
	l.free()
	l.held = true
}

// Unlock implements sync.Locker.
func (l *uncontended) Unlock() { l.held = false }

func (l *uncontended) free() {
	if l.held {
		l.g.w.Violate("locks", "node %d waits with its lock held, or takes it twice", l.g.n.ID)
	}
}
