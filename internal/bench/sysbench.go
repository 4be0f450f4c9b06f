package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoSysbench: the load generator is not installed.
var ErrNoSysbench = errors.New("sysbench is not installed; install it with: apt-get install sysbench (or your system's package manager)")

// Load is the sysbench load of a comparison.
type Load struct {
	Test      string // oltp_write_only
	Tables    int
	TableSize int // rows
}

// defaultLoad are the settings that every figure of docs/benchmarks uses unless it says otherwise.
var defaultLoad = Load{Test: "oltp_write_only", Tables: 8, TableSize: 20000}

// account is how sysbench logs in.
type account struct {
	Host           string
	Port           int
	User, Password string
}

const benchDatabase = "sbtest"

func (l Load) args(a account) []string {
	return []string{l.Test, "--db-driver=mysql", "--mysql-host=" + a.Host, "--mysql-port=" + strconv.Itoa(a.Port), "--mysql-user=" + a.User,
		"--mysql-password=" + a.Password, "--mysql-db=" + benchDatabase, fmt.Sprintf("--tables=%d", l.Tables),
		fmt.Sprintf("--table-size=%d", l.TableSize), "--rand-type=uniform", "--db-ps-mode=disable"}
}

// LoadResult is one run of sysbench.
type LoadResult struct {
	Transactions int64         // committed
	Seconds      float64       // of the run itself
	Errors       int64         // ignored errors: deadlocks, lock waits
	P95          time.Duration // latency of a transaction
	CPU          time.Duration // that sysbench itself used
}

func lookSysbench() error {
	if _, err := exec.LookPath("sysbench"); err != nil {
		return ErrNoSysbench
	}
	return nil
}

// prepare makes and fills the tables. The database must exist.
func (l Load) prepare(ctx context.Context, a account) error {
	_, _, err := runSysbench(ctx, append(l.args(a), "--threads=2", "prepare")...)
	return err
}

// run loads the server for d with n threads.
func (l Load) run(ctx context.Context, a account, threads int, d time.Duration) (LoadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	out, cpu, err := runSysbench(ctx, append(l.args(a), fmt.Sprintf("--threads=%d", threads), fmt.Sprintf("--time=%d", int(d.Seconds())),
		"--percentile=95", "run")...)
	if err != nil {
		return LoadResult{}, err
	}
	r, err := parseSysbench(out)
	r.CPU = cpu
	return r, err
}

// runSysbench runs it in a session of its own and returns its output and CPU time.
func runSysbench(ctx context.Context, args ...string) (string, time.Duration, error) {
	cmd := exec.CommandContext(ctx, "sysbench", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	out, err := onPinnedThread(func() ([]byte, error) { return cmd.CombinedOutput() })
	if err != nil {
		return "", 0, fmt.Errorf("sysbench %s: %w: %s", args[len(args)-1], err, tail(string(out), 5))
	}
	return string(out), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}

var (
	reTransactions = regexp.MustCompile(`transactions:\s+(\d+)`)
	reSeconds      = regexp.MustCompile(`total time:\s+([\d.]+)s`)
	reErrors       = regexp.MustCompile(`ignored errors:\s+(\d+)`)
	reP95          = regexp.MustCompile(`95th percentile:\s+([\d.]+)`)
)

// parseSysbench reads the report of sysbench 1.0.
func parseSysbench(out string) (LoadResult, error) {
	var r LoadResult
	number := func(re *regexp.Regexp) (float64, error) {
		m := re.FindStringSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("sysbench's report has no %q: %s", re, tail(out, 5))
		}
		return strconv.ParseFloat(m[1], 64)
	}
	var vals [4]float64
	for i, re := range []*regexp.Regexp{reTransactions, reSeconds, reErrors, reP95} {
		v, err := number(re)
		if err != nil {
			return r, err
		}
		vals[i] = v
	}
	r.Transactions, r.Seconds, r.Errors = int64(vals[0]), vals[1], int64(vals[2])
	r.P95 = time.Duration(math.Round(vals[3] * float64(time.Millisecond)))
	if r.Transactions == 0 || r.Seconds == 0 {
		return r, fmt.Errorf("sysbench committed nothing: %s", tail(out, 5))
	}
	return r, nil
}
