package dashboard

import (
	"bytes"
	"sync"
)

// lockedBuffer is written and read by different goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) text() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }
