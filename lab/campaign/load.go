package campaign

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/rivals"
)

// loadSample is what the kernel had counted at one time.
type loadSample struct {
	at     time.Time
	waited time.Duration // time in which some task waited for a CPU (PSI)
	ticks  rivals.Ticks
}

// load of the machine over some time, as shares.
type load struct {
	pressure, steal float64
	known           bool
}

func (l load) String() string {
	if !l.known {
		return "the machine's load is not known"
	}
	return fmt.Sprintf("tasks waited for a CPU %.0f %% of the time, %.0f %% of the CPU time was stolen",
		100*l.pressure, 100*l.steal)
}

// Without writes the clients wait, so CPUs have little to do unless others keep them busy.
const (
	mostPressure = 0.8
	mostSteal    = 0.2
)

// starved says that the lack of CPU may be why nothing went on.
func (l load) starved() bool { return l.known && (l.pressure >= mostPressure || l.steal >= mostSteal) }

// loads are samples of the last minutes.
type loads struct {
	mu   sync.Mutex
	list []loadSample
}

const (
	loadEvery = 250 * time.Millisecond
	loadKept  = 4096 // 17 minutes
)

// watchLoad takes samples until ctx ends. Kernels without PSI tell no pressure.
func watchLoad(ctx context.Context) *loads {
	l := &loads{}
	go func() {
		for ctx.Err() == nil {
			psi, _ := os.ReadFile("/proc/pressure/cpu")
			stat, err := os.ReadFile("/proc/stat")
			if err == nil {
				l.add(parseLoad(time.Now(), string(psi), string(stat)))
			}
			_ = poll.Pause(ctx, loadEvery)
		}
	}()
	return l
}

func (l *loads) add(s loadSample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= loadKept {
		l.list = append(l.list[:0], l.list[loadKept/2:]...)
	}
	l.list = append(l.list, s)
}

// parseLoad reads the kernel's files.
func parseLoad(at time.Time, psi, stat string) loadSample {
	s := loadSample{at: at, ticks: rivals.ParseTicks(stat)}
	for _, f := range strings.Fields(strings.SplitN(psi, "\n", 2)[0]) {
		if text, ok := strings.CutPrefix(f, "total="); ok {
			us, _ := strconv.ParseInt(text, 10, 64)
			s.waited = time.Duration(us) * time.Microsecond
		}
	}
	return s
}

// between two times; it is not known where there are no samples of them.
func (l *loads) between(from, to time.Time) load {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, last loadSample
	for _, s := range l.list {
		if !s.at.After(from) || first.at.IsZero() {
			first = s
		}
		if last = s; s.at.After(to) {
			break
		}
	}
	if !last.at.After(first.at) || last.ticks.All <= first.ticks.All {
		return load{}
	}
	return load{
		pressure: float64(last.waited-first.waited) / float64(last.at.Sub(first.at)),
		steal:    last.ticks.Stolen(first.ticks) / 100,
		known:    true,
	}
}
