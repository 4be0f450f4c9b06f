package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/rivals"
	"trireme/lab/wan"
)

const (
	catchUpLimit = 5 * time.Minute
	catchUpPoll  = 10 * time.Millisecond
)

// HostUse is what a host spent per transaction of a load, until everything was applied.
type HostUse struct {
	Name           string  `json:"name"`
	Leader         bool    `json:"leader,omitempty"`
	MySQLus        float64 `json:"mysql_us"` // CPU, microseconds
	Daemonus       float64 `json:"daemon_us,omitempty"`
	Extraus        float64 `json:"extra_us,omitempty"`
	WrittenBytes   float64 `json:"written_bytes"`                  // to block devices
	DaemonWritten  float64 `json:"daemon_written_bytes,omitempty"` // of them
	DaemonSwitches float64 `json:"daemon_switches,omitempty"`      // context switches of its threads
	SentBytes      float64 `json:"sent_bytes"`                     // to other hosts; 0 without emulated ones
	// percent of the time in which the host had work and had used its CPU budget up
	Throttled     float64 `json:"throttled,omitempty"`
	DaemonRSS     int64   `json:"daemon_rss,omitempty"`
	DaemonPeakRSS int64   `json:"daemon_peak_rss,omitempty"`
}

// loader is a load generator, in a process of its own.
type loader interface {
	// run loads the servers for d with n threads.
	run(ctx context.Context, targets []rivals.Target, threads int, d time.Duration) (LoadResult, error)
}

// throughput measures one load: warm-up, everything applied, sample, load, lag left, everything applied, sample. See
// the package comment.
func throughput(ctx context.Context, b *Bed, load loader, via rivals.Via, threads int) (Record, error) {
	var rec Record
	if err := b.Settle(ctx); err != nil {
		return rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	targets, err := b.Targets(via)
	if err != nil {
		return rec, err
	}
	if err := warmUp(ctx, b, load, targets, threads); err != nil {
		return rec, err
	}
	if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
		return rec, err
	}
	hosts := b.Hosts()
	before, err := usesOf(hosts)
	if err != nil {
		return rec, err
	}
	network := networkCPU(b)
	r, err := load.run(ctx, targets, threads, time.Duration(b.Settings.Seconds)*time.Second)
	if err != nil {
		return rec, err
	}
	backlog, err := b.Backlog(ctx)
	if err != nil {
		return rec, err
	}
	rest, err := caughtUp(ctx, b, catchUpLimit)
	if err != nil {
		return rec, err
	}
	after, err := usesOf(hosts)
	if err != nil {
		return rec, err
	}
	n := float64(r.Transactions)
	client := float64(r.CPU.Microseconds()) / n
	rec.Values = r.values()
	rec.Values[valSustained], rec.Values[valQPS] = n/(r.Seconds+rest.Seconds()), float64(r.Queries)/r.Seconds
	rec.Values[valNotApplied], rec.Values[valCatchUp], rec.Values[valClientUS] = float64(backlog), rest.Seconds(), client
	if b.Network() != nil {
		rec.Values[valNetworkUS] = float64((networkCPU(b) - network).Microseconds()) / n
	}
	rec.Series = map[string][]float64{valTPS: r.TPS}
	rec.Hosts = perTransaction(hosts, before, after, n)
	err = addHosts(&rec, hosts, client)
	return rec, err
}

// warmUp runs the load for the time of the settings' warm-up.
func warmUp(ctx context.Context, b *Bed, load loader, targets []rivals.Target, threads int) error {
	d := time.Duration(b.Settings.WarmupSeconds) * time.Second
	if d == 0 { // to sysbench no time is without end
		return nil
	}
	if _, err := load.run(ctx, targets, threads, d); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	return nil
}

// values are a load's own figures.
func (r LoadResult) values() map[string]float64 {
	return map[string]float64{valTPS: float64(r.Transactions) / r.Seconds, valAverage: milliseconds(r.Average),
		valP95: milliseconds(r.P95), valP99: milliseconds(r.P99), valErrors: float64(r.Errors),
		valVariation: variation(r.TPS)}
}

// addHosts sums up what the hosts spent.
func addHosts(rec *Record, hosts []rivals.HostParts, client float64) error {
	var all, leader, written, sent, rss, rssOther float64
	for i, h := range hosts {
		u := &rec.Hosts[i]
		us := u.MySQLus + u.Daemonus + u.Extraus
		all, written, sent = all+us, written+u.WrittenBytes, sent+u.SentBytes
		if h.Budget != nil && h.Leader {
			rec.Values[valThrottled] = u.Throttled
		}
		if h.Daemon != 0 {
			var err error
			if u.DaemonRSS, u.DaemonPeakRSS, err = resident(h.Daemon); err != nil {
				return err
			}
		}
		mib := float64(u.DaemonPeakRSS) / (1 << 20)
		if h.Leader {
			leader, rss = us, mib
		} else {
			rssOther = max(rssOther, mib)
		}
	}
	v := rec.Values
	v[valCPUAllUS], v[valCPUAll], v[valCPULeader], v[valWritten], v[valSent] = all, all/client, leader/client, written,
		sent
	if rss > 0 {
		v[valDaemonRSS], v[valDaemonRSS2] = rss, rssOther
	}
	return nil
}

