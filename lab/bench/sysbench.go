package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trireme/lab/rivals"
	"trireme/lab/wan"
)

// ErrNoSysbench: the load generator is not installed.
var ErrNoSysbench = errors.New("sysbench is not installed; install it with: apt-get install sysbench (or your system's package manager)")

// workloads of sysbench.
var workloads = []string{"oltp_read_only", "oltp_read_write", "oltp_write_only", "oltp_point_select",
	"oltp_update_index", "oltp_update_non_index", "oltp_insert"}

// Load is a load by sysbench.
type Load struct {
	Workload string
	Tables   int
	Rows     int // of each table
	// TPS limits the load, transactions per second; 0: as fast as they come.
	TPS int
	// Transactions end the load before its time; 0: they do not.
	Transactions int
}

// ignoredErrors are of transactions that clients try again: deadlock (1213), row changed (1020), lock wait (1205), and
// what Group Replication says of a certification that failed (3101, 1180).
const ignoredErrors = "1213,1020,1205,3101,1180"

// args of sysbench for the targets, which must have one port: it takes several hosts, but not several ports.
func (l Load) args(targets []rivals.Target) ([]string, error) {
	var hosts []string
	for _, t := range targets {
		if t.Port != targets[0].Port {
			return nil, fmt.Errorf("%w: sysbench cannot use servers with different ports at once; run it on emulated hosts",
				rivals.ErrNotHere)
		}
		hosts = append(hosts, t.Host)
	}
	t := targets[0]
	return []string{l.Workload, "--db-driver=mysql", "--mysql-host=" + strings.Join(hosts, ","), "--mysql-port=" +
		strconv.Itoa(t.Port), "--mysql-user=" + t.User,
		"--mysql-password=" + t.Password, "--mysql-db=" + rivals.Database, fmt.Sprintf("--tables=%d", l.Tables),
		"--mysql-ignore-errors=" + ignoredErrors, fmt.Sprintf("--table-size=%d", l.Rows), "--rand-type=uniform",
		"--db-ps-mode=disable", "--auto-inc=off"}, nil
}

// LoadResult is one run of a load generator.
type LoadResult struct {
	Transactions int64 // committed
	Queries      int64
	Seconds      float64       // of the run itself
	Errors       int64         // ignored ones
	Average      time.Duration // latency of a transaction
	P95, P99     time.Duration
	TPS          []float64     // in each second
	CPU          time.Duration // that the load generator itself used
}

func lookSysbench() error {
	if _, err := exec.LookPath("sysbench"); err != nil {
		return ErrNoSysbench
	}
	return nil
}

// prepare makes and fills the tables. The database must exist.
func (l Load) prepare(ctx context.Context, targets []rivals.Target) error {
	args, err := l.args(targets[:1])
	if err != nil {
		return err
	}
	_, _, err = runSysbench(ctx, targets[0].From, append(args, "--threads=2", "prepare")...)
	return err
}

// run loads the servers for d with n threads.
func (l Load) run(ctx context.Context, targets []rivals.Target, threads int, d time.Duration) (LoadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	args, err := l.args(targets)
	if err != nil {
		return LoadResult{}, err
	}
	args = append(args, fmt.Sprintf("--threads=%d", threads), fmt.Sprintf("--time=%d", int(d.Seconds())), "--histogram=on",
		"--report-interval=1")
	if l.TPS > 0 {
		args = append(args, fmt.Sprintf("--rate=%d", l.TPS))
	}
	if l.Transactions > 0 {
		args = append(args, fmt.Sprintf("--events=%d", l.Transactions))
	}
	out, cpu, err := runSysbench(ctx, targets[0].From, append(args, "run")...)
	if err != nil {
		return LoadResult{}, err
	}
	r, err := parseSysbench(out)
	r.CPU = cpu
	return r, err
}

// runSysbench runs it on a host, nil for this machine, in a session of its own and returns its output and CPU time.
func runSysbench(ctx context.Context, from *wan.Host, args ...string) (string, time.Duration, error) {
	var out bytes.Buffer
	cpu, err := sysbenchTo(ctx, &out, from, args...)
	if err != nil {
		return "", 0, fmt.Errorf("sysbench %s: %w: %s", args[len(args)-1], err, tail(out.String(), 5))
	}
	return out.String(), cpu, nil
}

// sysbenchTo is runSysbench with its output to a writer as it comes.
func sysbenchTo(ctx context.Context, out io.Writer, from *wan.Host, args ...string) (cpu time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "sysbench", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = out, out
	err = wan.OnThread(func() error { // which lives as long as its child: Pdeathsig comes at the end of the thread
		if from != nil {
			if err := from.Enter(); err != nil {
				return err
			}
		}
		err := cmd.Run()
		if cmd.ProcessState != nil {
			cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		return err
	})
	return cpu, err
}

// secondTPS is the TPS of the second that ended at a moment.
type secondTPS struct {
	end time.Time
	tps float64
}

// secondsOf reads sysbench's output as it comes, and notes when each second's line came.
type secondsOf struct {
	line    []byte
	seconds []secondTPS
	said    bytes.Buffer
}

func (w *secondsOf) Write(b []byte) (int, error) {
	w.said.Write(b)
	for _, c := range b {
		if c != '\n' {
			w.line = append(w.line, c)
			continue
		}
		if m := reInterval.FindSubmatch(w.line); m != nil {
			v, _ := strconv.ParseFloat(string(m[1]), 64) // the expression holds
			w.seconds = append(w.seconds, secondTPS{time.Now(), v})
		}
		w.line = w.line[:0]
	}
	return len(b), nil
}

// longestLoad exceeds the time of anything that is measured under load.
const longestLoad = time.Hour

// during loads the servers with n threads for as long as f takes, and returns the TPS of each second.
func (l Load) during(ctx context.Context, targets []rivals.Target, threads int,
	f func(context.Context) error) ([]secondTPS, error) {
	args, err := l.args(targets)
	if err != nil {
		return nil, err
	}
	args = append(args, fmt.Sprintf("--threads=%d", threads), fmt.Sprintf("--time=%d", int(longestLoad.Seconds())),
		"--report-interval=1", "run")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var out secondsOf
	ended := make(chan error, 1)
	go func() {
		_, err := sysbenchTo(ctx, &out, targets[0].From, args...)
		if ctx.Err() == nil { // it is not we who have ended it
			if err == nil {
				err = errors.New("too early")
			}
			err = fmt.Errorf("sysbench has ended: %w: %s", err, tail(out.said.String(), 5))
			cancel(err)
		}
		ended <- err
	}()
	err = f(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	<-ended
	return out.seconds, err
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}

var (
	reTransactions = regexp.MustCompile(`transactions:\s+(\d+)`)
	reQueries      = regexp.MustCompile(`queries:\s+(\d+)`)
	reSeconds      = regexp.MustCompile(`total time:\s+([\d.]+)s`)
	reErrors       = regexp.MustCompile(`ignored errors:\s+(\d+)`)
	reAverage      = regexp.MustCompile(`avg:\s+([\d.]+)`)
	reBucket       = regexp.MustCompile(`^\s*([\d.]+)\s+\|.*\s(\d+)$`) // 12.345 |******* 678
	reInterval     = regexp.MustCompile(`^\[ \d+s \].* tps: ([\d.]+)`)
)

// parseSysbench reads the report of sysbench 1.0 with its histogram.
func parseSysbench(out string) (LoadResult, error) {
	var r LoadResult
	var vals [5]float64
	for i, re := range []*regexp.Regexp{reTransactions, reQueries, reSeconds, reErrors, reAverage} {
		m := re.FindStringSubmatch(out)
		if m == nil {
			return r, fmt.Errorf("sysbench's report has no %q: %s", re, tail(out, 5))
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return r, err
		}
		vals[i] = v
	}
	r.Transactions, r.Queries, r.Seconds, r.Errors, r.Average = int64(vals[0]), int64(vals[1]), vals[2], int64(vals[3]),
		duration(vals[4])
	if r.Transactions == 0 || r.Seconds == 0 {
		return r, fmt.Errorf("sysbench committed nothing: %s", tail(out, 5))
	}
	var buckets []bucket
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		if m := reInterval.FindStringSubmatch(lines.Text()); m != nil {
			v, _ := strconv.ParseFloat(m[1], 64) // the expression holds
			r.TPS = append(r.TPS, v)
		} else if m := reBucket.FindStringSubmatch(lines.Text()); m != nil {
			ms, _ := strconv.ParseFloat(m[1], 64)
			n, _ := strconv.ParseInt(m[2], 10, 64)
			buckets = append(buckets, bucket{ms, n})
		}
	}
	if len(buckets) == 0 {
		return r, fmt.Errorf("sysbench's report has no histogram: %s", tail(out, 5))
	}
	r.P95, r.P99 = percentile(buckets, 0.95), percentile(buckets, 0.99)
	return r, nil
}

func duration(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

// bucket of a histogram: so many transactions took about this long.
type bucket struct {
	ms float64
	n  int64
}

// percentile q of a histogram in the order of its latencies.
func percentile(buckets []bucket, q float64) time.Duration {
	var total, seen int64
	for _, b := range buckets {
		total += b.n
	}
	for _, b := range buckets {
		if seen += b.n; float64(seen) >= q*float64(total) {
			return duration(b.ms)
		}
	}
	return 0
}
