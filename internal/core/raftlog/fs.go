package raftlog

import "io"

// FS is all that the log asks of a file system, so that tests and the simulator can replace it with a faulty one. Names
// are paths; directories are made with MkdirAll only. The log distinguishes errors for which errors.Is(err,
// fs.ErrNotExist) or errors.Is(err, syscall.ENOSPC) holds; it treats all others alike.
type FS interface {
	MkdirAll(dir string) error
	// Lock takes an exclusive lock that ends with Close or with the process. The error wraps ErrLocked when it is taken.
	Lock(name string) (io.Closer, error)
	// Create makes an empty file for reading and writing, or empties the one that is there.
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
