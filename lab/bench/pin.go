package bench

import "runtime"

// onPinnedThread runs f on a thread that lives as long as f does: the parent-death signal of a child fires when the
// thread that forked it ends.
func onPinnedThread[T any](f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		v, err := f()
		done <- result{v, err}
	}()
	r := <-done
	return r.v, r.err
}
