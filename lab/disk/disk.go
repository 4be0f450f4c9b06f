package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnavailable: this machine or this user cannot have such disks. The message says why.
var ErrUnavailable = errors.New("no disk whose power can be cut")

const (
	// MinSize of a disk: ext4 has no journal on less than 2 MiB, and needs room for it.
	MinSize = 16 << 20

	imageSuffix = ".disk"

	// ext4Shutdown is EXT4_IOC_SHUTDOWN = _IOR('X', 125, __u32), noLogFlush its EXT4_GOING_FLAGS_NOLOGFLUSH
	// (fs/ext4/ext4.h).
	ext4Shutdown = 0x8004587D
	noLogFlush   = 2

	busyLimit = 10 * time.Second // for processes that were killed to be gone
)

// Disk is a directory on a file system of its own. Its methods may not be called at the same time.
type Disk struct {
	dir   string
	image string
	loop  *os.File // keeps the device while nothing is mounted; it detaches itself with its last user
	on    bool     // the file system is mounted and was not shut down
}

// New puts a disk of that many bytes under a directory, which is made or must be empty. The disk's file grows as the
// disk is written to.
func New(ctx context.Context, dir string, size int64) (_ *Disk, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: only root may mount file systems", ErrUnavailable)
	}
	if err := removeLeftovers(); err != nil {
		return nil, fmt.Errorf("disks of processes that are gone: %w", err)
	}
	if err := prepare(dir, size); err != nil {
		return nil, err
	}
	d := &Disk{dir: dir, image: dir + imageSuffix}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := d.format(ctx, size); err != nil {
		return nil, err
	}
	if d.loop, err = attach(d.image); err != nil {
		return nil, err
	}
	if err := d.mount(); err != nil {
		return nil, err
	}
	return d, os.Remove(filepath.Join(dir, "lost+found")) // callers want an empty directory
}

// prepare makes the directory and checks that it may be hidden under a mount, and that there is room.
func prepare(dir string, size int64) error {
	if size < MinSize {
		return fmt.Errorf("a disk of %d bytes: at least %d are needed", size, MinSize)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	content, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(content) > 0 {
		return fmt.Errorf("%s is not empty: a disk would hide what is in it", dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &st); err != nil {
		return fmt.Errorf("free space of %s: %w", filepath.Dir(dir), err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < size {
		return fmt.Errorf("%s has %d MiB free; a disk of %d MiB does not fit", filepath.Dir(dir), free>>20, size>>20)
	}
	return nil
}

// format makes the file with an empty file system in it. Nothing is left for the kernel to initialise in the
// background: it would be written at times that have nothing to do with the test.
func (d *Disk) format(ctx context.Context, size int64) error {
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		if mkfs, err = exec.LookPath("/usr/sbin/mkfs.ext4"); err != nil { // not on the PATH of every shell
			return fmt.Errorf("%w: mkfs.ext4 is missing; install e2fsprogs", ErrUnavailable)
		}
	}
	f, err := os.OpenFile(d.image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		d.image = "" // another's
		return err
	}
	err = f.Truncate(size)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, mkfs, "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4 %s: %w: %s", d.image, err, bytes.TrimSpace(out))
	}
	return nil
}

func (d *Disk) mount() error {
	if err := unix.Mount(d.loop.Name(), d.dir, "ext4", unix.MS_NOATIME, ""); err != nil {
		if errors.Is(err, unix.ENODEV) {
			err = fmt.Errorf("%w: this kernel has no ext4", ErrUnavailable)
		}
		return fmt.Errorf("mounting %s on %s: %w", d.loop.Name(), d.dir, err)
	}
	d.on = true
	return nil
}

// Dir is where the disk is mounted.
func (d *Disk) Dir() string { return d.dir }

// Sync writes everything to the disk: what was put there by programs that do not fsync, and is to survive all the same.
func (d *Disk) Sync() error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// filler is the file of Fill.
func (d *Disk) filler() string { return filepath.Join(d.dir, "filler") }

// Fill leaves nothing free, root's reserve included, until Drain.
func (d *Disk) Fill() error {
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for step := int64(1 << 30); step >= 4096; { // others write meanwhile, so what is free is tried out
		st, err := f.Stat()
		if err != nil {
			return err
		}
		err = unix.Fallocate(int(f.Fd()), 0, st.Size(), step)
		switch {
		case errors.Is(err, unix.ENOSPC):
			step /= 4
		case err != nil:
			return fmt.Errorf("filling %s: %w", d.dir, err)
		}
	}
	return nil
}

// Drain ends Fill.
func (d *Disk) Drain() error { return os.RemoveAll(d.filler()) }

// PowerOff cuts the power: what has not reached the disk is lost, and every access fails with EIO.
//
// The host's processes are the caller's: send them SIGKILL first, and call this at once, without waiting for their
// ends. An fsync that is under way while the power goes may report a success that it did not have (jbd2 takes a
// transaction that is over for one that was committed, aborted or not); a process that has its SIGKILL cannot tell
// anybody.
func (d *Disk) PowerOff() error {
	if !d.on {
		return nil
	}
	dir, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("cutting the power of %s: %w", d.dir, err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), ext4Shutdown, noLogFlush); err != nil {
		return fmt.Errorf("cutting the power of %s: %w", d.dir, err)
	}
	d.on = false
	return nil
}

// PowerOn recovers the file system after PowerOff. The processes that ran on it must have ended, or be about to; what
// still has a file open on it after some seconds makes PowerOn fail, with the processes named, and it may be tried
// again. There is no lazy way: as long as anybody holds the old file system, the kernel would give it out again,
// without a recovery.
func (d *Disk) PowerOn() error {
	if d.on {
		return nil
	}
	if err := d.unmount(); err != nil {
		return err
	}
	if err := d.mount(); err != nil {
		return err
	}
	if err := syncDir(d.dir); err != nil { // EIO: this is the old one
		d.on = false
		return fmt.Errorf("%s is still in use, by a process in another mount namespace: %w", d.dir, err)
	}
	return nil
}

// unmount waits for processes that are ending.
func (d *Disk) unmount() error {
	for deadline := time.Now().Add(busyLimit); ; {
		err := unix.Unmount(d.dir, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINVAL): // EINVAL: nothing is mounted there
			return nil
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("unmounting %s: %w", d.dir, err)
		case time.Now().After(deadline):
			return fmt.Errorf("unmounting %s: %w; it is used by processes %v: end them first", d.dir, err, users(d.dir))
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Close gives the disk up with all that is on it. Processes that still use it keep a disk without power; they are named
// in the error.
func (d *Disk) Close() error {
	var errs []error
	if d.loop != nil {
		errs = append(errs, d.PowerOff()) // spares writing back what is thrown away
		if err := d.unmount(); err != nil {
			errs = append(errs, err, unix.Unmount(d.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
		}
		errs = append(errs, d.loop.Close())
		d.loop = nil
	}
	if d.image != "" {
		if err := os.Remove(d.image); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		d.image = ""
	}
	return errors.Join(errs...)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
