package nbio

import (
	"net"
	"testing"
	"time"
)

// TestHangups: who does not read hears at once that the other side has ended, also of several connections, and only of
// those.
func TestHangups(t *testing.T) {
	h, err := NewHangups()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- h.Run() }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pair := func() (*Conn, net.Conn) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Close(), other.Close() })
		return Wrap(c).(*Conn), other
	}
	heard := make(chan string, 10)
	watch := func(name string, c *Conn) func() {
		forget, err := h.Watch(c, func() { heard <- name })
		if err != nil {
			t.Fatal(err)
		}
		return forget
	}
	hears := func(name string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != name {
				t.Fatalf("heard of %s, not of %s", got, name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("never heard of %s", name)
		}
	}
	one, otherOne := pair()
	two, otherTwo := pair()
	three, otherThree := pair()
	watch("one", one)
	watch("two", two)
	forget := watch("three", three)
	if _, err := otherTwo.Write([]byte("a word is no end")); err != nil {
		t.Fatal(err)
	}
	forget()
	forget()
	_ = otherThree.Close()
	_ = otherOne.Close()
	hears("one")
	_ = otherTwo.(*net.TCPConn).SetLinger(0)
	_ = otherTwo.Close() // a reset
	hears("two")
	late, otherLate := pair()
	_ = otherLate.Close()
	watch("late", late)
	hears("late")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("Run ended with %v", err)
	}
	if _, err := h.Watch(one, func() {}); err == nil || len(h.calls) > 0 {
		t.Fatalf("watched after the end: %v, %d left", err, len(h.calls))
	}
}
