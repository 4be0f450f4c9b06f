package raftlog

import (
	"errors"
	"io"
	"path/filepath"

	"trireme/internal/base/failpoint"
)

// FS is all that the log asks of a file system, so that tests and the simulator can replace it with a faulty one. Names
// are paths; directories are made with MkdirAll only. The log distinguishes errors for which errors.Is(err,
// fs.ErrNotExist) or errors.Is(err, syscall.ENOSPC) holds; it treats all others alike.
type FS interface {
	MkdirAll(dir string) error
	// Lock takes an exclusive lock that ends with Close or with the process. The error wraps ErrLocked when it is taken.
	Lock(name string) (io.Closer, error)
	// Create makes an empty file for reading and writing, which only this user can read, or empties the one that is there.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Rename replaces newName. It is durable after SyncDir.
	Rename(oldName, newName string) error
	Remove(name string) error
	// SyncDir makes the directory's names durable.
	SyncDir(dir string) error
	// ReadDir returns the names in dir, in any order.
	ReadDir(dir string) ([]string, error)
	// Free returns the bytes that an ordinary process can still allocate in dir's file system.
	Free(dir string) (uint64, error)
}

// File is an open file. ReadAt may be called concurrently with every method; the other methods are called one at a
// time.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Writev writes bufs one after the other from off on. It may change the slice bufs, not the bytes.
	Writev(bufs [][]byte, off int64) error
	// Fdatasync makes the content and the size durable.
	Fdatasync() error
	Truncate(size int64) error
	// Allocate reserves blocks for the first size bytes without changing the file's size. A file system that cannot
	// do so returns nil.
	Allocate(size int64) error
	Size() (int64, error)
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) (b []byte, err error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b = make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// ReplaceFile replaces a file, which only this user can read, and returns once that is durable. After a crash it has
// the old content or the new one, never a mixture. Two at a time must not replace the same file.
func ReplaceFile(fsys FS, name string, data []byte) error {
	tmp := name + newSuffix
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Fdatasync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		failpoint.Hit("file.before-rename")
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, fsys.Remove(tmp))
	}
	failpoint.Hit("file.after-rename")
	return fsys.SyncDir(filepath.Dir(name))
}
