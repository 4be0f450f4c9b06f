package memfs

import (
	"errors"
	"io"
	"io/fs"
	"slices"
)

// file is an open file.
type file struct {
	fs       *FS
	name     string
	n        *node
	life     int
	readOnly bool
	closed   bool
}

// begin runs the hook and takes the lock; unless it fails the caller unlocks.
func (f *file) begin(op Op) error {
	if err := f.fs.hook(op, f.name); err != nil {
		return err
	}
	f.fs.mu.Lock()
	err := fs.ErrClosed
	switch {
	case f.closed || f.life != f.fs.life:
	case f.readOnly && op != OpRead:
		err = fs.ErrPermission
	default:
		return nil
	}
	f.fs.mu.Unlock()
	return pathError(string(op), f.name, err)
}

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	if err := f.begin(OpRead); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	if err := f.begin(OpWrite); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	grown := off + int64(len(b)) - int64(len(f.n.data))
	if limit := f.fs.limit; limit > 0 && grown > 0 && f.fs.used()+grown > limit {
		return 0, pathError("write", f.name, errNoSpace)
	}
	if grown > 0 {
		f.n.data = resize(f.n.data, off+int64(len(b)))
	}
	copy(f.n.data[off:], b)
	f.n.pending = append(f.n.pending, change{off, append([]byte{}, b...)})
	return len(b), nil
}

func (f *file) Writev(bufs [][]byte, off int64) error {
	var all []byte
	for _, b := range bufs {
		all = append(all, b...)
	}
	_, err := f.WriteAt(all, off)
	return err
}

func (f *file) Fdatasync() error {
	if err := f.begin(OpFdatasync); err != nil {
		if errors.Is(err, ErrLostWrites) {
			f.loseWrites()
		}
		return err
	}
	defer f.fs.mu.Unlock()
	n := f.n
	for _, c := range n.pending {
		if c.bytes == nil {
			n.disk = resize(n.disk, c.off)
			continue
		}
		if end := c.off + int64(len(c.bytes)); end > int64(len(n.disk)) {
			n.disk = resize(n.disk, end)
		}
		copy(n.disk[c.off:], c.bytes)
	}
	n.pending = nil
	return nil
}

// loseWrites forgets what was written since the last sync, but goes on showing it.
func (f *file) loseWrites() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.n.pending = slices.DeleteFunc(f.n.pending, func(c change) bool { return c.bytes != nil })
}

func (f *file) Truncate(size int64) error {
	if err := f.begin(OpTruncate); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.n.data = resize(f.n.data, size)
	f.n.pending = append(f.n.pending, change{off: size})
	return nil
}

// Allocate reserves nothing: SetLimit counts bytes that are written.
func (f *file) Allocate(int64) error {
	if err := f.begin(OpTruncate); err != nil {
		return err
	}
	f.fs.mu.Unlock()
	return nil
}

func (f *file) Size() (int64, error) {
	if err := f.begin(OpRead); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.closed = true
	return nil
}
