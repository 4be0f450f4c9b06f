package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trireme/lab/rivals"
)

// Machine that the figures come from.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model"`
	Kernel    string `json:"kernel"`
	MemoryMiB int64  `json:"memory_mib"`
	// FileSystem of the scratch directory, and the median time of an fdatasync of 4 KiB there, in microseconds.
	FileSystem string  `json:"file_system,omitempty"`
	FsyncUS    float64 `json:"fsync_us,omitempty"`
	// Programs that are not MySQL or Trireme, with what they say of their version.
	Programs []string `json:"programs,omitempty"`
	// LoadAverage of one minute before the first run: other work on the machine.
	LoadAverage string `json:"load_average"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %d MiB memory, Linux %s, %s with %.0f µs for an fdatasync of 4 KiB, load average %s before the first run",
		m.CPUs, m.Model, m.MemoryMiB, m.Kernel, m.FileSystem, m.FsyncUS, m.LoadAverage)
}

func describeMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU()}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(b), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			m.Model = strings.TrimSpace(strings.TrimLeft(line, " \t:"))
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadAverage, _, _ = strings.Cut(string(b), " ")
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		m.MemoryMiB = int64(info.Totalram) * int64(info.Unit) >> 20
	}
	return m
}

// stolenFrom is the percentage from which on stolen CPU is told of: such figures should be thrown away.
const stolenFrom = 5

// StolenCPU is the CPU time that a hypervisor has given to others since the machine has started while there was work
// here, of all CPUs.
func StolenCPU() time.Duration {
	const tick = time.Second / 100 // USER_HZ
	return time.Duration(rivals.ReadTicks().Steal) * tick
}

// errNoDisk: on a file system in memory an fsync costs nothing, and so no figure means anything.
var errNoDisk = errors.New("it is a file system in memory: name a directory on a disk with --dir")

// describeDisk looks at the file system of a directory, and measures what durability costs there.
func (m *Machine) describeDisk(dir string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return fmt.Errorf("%s: %w", dir, errNoDisk)
	case unix.EXT4_SUPER_MAGIC:
		m.FileSystem = "ext4 (or ext3)"
	case unix.XFS_SUPER_MAGIC:
		m.FileSystem = "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		m.FileSystem = "btrfs"
	default:
		m.FileSystem = fmt.Sprintf("file system %#x", fs.Type)
	}
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const writes = 200
	block, times := make([]byte, 4096), make([]float64, 0, writes)
	for range writes {
		begin := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
		times = append(times, float64(time.Since(begin).Microseconds()))
	}
	m.FsyncUS = median(times)
	return nil
}

// median of values; 0 without any. With an even number it is the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
