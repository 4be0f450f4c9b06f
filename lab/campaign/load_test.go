package campaign

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/lab/rivals"
)

// TestLoad: shares of pressure and of stolen time between two times, from what the kernel counts.
func TestLoad(t *testing.T) {
	zero := time.Unix(1000, 0)
	sample := func(second int, psi, stat string) loadSample {
		return parseLoad(zero.Add(time.Duration(second)*time.Second), psi, stat)
	}
	l := &loads{}
	if got := l.between(zero, zero.Add(time.Second)); got.known || got.starved() {
		t.Errorf("%v without a sample", got)
	}
	l.add(sample(0, "some avg10=1.0 avg60=1.0 avg300=1.0 total=1000000\nfull avg10=0.0 total=9\n",
		"cpu  100 0 0 100 0 0 0 0 50 0\ncpu0 1 2\n"))
	l.add(sample(10, "some avg10=1.0 avg60=1.0 avg300=1.0 total=6000000\n", "cpu  900 100 200 600 0 0 0 400 50 0\n"))
	l.add(sample(20, "some avg10=1.0 avg60=1.0 avg300=1.0 total=15000000\n", "cpu  1900 100 200 1600 0 0 0 400 50 0\n"))
	for _, c := range []struct {
		from, to        int
		pressure, steal float64
		starved         bool
	}{
		{0, 9, 0.5, 0.2, true}, {10, 19, 0.9, 0, true}, {0, 19, 0.7, 0.1, false},
	} {
		got := l.between(zero.Add(time.Duration(c.from)*time.Second), zero.Add(time.Duration(c.to)*time.Second))
		if !got.known || math.Abs(got.pressure-c.pressure) > 0.001 || math.Abs(got.steal-c.steal) > 0.01 ||
			got.starved() != c.starved {
			t.Errorf("from %d to %d: %v, want %+v", c.from, c.to, got, c)
		}
	}
}

// TestWaitsLookAtTheLoad: a wait that ends without what was promised breaks the promise on a machine that had CPU to
// spare. On one that had none it is counted, said and made again, and nothing is shown by a machine that never has any.
func TestWaitsLookAtTheLoad(t *testing.T) {
	for _, c := range []struct {
		name     string
		pressure float64
		good     int // the wait that ends well
		unjudged int
		wrong    error
	}{
		{"a machine with CPU to spare", 0.3, 2, 0, errViolated},
		{"one without", 0.99, 3, 2, nil},
		{"one that never has any", 0.99, mostUnjudged + 1, mostUnjudged, errUnjudged},
	} {
		script, err := os.Create(filepath.Join(t.TempDir(), "transcript.txt"))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		b := batch{campaign: &campaign{load: &loads{}, script: script, began: now}}
		b.load.add(loadSample{at: now.Add(-time.Second), ticks: rivals.Ticks{All: 1}})
		later := loadSample{at: now.Add(time.Hour), ticks: rivals.Ticks{All: 1000}}
		later.waited = time.Duration(c.pressure * float64(later.at.Sub(now)))
		b.load.add(later)
		waits, before := 0, context.Context(nil)
		err = b.within(t.Context(), 5*time.Millisecond, errViolated, "no node took over", func(ctx context.Context) error {
			if ctx != before {
				waits, before = waits+1, ctx
			}
			if waits >= c.good {
				return nil
			}
			return errors.New("n1 leads term 1")
		})
		if !errors.Is(err, c.wrong) || b.counts.Unjudged != c.unjudged {
			t.Errorf("%s: %v, %d not judged", c.name, err, b.counts.Unjudged)
		}
		if c.wrong == errUnjudged && errors.Is(err, errViolated) {
			t.Errorf("%s: %v", c.name, err)
		}
		text, err := os.ReadFile(script.Name())
		if err != nil || strings.Count(string(text), "not judged: no node took over") != c.unjudged {
			t.Errorf("%s: the transcript says %q: %v", c.name, text, err)
		}
		script.Close()
	}
}
