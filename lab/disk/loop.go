package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A loop device carries the name of the process that made it (LOOP_GET_STATUS64, lo_file_name): its pid and the time of
// its start.
const ownerPrefix = "trireme-disk-"

const attachTries = 100 // others may take a free device first

// attach puts a loop device before a file.
func attach(image string) (*os.File, error) {
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the device has a reference of its own
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: no loop devices: %w", ErrUnavailable, err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
	copy(config.Info.File_name[:], ownerPrefix+owner(os.Getpid()))
	for range attachTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: no free loop device: %w", ErrUnavailable, err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("%w: loop device: %w", ErrUnavailable, err)
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		switch {
		case errors.Is(err, unix.EBUSY):
		case errors.Is(err, unix.EINVAL) && config.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0: // not possible on this file system
			config.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO
		default:
			return nil, fmt.Errorf("attaching %s to %s: %w", image, loop.Name(), err)
		}
	}
	return nil, fmt.Errorf("attaching %s: every free loop device was taken by others, %d times", image, attachTries)
}

// owner names a process for good; empty: it is gone.
func owner(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // proc(5): from field 3 on
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return strconv.Itoa(pid) + "-" + f[19] // starttime
}

// removeLeftovers unmounts the disks of processes that are gone, and removes their files.
func removeLeftovers() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) { // proc(5): the mount point is field 5; type and source follow " - "
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 2 || g[0] != "ext4" || !strings.HasPrefix(g[1], "/dev/loop") || !abandoned(g[1]) {
			continue
		}
		image, _ := os.ReadFile(filepath.Join("/sys/block", filepath.Base(g[1]), "loop/backing_file"))
		if err := unix.Unmount(unescape(f[4]), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			if errors.Is(err, unix.EINVAL) { // another process was faster
				continue
			}
			errs = append(errs, fmt.Errorf("unmounting %s: %w", unescape(f[4]), err))
			continue
		}
		if path := strings.TrimSpace(string(image)); strings.HasSuffix(path, imageSuffix) { // otherwise " (deleted)"
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// abandoned: the loop device was made by a process that is gone.
func abandoned(device string) bool {
	loop, err := os.Open(device)
	if err != nil {
		return false
	}
	defer loop.Close()
	info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
	if err != nil {
		return false
	}
	name, found := strings.CutPrefix(unix.ByteSliceToString(info.File_name[:]), ownerPrefix)
	id, _, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(id)
	return found && err == nil && owner(pid) != name
}

// unescape a path of mountinfo: space, tab, newline and backslash are octal there.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// users are the processes that have something open under a directory, work in it or run from it.
func users(dir string) []int {
	var out []int
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		links, _ := filepath.Glob(proc + "/fd/*")
		for _, link := range append(links, proc+"/cwd", proc+"/exe", proc+"/root") {
			if to, err := os.Readlink(link); err == nil && (to == dir || strings.HasPrefix(to, dir+"/")) {
				pid, _ := strconv.Atoi(filepath.Base(proc))
				out = append(out, pid)
				break
			}
		}
	}
	return out
}
