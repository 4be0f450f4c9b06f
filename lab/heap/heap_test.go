package heap

import (
	"fmt"
	"testing"
)

// failed remembers whether a test would have failed.
type failed struct {
	testing.TB
	text string
}

func (f *failed) Helper()                           {}
func (f *failed) Errorf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

var kept []byte

func TestWithin(t *testing.T) {
	Within(t, 1<<20, func() { kept = make([]byte, 1<<20) })
	caught := &failed{TB: t}
	Within(caught, 1<<20, func() { kept = make([]byte, 2<<20) })
	if caught.text == "" {
		t.Error("2 MiB passed for 1 MiB")
	}
	kept = nil
}
