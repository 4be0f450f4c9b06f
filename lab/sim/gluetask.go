package sim

import (
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
	g.poke()
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

// command is a statement of the daemon's to a life of mysqld: it takes a moment, and hangs while mysqld does. It fails
// when mysqld is dead, or another one by then.
func (k *task) command(l *mysqlLife, limit time.Duration) error {
	if err := k.sleep(k.g.short()); err != nil {
		return err
	}
	if err := k.until(limit, "mysqld does not answer", func() bool { return l.dead || !k.g.hung }); err != nil {
		return err
	}
	if l.dead {
		return errDeadLife
	}
	return nil
}

var errDeadLife = errors.New("this mysqld is dead")

// short is how long a small thing takes.
func (g *glue) short() time.Duration {
	r := g.w.rnd
	if r.IntN(40) == 0 {
		return time.Duration(r.IntN(40)) * time.Millisecond
	}
	return time.Duration(50+r.IntN(900)) * time.Microsecond
}