// caughtUp waits until every server has applied everything, and returns how long that took. Writers must have stopped.
func caughtUp(ctx context.Context, r rivals.Running, limit time.Duration) (time.Duration, error) {
	begin := time.Now()
	for {
		n, err := r.Backlog(ctx)
		took := time.Since(begin)
		if err != nil || n == 0 {
			return took, err
		}
		if took > limit {
			return 0, fmt.Errorf("%w: %d transactions are not applied after %v", errBroken, n, limit)
		}
		if err := poll.Pause(ctx, catchUpPoll); err != nil {
			return 0, err
		}
	}
}

// variation is the coefficient of variation in percent. The first and the last second are left out where there are more
// than four: they are not whole.
func variation(series []float64) float64 {
	if len(series) > 4 {
		series = series[1 : len(series)-1]
	}
	var sum, squares float64
	for _, v := range series {
		sum += v
	}
	mean := sum / float64(len(series))
	if len(series) < 2 || mean == 0 {
		return 0
	}
	for _, v := range series {
		squares += (v - mean) * (v - mean)
	}
	return 100 * math.Sqrt(squares/float64(len(series)-1)) / mean
}

// use is what a host has spent so far.
type use struct {
	mysql, daemon, extra time.Duration
	written, sent        int64
	daemonWritten        int64
	daemonSwitches       int64
	budget               wan.BudgetStats
}

func usesOf(hosts []rivals.HostParts) ([]use, error) {
	out := make([]use, len(hosts))
	for i, h := range hosts {
		u, err := useOf(h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		out[i] = u
	}
	return out, nil
}

func useOf(h rivals.HostParts) (u use, err error) {
	add := func(pid int, to *time.Duration) error {
		if pid == 0 {
			return nil
		}
		d, err := cpuTime(pid)
		*to += d
		return err
	}
	err = errors.Join(add(h.MySQL, &u.mysql), add(h.Daemon, &u.daemon))
	for _, pid := range h.Extra {
		err = errors.Join(err, add(pid, &u.extra))
	}
	pids := h.Pids()
	if err != nil || len(pids) == 0 {
		return u, err
	}
	for _, pid := range pids {
		n, err := writtenBy(pid)
		if err != nil {
			return u, err
		}
		u.written += n
		if pid == h.Daemon {
			u.daemonWritten = n
			if u.daemonSwitches, err = switchesOf(pid); err != nil {
				return u, err
			}
		}
	}
	if u.sent, err = sentFrom(pids[0]); err != nil || h.Budget == nil {
		return u, err
	}
	u.budget, err = h.Budget.Stats()
	return u, err
}

// writtenBy is what a process had written to block devices: write_bytes of /proc/<pid>/io (proc(5)).
func writtenBy(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errors.New("/proc io has no write_bytes")
}

// sentFrom is what the process's emulated host has sent to others: bytes of its device "wan0" in /proc/<pid>/net/dev,
// of which field 9 are those transmitted. Without such a device it is 0.
func sentFrom(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if f := strings.Fields(rest); name == "wan0" && len(f) >= 9 {
			return strconv.ParseInt(f[8], 10, 64)
		}
	}
	return 0, nil
}

func perTransaction(hosts []rivals.HostParts, before, after []use, n float64) []HostUse {
	var out []HostUse
	us := func(a, b time.Duration) float64 { return float64((b - a).Microseconds()) / n }
	for i, h := range hosts {
		b, a := before[i], after[i]
		out = append(out, HostUse{Name: h.Name, Leader: h.Leader, MySQLus: us(b.mysql, a.mysql),
			Daemonus: us(b.daemon, a.daemon), Extraus: us(b.extra, a.extra), WrittenBytes: float64(a.written-b.written) / n,
			DaemonWritten:  float64(a.daemonWritten-b.daemonWritten) / n,
			DaemonSwitches: float64(a.daemonSwitches-b.daemonSwitches) / n, SentBytes: float64(a.sent-b.sent) / n,
			Throttled: throttled(b.budget, a.budget)})
	}
	return out
}

// throttled is the share of periods in which a host had to wait for the next one, in percent.
func throttled(before, after wan.BudgetStats) float64 {
	if after.Periods == before.Periods {
		return 0
	}
	return 100 * float64(after.Throttled-before.Throttled) / float64(after.Periods-before.Periods)
}

// networkCPU is what the process that carries packets has used.
func networkCPU(b *Bed) time.Duration {
	if b.Network() == nil {
		return 0
	}
	return b.Network().Stats().CPU
}
