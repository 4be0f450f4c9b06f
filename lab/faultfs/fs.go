package faultfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnavailable: this machine or this user cannot have such file systems. The message says why.
var ErrUnavailable = errors.New("no file system that can fail on command")

const backingSuffix = ".faultfs" // the directory for contents, empty as seen from outside

// Options of a file system.
type Options struct {
	Seed  uint64 // of what power losses take
	Names Order
	// NoCache is a disk without a volatile cache: what was written with O_DIRECT is durable when the write returns.
	// Those that are under way when the power goes are lost or torn all the same.
	NoCache bool
	// TakeAll lets each power loss take everything that is not durable. Without it most take a part, and some nothing.
	TakeAll bool
}

// FS is a directory on a file system of its own. Its methods may not be called at the same time.
type FS struct {
	dir  string
	cmd  *exec.Cmd
	rpc  *rpc.Client
	on   bool
	loss Loss
}

// New puts a file system on a directory, which is made or must be empty.
func New(ctx context.Context, dir string, o Options) (_ *FS, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := available(); err != nil {
		return nil, err
	}
	if err := removeLeftovers(); err != nil {
		return nil, err
	}
	if err := prepare(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir+backingSuffix, 0o700); err != nil {
		return nil, err
	}
	f := &FS{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	if err := f.call("Mount", MountArgs{dir, o}, &Nothing{}); err != nil {
		return nil, err
	}
	f.on = true
	return f, nil
}

func available() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("%w: only root may mount file systems", ErrUnavailable)
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return dev.Close()
}

// prepare makes the directory and checks that it may be hidden under a mount.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	content, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(content) > 0 {
		return fmt.Errorf("%s is not empty: a file system would hide what is in it", dir)
	}
	return nil
}

// start the process that serves. It ends when the socket to it does.
func (f *FS) start(ctx context.Context) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	own, other := os.NewFile(uintptr(pair[0]), "server"), os.NewFile(uintptr(pair[1]), "creator")
	defer own.Close()
	defer other.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		return err
	}
	if f.cmd, err = Server.Command(context.WithoutCancel(ctx)); err != nil {
		conn.Close()
		return err
	}
	f.cmd.Dir, f.cmd.Stderr, f.cmd.ExtraFiles = "/", os.Stderr, []*os.File{other}
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal of the terminal: files are needed until the end
	if err := f.cmd.Start(); err != nil {
		conn.Close()
		f.cmd = nil
		return err
	}
	f.rpc = rpc.NewClient(conn)
	return nil
}

func (f *FS) call(what string, args, answer any) error {
	if err := f.rpc.Call(mountTag+"."+what, args, answer); err != nil {
		return fmt.Errorf("file system on %s: %w", f.dir, err)
	}
	return nil
}

// Dir is where the file system is mounted.
func (f *FS) Dir() string { return f.dir }

// Sync makes everything durable: what was put there by programs that do not fsync, and is to survive all the same.
func (f *FS) Sync() error { return f.call("Sync", Nothing{}, &Nothing{}) }

// PowerOff fails every operation with EIO from now on, including those that wait, and decides what was lost (Loss). The
// caller must kill the processes that use the file system, before or after.
func (f *FS) PowerOff() error {
	if !f.on {
		return nil
	}
	var loss Loss // a new one: what is zero is not sent
	if err := f.call("PowerOff", Nothing{}, &loss); err != nil {
		return err
	}
	f.loss, f.on = loss, false
	return nil
}

// Loss is what the newest power loss took.
func (f *FS) Loss() Loss { return f.loss }

// PowerOn after PowerOff. The processes that ran on it must have ended, or be about to; what still has a file open on
// it after some seconds makes PowerOn fail, and it may be tried again. Faults stay as they are.
func (f *FS) PowerOn() error {
	if f.on {
		return nil
	}
	if err := f.call("PowerOn", Nothing{}, &Nothing{}); err != nil {
		return err
	}
	f.on = true
	return nil
}

// Inject faults in place of those before; none: everything works. What hangs goes on.
func (f *FS) Inject(list ...Fault) error { return f.call("Inject", list, &Nothing{}) }

// Hits says how many operations each of the faults in force has hit, in Inject's order.
func (f *FS) Hits() ([]int, error) {
	var out []int
	err := f.call("Hits", Nothing{}, &out)
	return out, err
}

// Counts of operations by path since New.
func (f *FS) Counts() (Counts, error) {
	var out Counts
	err := f.call("Counts", Nothing{}, &out)
	return out, err
}

// Close gives the file system up with all that is on it.
func (f *FS) Close() error {
	var errs []error
	if f.cmd != nil {
		errs = append(errs, f.rpc.Close(), f.cmd.Wait())
		f.cmd = nil
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir+backingSuffix))...)
}

// removeLeftovers unmounts file systems whose servers were killed: nothing answers there.
func removeLeftovers() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) { // proc(5): the mount point is field 5; the type follows " - "
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if len(f) < 5 || !strings.HasPrefix(after, "fuse."+mountTag) {
			continue
		}
		dir, err := strconv.Unquote(`"` + f[4] + `"`) // space and its like are octal there
		if err != nil {
			return err
		}
		var st unix.Statfs_t // the answer to a stat may come from a cache
		if err := unix.Statfs(dir, &st); !errors.Is(err, unix.ENOTCONN) {
			continue
		}
		// EINVAL: another process was faster
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s, whose server is gone: %w", dir, err)
		}
		if err := os.RemoveAll(dir + backingSuffix); err != nil {
			return err
		}
	}
	return nil
}
