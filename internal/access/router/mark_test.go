package router

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trireme/internal/api"
)

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

// Nothing that a session was answered comes after the point that it uses, or it is counted; the count is never less
// than what may come after it.
func TestPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n1, n2 := Target{Name: "n1", Epoch: "1/2"}, Target{Name: "n2", Epoch: "1/3"}
		var mu sync.Mutex
		leader, index, fail := n1, uint64(10), false
		hang := make(chan struct{})
		close(hang)
		p := points{wanted: make(chan struct{}, 1)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(ctx, func() *Target { mu.Lock(); defer mu.Unlock(); t := leader; return &t },
				func(context.Context, Target) (uint64, error) {
					mu.Lock()
					at, bad, wait := index, fail, hang
					mu.Unlock()
					<-wait
					if bad {
						return 0, errors.New("no answer")
					}
					return at, nil
				})
		}()
		set := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		check := func(what string, tr *trace, target Target, base uint64, since int) {
			t.Helper()
			synctest.Wait()
			p.now(tr, target)
			if tr.base != base || tr.since != since {
				t.Errorf("%s: %d since %d, want %d since %d", what, tr.since, tr.base, since, base)
			}
		}
		tr := p.begin(n1, 7)
		p.want()
		check("init_connect may not be over", &tr, n1, 0, countless)
		p.answered(&tr, 0)
		pass(pointPause)
		check("the first answer", &tr, n1, 10, 0)

		set(func() { index = 20 })
		other := p.begin(n1, 7)
		if other.base != 10 || other.since != countless {
			t.Errorf("a new connection begins with %+v", other)
		}
		p.answered(&tr, 1)
		check("asked too soon", &tr, n1, 10, 1)
		p.answered(&tr, 1)
		check("two answers", &tr, n1, 10, 2)
		pass(pointPause)
		check("asked again", &tr, n1, 20, 0)

		// A question that is under way covers what came before it, and not what comes while it is.
		pass(pointPause)
		set(func() { hang = make(chan struct{}) })
		p.answered(&tr, 1)
		synctest.Wait()
		p.answered(&tr, 1)
		set(func() { index = 30 })
		close(hang)
		check("answered while asked", &tr, n1, 20, 1)
		pass(pointPause)
		check("asked once more", &tr, n1, 30, 0)

		set(func() { fail = true })
		p.answered(&tr, 1)
		pass(pointPause)
		check("no answer", &tr, n1, 30, 1)
		set(func() { fail = false })
		pass(retryPause)
		check("asked again by itself", &tr, n1, 30, 0)
		set(func() { leader = n2 })
		p.answered(&tr, countless)
		pass(pointPause)
		check("another leader's log", &tr, n1, 30, countless)
		cancel()
		<-done
	})
}

// outcomes answers as it is told, and keeps the questions.
type outcomes struct {
	mu    sync.Mutex
	index uint64
	asked []api.OutcomeQuery
}

func (o *outcomes) Reached(context.Context, Target) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.index, nil
}

func (o *outcomes) Outcome(_ context.Context, sent api.OutcomeQuery) api.OutcomeResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, sent)
	return api.OutcomeUnknown
}

// What a session asks about its statement counts what it was answered before.
func TestSentCountsOthers(t *testing.T) {
	for name, c := range map[string]struct {
		before []string
		last   string
		sole   bool
	}{
		"a read before":             {[]string{"SELECT 1"}, "INSERT 1", true},
		"a transaction":             {[]string{"START TRANSACTION", "INSERT 1"}, "COMMIT", true},
		"DDL, in parts perhaps":     {nil, "DROP TABLE t", false},
		"several":                   {nil, "INSERT 1; INSERT 2", false},
		"DDL within a transaction":  {[]string{"START TRANSACTION"}, "DROP TABLE t", false},
		"a session that is tied":    {nil, "INSERT @x", true},
		"a procedure":               {nil, "CALL p()", false},
		"COMMIT with another begun": {[]string{"START TRANSACTION"}, "COMMIT AND CHAIN", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &outcomes{index: 5}
			r, from, to, client := rawSession(t, Config{Outcomes: o})
			say(t, client, comPing, "")
			eventually(t, "the point is known", func() bool {
				say(t, client, comPing, "")
				r.points.mu.Lock()
				defer r.points.mu.Unlock()
				return r.points.last.index == 5
			})
			for _, q := range c.before {
				say(t, client, comQuery, q)
			}
			from.mu.Lock()
			from.hang = c.last
			from.mu.Unlock()
			if err := client.WriteCommand(comQuery, []byte(c.last)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), c.last) })
			r.SetView(View{RW: to.target("2")})
			if got := hear(t, client); got != 3168 && got != 1053 {
				t.Errorf("answer %d", got)
			}
			want := []api.OutcomeQuery{{Node: "n-1", Epoch: "1", Thread: 7, Index: 5, Sole: c.sole}}
			if !slices.Equal(o.asked, want) {
				t.Errorf("asked %+v, want %+v", o.asked, want)
			}
		})
	}
}
