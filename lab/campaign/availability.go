package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/verify"
)

// hurt is a fault on the timeline: whom it keeps from working, from when to when, and how long writes may stop
// for it while a majority is whole.
type hurt struct {
	what  string
	hosts []string // none: everybody can work
	from  time.Time
	to    time.Time // zero: it goes on
	limit time.Duration
	copy  bool // it lasts until the hosts have copied another's data
}

func (h hurt) lasts(from, to time.Time) bool {
	return h.from.Before(to) && (h.to.IsZero() || h.to.After(from))
}

// stall is a time without an acknowledged write that nothing excuses: a majority of the voters was whole and
// connected, one with data among them.
type stall struct {
	from, to time.Time
	limit    time.Duration
	whole    []string
	faults   []string // that lasted then, or had ended last
}

func (s stall) String() string {
	return fmt.Sprintf("no write was acknowledged for %v, %v are allowed, although %s were whole: %s",
		s.to.Sub(s.from).Round(10*time.Millisecond),
		s.limit, strings.Join(s.whole, ", "), strings.Join(s.faults, " + "))
}

// quietLimit is how long writes may stop where no fault is, or was.
const quietLimit = 5 * time.Second

// stalls judges the times without an acknowledgement by the timeline of faults. Each beginning and each end of a
// fault gives the system its time again: the longest that is allowed for what lasts then, or for what ended
// last. Where no majority is whole nothing is demanded.
func stalls(voters, data []string, hurts []hurt, gaps []verify.Gap) (out []stall) {
	for _, g := range gaps {
		cuts := []time.Time{g.From, g.To}
		for _, h := range hurts {
			for _, t := range []time.Time{h.from, h.to} {
				if t.After(g.From) && t.Before(g.To) {
					cuts = append(cuts, t)
				}
			}
		}
		slices.SortFunc(cuts, time.Time.Compare)
		for i := range cuts[1:] {
			if s := piece(voters, data, hurts, cuts[i], cuts[i+1]); s.to.Sub(s.from) > s.limit {
				out = append(out, s)
			}
		}
	}
	return out
}

// piece of a gap in which no fault begins or ends. Its limit is endless if nothing is demanded.
func piece(voters, data []string, hurts []hurt, from, to time.Time) stall {
	s := stall{from: from, to: to, whole: slices.Clone(voters)}
	var last time.Time
	for _, h := range hurts {
		if h.lasts(from, to) {
			s.whole = slices.DeleteFunc(s.whole, func(v string) bool { return slices.Contains(h.hosts, v) })
			s.faults, s.limit = append(s.faults, h.what), max(s.limit, h.limit)
		} else if !h.to.After(from) && h.to.After(last) {
			last = h.to
		}
	}
	for _, h := range hurts {
		if !last.IsZero() && h.to.Equal(last) && len(s.faults) == 0 {
			s.limit = max(s.limit, h.limit)
		}
	}
	if len(s.faults) == 0 {
		s.faults = []string{"no fault"}
	}
	s.limit = max(s.limit, quietLimit)
	hasData := slices.ContainsFunc(s.whole, func(v string) bool { return slices.Contains(data, v) })
	if 2*len(s.whole) <= len(voters) || !hasData {
		s.limit = to.Sub(from)
	}
	return s
}

// mendLimit is how long a host counts as not whole after a fault, unless it is seen healthy before.
const mendLimit = time.Minute

// hurts of a fault: while it lasts, and while those that it hit recover.
func (st *strike) hurts() []hurt {
	k := kindOf(st.fault.Kind)
	h := hurt{what: fmt.Sprint(st.fault), hosts: st.hosts, from: st.at, to: st.over(), limit: k.limit(st.whom)}
	if st.fault.Kind == Switchover { // they go on
		h.hosts = nil
		return []hurt{h}
	}
	out := []hurt{h, {what: "recovery from " + h.what, hosts: h.hosts, from: h.to, limit: h.limit,
		copy: st.fault.Kind == Reseed || st.fault.Kind == Replace}}
	if st.fault.Kind == DiskFull && st.whom == Leader { // it looks healthy then
		out = append(out, hurt{what: "sleep of mysqld after " + h.what, from: h.to, to: h.to.Add(spaceSleep), limit: h.limit})
	}
	return out
}

