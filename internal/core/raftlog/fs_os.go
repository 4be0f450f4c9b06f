package raftlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trireme/internal/base/durable"
)

// OSFS is the operating system's file system.
type OSFS struct{}

type osFile struct{ *os.File }

// MkdirAll makes the directory's own name durable too: without it, files synced in the directory could be lost with it.
func (OSFS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

func (OSFS) Lock(name string) (io.Closer, error) {
	f, err := durable.Lock(name)
	if errors.Is(err, durable.ErrLocked) {
		err = fmt.Errorf("%w: another process holds %s", ErrLocked, name)
	}
	return f, err
}

func (OSFS) Create(name string) (File, error) {
	return wrapFile(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600))
}

func (OSFS) Open(name string) (File, error)     { return wrapFile(os.OpenFile(name, os.O_RDWR, 0)) }
func (OSFS) OpenRead(name string) (File, error) { return wrapFile(os.Open(name)) }
func (OSFS) Rename(from, to string) error       { return os.Rename(from, to) }
func (OSFS) Remove(name string) error           { return os.Remove(name) }
func (OSFS) SyncDir(dir string) error           { return durable.SyncDir(dir) }
func (OSFS) Free(dir string) (uint64, error)    { return durable.Free(dir) }

func wrapFile(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (OSFS) ReadDir(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name()
	}
	return names, nil
}

// maxIovecs is IOV_MAX of Linux.
const maxIovecs = 1024

func (f osFile) Writev(bufs [][]byte, off int64) error {
	for len(bufs) > 0 {
		n, err := unix.Pwritev(int(f.Fd()), bufs[:min(len(bufs), maxIovecs)], off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: err}
		}
		if n == 0 {
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: io.ErrShortWrite}
		}
		off += int64(n)
		for n > 0 && n >= len(bufs[0]) {
			n -= len(bufs[0])
			bufs = bufs[1:]
		}
		if n > 0 {
			bufs[0] = bufs[0][n:]
		}
		for len(bufs) > 0 && len(bufs[0]) == 0 {
			bufs = bufs[1:]
		}
	}
	return nil
}

func (f osFile) Fdatasync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

func (f osFile) Allocate(size int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
}

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
