package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// task is one of the things that a daemon does at a time of its own: a start, a promotion, a fence. It is written as in
// the daemon, from top to bottom; where the daemon waits, the task lets simulated time pass. It is a coroutine, so
// nothing runs concurrently with it.
type task struct {
	g     *glue
	name  string
	cause error // not nil: it was cancelled
	done  bool
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	stop  func()
}

var (
	errCancelled = errors.New("cancelled")
	errPatience  = errors.New("not in time")
)

// unwound ends a coroutine whose daemon is dead.
type unwound struct{}

// spawn begins a task. It ends with the daemon.
func (g *glue) spawn(name string, f func(k *task)) *task {
	k := &task{g: g, name: name}
	k.next, k.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			k.done = true
			if p := recover(); p != nil && p != (unwound{}) {
				panic(p)
			}
		}()
		k.yield = yield
		f(k)
	})
	g.tasks = append(g.tasks, k)
	g.n.in(g.short(), func() { g.resume(k) })
	return k
}

// resume lets a task go on to its next wait.
func (g *glue) resume(k *task) {
	if k.done {
		return
	}
	k.next()
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
func (g *glue) stopTasks() {
	for _, k := range g.tasks {
		k.stop()
	}
	g.tasks = nil
}

// sleep lets d pass on the node's clock.
func (k *task) sleep(d time.Duration) error {
	k.g.n.After(d, func() { k.g.resume(k) })
	if !k.yield(struct{}{}) {
		panic(unwound{})
	}
	return k.cause
}

// cancel makes the task's waits fail from now on.
func (k *task) cancel() {
	if k != nil && k.cause == nil {
		k.cause = errCancelled
	}
}

// until waits for a condition.
func (k *task) until(limit time.Duration, what string, ok func() bool) error {
	end := k.g.now() + limit
	for !ok() {
		if k.g.now() >= end {
			return fmt.Errorf("%s: %w", what, errPatience)
		}
		if err := k.sleep(time.Duration(1+k.g.w.rnd.IntN(6)) * time.Millisecond); err != nil {
			return err
		}
	}
	return k.cause
}

// short is how long a small thing takes.
func (g *glue) short() time.Duration {
	r := g.w.rnd
	if r.IntN(40) == 0 {
		return time.Duration(r.IntN(40)) * time.Millisecond
	}
	return time.Duration(50+r.IntN(900)) * time.Microsecond
}

// ctx is what the code that ships gets from a task: it waits through exec.
func (k *task) ctx() context.Context { return &taskContext{k: k} }

// within is ctx with a limit.
func (k *task) within(d time.Duration) context.Context {
	ctx, _ := exec{k.g}.WithTimeout(k.ctx(), d)
	return ctx
}

// taskContext is a context in simulated time. Nothing can wait for its end but exec.
type taskContext struct {
	k        *task
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
	case c.k.cause != nil:
		return c.k.cause
	case c.canceled:
		return context.Canceled
	case c.end != 0 && c.k.g.now() >= c.end:
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
			d = min(d, max(c.end-c.k.g.now(), 0))
		}
	}
	return d
}

// exec implements run.Exec and run.Clock for the tasks of a node.
type exec struct{ g *glue }

// Now implements run.Exec.
func (x exec) Now() time.Duration { return x.g.now() }

// Wall implements run.Clock.
func (x exec) Wall() time.Time { return time.Unix(1_800_000_000, x.g.w.now) }

// AfterFunc implements run.Clock.
func (x exec) AfterFunc(d time.Duration, f func()) { x.g.n.After(d, f) }

// Sleep implements run.Exec.
func (x exec) Sleep(ctx context.Context, d time.Duration) error {
	c := ctx.(*taskContext)
	if err := c.Err(); err != nil {
		return err
	}
	_ = c.k.sleep(max(c.left(d), time.Microsecond)) // of a clock that runs fast, a nanosecond may be none
	return c.Err()
}

// Wait implements run.Exec.
func (x exec) Wait(ctx context.Context, ch <-chan struct{}) error {
	return x.until(ctx, func() bool { return closed(ch) })
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
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

// WithTimeout implements run.Exec.
func (x exec) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := ctx.(*taskContext)
	out := &taskContext{k: c.k, end: x.g.now() + d, parent: c}
	return out, func() { out.canceled = true }
}
