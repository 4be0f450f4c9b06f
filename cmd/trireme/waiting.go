package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/ops/cli"
)

// A request that takes long is told about: at first, and then again and again.
const (
	firstNotice = 3 * time.Second
	nextNotice  = 10 * time.Second
)

// tellWaiting says on standard error what a request waits for, as long as it is under way. stop returns once nothing
// more is said.
func (e *env) tellWaiting(ctx context.Context, client *api.Client, limit time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	w := e.wait(limit)
	go func() {
		defer close(done)
		for next := firstNotice; ; next = nextNotice {
			if poll.Pause(ctx, next+10*time.Millisecond) != nil {
				return
			}
			lookCtx, cancel := context.WithTimeout(ctx, probeTimeout)
			v, err := client.Cluster(lookCtx)
			cancel()
			if ctx.Err() != nil {
				return
			}
			w.say(e, waitsFor(v, err))
		}
	}()
	return func() { cancel(); <-done }
}

// waitsFor is what may hold a change up, by the state of the cluster.
func waitsFor(v api.ClusterView, err error) string {
	if err != nil {
		return err.Error()
	}
	var out []string
	if v.Leader == "" {
		out = append(out, "there is no leader")
	}
	for _, m := range v.Members {
		if m.State == api.StateHealthy {
			continue
		}
		what := m.Name + " is " + m.State
		if m.Reason != "" {
			what += ": " + m.Reason
		}
		out = append(out, what)
	}
	if len(out) == 0 {
		return fmt.Sprintf("%s leads and all nodes are healthy; what was asked for is under way", v.Leader)
	}
	return strings.Join(out, "; ")
}

// waiting tells what a verb that looks again and again waits for.
type waiting struct {
	began, said time.Time
	limit       time.Duration
}

func (e *env) wait(limit time.Duration) waiting {
	return waiting{began: time.Now(), said: time.Now().Add(firstNotice - nextNotice), limit: limit}
}

// say is called at each look; it speaks when it is time to.
func (w *waiting) say(e *env, what string) {
	if time.Since(w.said) < nextNotice {
		return
	}
	w.said = time.Now()
	waited := time.Since(w.began)
	for _, line := range cli.Wrap(fmt.Sprintf("waiting for %.0f s: %s (gives up in %.0f s)", waited.Seconds(), what,
		(w.limit-waited).Seconds()), cli.MaxColumns) {
		fmt.Fprintln(e.errOut, line)
	}
}

// lookPause is between two looks of until.
const lookPause = 250 * time.Millisecond

// until looks at the cluster until it is as it should be, and says what is waited for; seen is false after limit.
func (r remote) until(e *env, limit time.Duration, what string, look func(api.ClusterView) bool) (seen bool) {
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	w := e.wait(limit)
	for {
		w.say(e, what)
		rctx, done := context.WithTimeout(ctx, probeTimeout)
		var v api.ClusterView
		if client, err := r.client(rctx, false); err == nil {
			v, _ = client.Cluster(rctx) // an error: asked again
			client.Close()
		}
		done()
		if look(v) {
			return true
		}
		if poll.Pause(ctx, lookPause) != nil {
			return false
		}
	}
}

// planned ends an order that only a report of was asked for, or that must not be given: refusal says why, nil: it may.
func planned(e *env, dryRun, inJSON bool, rep any, refusal error) (ends bool, err error) {
	switch {
	case dryRun && inJSON:
		if err := printJSON(e.out, rep); err != nil {
			return true, err
		}
	case refusal != nil && inJSON:
		return true, refusal
	}
	if refusal != nil {
		return true, cli.Silent(exitFailed)
	}
	return dryRun, nil
}

// refusalOf is the error of a report that tells of a problem; nil: it tells of none.
func refusalOf(kind api.Kind, problem, advice string) error {
	if problem == "" {
		return nil
	}
	return api.Errorf(kind, "nothing is changed: %s", problem).With("%s", advice)
}
