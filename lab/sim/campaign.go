package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// CampaignOptions say which seeds Campaign runs.
type CampaignOptions struct {
	From  uint64 // first seed
	Seeds int    // how many
	Jobs  int    // how many at once; 0: one
	// Options are the same for every seed.
	Options Options
	// MaxFailures ends the campaign once that many seeds have failed; 0: after the first ten.
	MaxFailures int
	// Progress, if set, is called now and then with the totals so far, on any goroutine, one call at a time.
	Progress func(Totals)
}

// Totals is what a campaign has come to.
type Totals struct {
	Seeds     int           // that were run to their end
	Simulated time.Duration // together
	Took      time.Duration
	Counts    Counts
	Failures  []Failure // by seed, as they were found
}

// Failure is a seed that broke a promise.
type Failure struct {
	Seed  uint64
	Rule  string
	Text  string
	Trace string // of the smallest schedule that was found to break the same rule
}

// ErrFailed: a campaign has found a broken promise.
var ErrFailed = errors.New("simulation: a promise was broken")

// Campaign runs seeds From, From+1, ... The error is ErrFailed if any fails, or ctx's; Totals holds what was found
// either way.
func Campaign(ctx context.Context, o CampaignOptions) (Totals, error) {
	c := campaign{o: o, began: time.Now(), total: Totals{Counts: Counts{}}}
	if c.o.MaxFailures == 0 {
		c.o.MaxFailures = 10
	}
	c.next = o.From
	var wg sync.WaitGroup
	for range max(1, o.Jobs) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for c.one(ctx) {
			}
		}()
	}
	wg.Wait()
	c.total.Took = time.Since(c.began)
	if len(c.total.Failures) > 0 {
		f := c.total.Failures[0]
		return c.total, fmt.Errorf("%w: %d of %d seeds; seed %d: %s: %s", ErrFailed, len(c.total.Failures), c.total.Seeds,
			f.Seed, f.Rule, f.Text)
	}
	return c.total, ctx.Err()
}

type campaign struct {
	o     CampaignOptions
	began time.Time

	mu    sync.Mutex
	next  uint64
	told  time.Time
	total Totals
}

// take hands out the next seed.
func (c *campaign) take() (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next-c.o.From >= uint64(c.o.Seeds) || len(c.total.Failures) >= c.o.MaxFailures {
		return 0, false
	}
	c.next++
	return c.next - 1, true
}

func (c *campaign) one(ctx context.Context) bool {
	seed, ok := c.take()
	if !ok {
		return false
	}
	r, err := Run(ctx, seed, c.o.Options)
	if err != nil {
		return false
	}
	var failure *Failure
	if r.Violation != nil {
		small := Shrink(ctx, seed, c.o.Options)
		failure = &Failure{Seed: seed, Rule: r.Violation.Rule, Text: r.Violation.Text, Trace: small}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.Seeds++
	c.total.Simulated += r.Simulated
	c.total.Counts.Add(r.Counts)
	if failure != nil {
		c.total.Failures = append(c.total.Failures, *failure)
	}
	if c.o.Progress != nil && time.Since(c.told) > time.Second {
		c.told = time.Now()
		t := c.total
		t.Took = time.Since(c.began)
		t.Counts = Counts{}
		t.Counts.Add(c.total.Counts)
		c.o.Progress(t)
	}
	return true
}
