package wan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNoBudget: CPU time cannot be limited here. The message says why.
var ErrNoBudget = errors.New("no CPU budget")

const (
	budgetPrefix = "trireme-budget-" // then its name, and a number
	budgetPeriod = 10 * time.Millisecond
	leastBudget  = 0.1 // the kernel's least quota is 1 ms in a period
	budgetEnd    = 5 * time.Second
	budgetYoung  = time.Minute // what is younger may not be locked yet
)

// Budget is a cgroup with a quota of CPU time: what an emulated host has, so that idle ones do not lend theirs to
// others. The period is 10 ms, not the usual 100: a host that has used up its share stands still until the next one,
// and heartbeats must not notice.
type Budget struct {
	dir     string
	lock    *os.File // of dir, for as long as its owner lives. A pid would not do: it may be of another namespace
	v2      bool
	release func() // of the slice; once
}

// BudgetStats are since the budget was made.
type BudgetStats struct {
	Periods   int64         // in which the cgroup wanted to run
	Throttled int64         // of them, in which it had to wait
	Wait      time.Duration // how long, all CPUs together
}

// NewBudget makes a cgroup for processes that may together use that many CPUs. Budgets of dead
// processes are removed.
func NewBudget(name string, cpus float64) (*Budget, error) {
	if !(cpus >= leastBudget) || strings.Contains(name, "/") {
		return nil, fmt.Errorf("budget of %v CPUs for %q: at least %v, and a name without \"/\"", cpus, name, leastBudget)
	}
	root, v2, err := cpuHierarchy()
	if err != nil {
		return nil, err
	}
	removeLeftovers(root)
	b := &Budget{v2: v2}
	if err := b.make(root, name, cpus); err != nil {
		_ = b.remove()
		return nil, fmt.Errorf("%w: %w", ErrNoBudget, err)
	}
	takeSlice()
	b.release = sync.OnceFunc(releaseSlice)
	return b, nil
}

func (b *Budget) make(root, name string, cpus float64) (err error) {
	if b.v2 {
		if err := write(root, "cgroup.subtree_control", "+cpu"); err != nil {
			return err
		}
	}
	if b.dir, err = os.MkdirTemp(root, budgetPrefix+name+"-*"); err != nil {
		return err
	}
	if b.lock, err = lockDir(b.dir); err != nil {
		return err
	}
	period := budgetPeriod.Microseconds()
	quota := int64(cpus * float64(period))
	if b.v2 {
		return write(b.dir, "cpu.max", fmt.Sprintf("%d %d", quota, period))
	}
	if err := write(b.dir, "cpu.cfs_period_us", strconv.FormatInt(period, 10)); err != nil {
		return err
	}
	return write(b.dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
}

// cpuHierarchy finds where the cpu controller is mounted: cgroup version 2, or else 1.
func cpuHierarchy() (root string, v2 bool, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", ErrNoBudget, err)
	}
	// proc(5): the mount point is field 5; type, source and options follow " - "
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		switch {
		case g[0] == "cgroup2" && hasController(f[4]):
			return f[4], true, nil
		case g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), "cpu"):
			root = f[4]
		}
	}
	if root == "" {
		return "", false, fmt.Errorf("%w: no cgroup hierarchy with the cpu controller is mounted", ErrNoBudget)
	}
	return root, false, nil
}

func hasController(root string) bool {
	b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), "cpu")
}

// lockDir fails if somebody else has it locked.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// removeLeftovers removes the budgets of processes that are gone. One that still holds processes stays: rmdir refuses.
func removeLeftovers(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, budgetPrefix+"*"))
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < budgetYoung {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			_ = os.Remove(dir)
			_ = lock.Close()
		}
	}
}

// remove the cgroup, if its processes have ended.
func (b *Budget) remove() error {
	err := os.Remove(b.dir)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		_ = b.lock.Close()
		return nil
	}
	return err
}

// Add puts a process under the budget; what it starts from now on follows.
func (b *Budget) Add(pid int) error { return write(b.dir, "cgroup.procs", strconv.Itoa(pid)) }

// Stats of the budget so far.
func (b *Budget) Stats() (BudgetStats, error) {
	var s BudgetStats
	text, err := os.ReadFile(filepath.Join(b.dir, "cpu.stat"))
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "nr_periods":
			s.Periods = n
		case "nr_throttled":
			s.Throttled = n
		case "throttled_usec":
			s.Wait = time.Duration(n) * time.Microsecond
		case "throttled_time":
			s.Wait = time.Duration(n)
		}
	}
	return s, nil
}

// Close removes the cgroup. Its processes must have ended; a moment is given to those that are ending.
func (b *Budget) Close() error {
	b.release()
	for deadline := time.Now().Add(budgetEnd); ; {
		err := b.remove()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("CPU budget: %w", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}
