//go:build race

package nbio

import (
	"errors"
	"syscall"
)

// Package syscall tells the race detector that a read comes after the write of its bytes, and which memory it writes
// to. Raw system calls do not: the detector would report races between the two ends of each connection, and would miss
// those in the buffers.

func read(fd uintptr, p []byte) (uintptr, syscall.Errno) { return told(syscall.Read(int(fd), p)) }

func peek(fd uintptr, b *[1]byte) (uintptr, syscall.Errno) {
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return told(n, err)
}

func write(fd uintptr, p []byte) (uintptr, syscall.Errno) { return told(syscall.Write(int(fd), p)) }

func told(n int, err error) (uintptr, syscall.Errno) {
	errno, _ := errors.AsType[syscall.Errno](err)
	return uintptr(max(0, n)), errno
}
