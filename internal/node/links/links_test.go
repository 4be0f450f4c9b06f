package links

import (
	"errors"
	"strings"
	"testing"
	"time"

	"trireme/internal/core/transport"
)

// A link is called slow when its round trips endanger elections, and good only when they are well below that.
func TestLinkSlow(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		p99     time.Duration
		samples int
		was     bool
		want    bool
	}{
		{p99: 10 * time.Millisecond, samples: 240},
		{p99: 333 * time.Millisecond, samples: 240},
		{p99: 334 * time.Millisecond, samples: 240, want: true},
		{p99: 900 * time.Millisecond, samples: minSamples - 1},
		{p99: 300 * time.Millisecond, samples: 240, was: true, want: true},
		{p99: 250 * time.Millisecond, samples: 240, was: true},
	} {
		if got := isSlow(transport.RTT{Samples: c.samples, P99: c.p99}, timeout, c.was); got != c.want {
			t.Errorf("%v of %d pings, before %v: %v", c.p99, c.samples, c.was, got)
		}
	}
	for rtt, want := range map[time.Duration]time.Duration{
		334 * time.Millisecond: 1100 * time.Millisecond, 400 * time.Millisecond: 1200 * time.Millisecond,
		time.Second: 3 * time.Second,
	} {
		if got := timeoutFor(rtt); got != want || isSlow(transport.RTT{Samples: 240, P99: rtt}, got, false) {
			t.Errorf("a round trip of %v asks for %v, want %v", rtt, got, want)
		}
	}
}

func TestTimeoutsDiffer(t *testing.T) {
	got := timeoutsDiffer(time.Second, map[string]time.Duration{"n2": time.Second, "n3": 3 * time.Second})
	if len(got) != 1 || !strings.Contains(got[0], "is 1000 here and 3000 on n3") {
		t.Errorf("%q", got)
	}
}

// TestTroubleText: each address that was tried is told with its reason, in the same order each time.
func TestTroubleText(t *testing.T) {
	a := transport.Attempt{Address: "10.0.0.2:7306", Err: errors.New("dial tcp 10.0.0.2:7306: connection refused")}
	b := transport.Attempt{Address: "10.0.0.9:7306", Err: errors.New("no answer in time")}
	for _, tried := range [][]transport.Attempt{{a, b}, {b, a}} {
		if at, why := troubleText(tried); at != a.Address ||
			why != "connection refused; at 10.0.0.9:7306: no answer in time" {
			t.Errorf("%q: %q", at, why)
		}
	}
}