// spaceSleep is for how long a commit sleeps in mysqld that met a full disk (docs/mysql.md).
const spaceSleep = time.Minute

// mended ends recoveries: of hosts that are healthy, and those that have lasted too long.
func (b *batch) mended(ctx context.Context) {
	now := time.Now()
	healthy := map[string]bool{}
	for i := range b.hurts {
		h := &b.hurts[i]
		if !h.to.IsZero() {
			continue
		}
		well := true
		for _, host := range h.hosts {
			if _, asked := healthy[host]; !asked {
				healthy[host] = b.isHealthy(ctx, host)
			}
			well = well && healthy[host]
		}
		if well || h.overdue(b.hurts, now) {
			h.to = now
		}
	}
	b.hurts = slices.DeleteFunc(b.hurts, func(h hurt) bool { return !h.to.IsZero() && now.Sub(h.to) > 2*mendLimit })
}

// overdue says whether a recovery has lasted too long to count. A copy begins again when its donor is hit, and so does
// its time, at the end of each other fault.
func (h *hurt) overdue(hurts []hurt, now time.Time) bool {
	since := h.from
	for _, other := range hurts {
		if h.copy && other.to.After(since) {
			since = other.to
		}
	}
	return now.Sub(since) > mendLimit
}

// ready waits until all nodes are healthy, or not forever: then a majority may not be whole, and nothing is demanded.
func (b *batch) ready(ctx context.Context) {
	for end := time.Now().Add(quietAfter); time.Now().Before(end); _ = poll.Pause(ctx, looks) {
		if !slices.ContainsFunc(b.sys.all, func(h string) bool { return !b.isHealthy(ctx, h) }) {
			return
		}
	}
}

// available judges the times without an acknowledged write since the first fault of a step. What a machine
// without CPU explains is not judged.
func (b *batch) available(strikes []*strike) error {
	if len(strikes) == 0 || !b.ours() {
		return nil
	}
	from := strikes[0].at
	for _, st := range strikes {
		b.hurts = append(b.hurts, st.hurts()...)
		if st.err == nil && b.demanded(st) {
			b.counts.Demanded++
		}
	}
	var wrong []string
	for _, s := range stalls(b.sys.voters(), b.sys.Names(), b.hurts, b.w.Meter().Gaps(from, quietLimit)) {
		l := b.load.between(s.from, s.to)
		fmt.Fprintf(b.script, "%s %v; %v\n", b.clock(), s, l)
		if l.starved() {
			b.counts.Unjudged++
			b.keepLong(s)
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%v (%v)", s, l))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", errViolated, strings.Join(wrong, "; "))
	}
	return nil
}

// A stall of longStall is hardly the machine's doing alone: what the nodes say of it is kept even though it is not
// judged, of the first mostLong ones.
const (
	longStall = 30 * time.Second
	mostLong  = 3
)

func (b *batch) keepLong(s stall) {
	if s.to.Sub(s.from) < longStall || b.long == mostLong {
		return
	}
	b.long++
	b.say("Not judged: %v", s)
	b.keep(b.sys, fmt.Sprintf("stall%d", b.long))
}

// demanded reports whether writes had to go on during a fault, in its last moment.
func (b *batch) demanded(st *strike) bool {
	end := st.over()
	s := piece(b.sys.voters(), b.sys.Names(), b.hurts, end.Add(-time.Millisecond), end)
	return st.fault.demands() && s.limit > time.Millisecond
}

// voters of the system: all hosts, learners left out.
func (s system) voters() []string {
	return slices.DeleteFunc(slices.Clone(s.all), func(h string) bool { return slices.Contains(s.learners, h) })
}
