package wan

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// TestTrace: every segment of a conversation is in the trace with its length, once when it leaves and once when it
// arrives half a round trip later, and an answer comes after what it answers. The trace holds nothing that crosses
// before its start or after its stop.
func TestTrace(t *testing.T) {
	n := emulate(t)
	a, b := conversation(t, n, "a", "b")
	exchange := func(size int) {
		t.Helper()
		for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
			if _, err := c[0].Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c[1], make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	exchange(99)
	if err := n.StartTrace(); err != nil {
		t.Fatal(err)
	}
	sizes := []int{100, 1, 1000}
	for _, s := range sizes {
		exchange(s)
	}
	all, err := n.StopTrace()
	if err != nil {
		t.Fatal(err)
	}
	exchange(98)
	port := uint16(a.LocalAddr().(*net.TCPAddr).Port)
	var got []Segment // with payload, each once
	for _, s := range all {
		if s.FromPort != port && s.ToPort != port {
			t.Errorf("%+v is of another conversation", s)
		}
		again := slices.ContainsFunc(got,
			func(o Segment) bool { return o.From == s.From && o.Sequence == s.Sequence && o.Arrived == s.Arrived })
		if s.Bytes > 0 && !again { // a loaded kernel may send twice
			got = append(got, s)
		}
	}
	var want []Segment
	for _, size := range sizes {
		for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
			want = append(want, Segment{From: way[0], To: way[1], Bytes: size}, Segment{From: way[0], To: way[1], Bytes: size,
				Arrived: true})
		}
	}
	if !slices.EqualFunc(got, want, func(g, w Segment) bool {
		return g.From == w.From && g.To == w.To && g.Bytes == w.Bytes && g.Arrived == w.Arrived
	}) {
		t.Fatalf("the trace has\n%+v\nwant\n%+v", got, want)
	}
	for i := 0; i < len(got); i += 2 {
		if d := got[i+1].At - got[i].At; d < 2*time.Millisecond {
			t.Errorf("%+v arrived after %v, the round trip is 4 ms", got[i], d)
		}
	}
}

// TestTraceIsBounded: a trace that was too long is an error, not a trace with a hole.
func TestTraceIsBounded(t *testing.T) {
	n := emulate(t)
	for _, records := range []uint64{traceLimit, traceLimit + 1} {
		if err := n.StartTrace(); err != nil {
			t.Fatal(err)
		}
		n.shared.trace.count.Add(records)
		got, err := n.StopTrace()
		if full := records > traceLimit; errors.Is(err, ErrTraceFull) != full || !full && len(got) != int(records) {
			t.Errorf("%d records: %d segments, %v", records, len(got), err)
		}
	}
}

// conversation is a TCP connection from one host to another: both its ends.
func conversation(t *testing.T, n *Net, from, to string) (a, b net.Conn) {
	t.Helper()
	var l net.Listener
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(n.Host(to).Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(n.Host(to).Addr.String(), "0"))
		return err
	}))
	defer l.Close()
	must(n.Host(from).Do(func() (err error) {
		a, err = net.Dial("tcp", l.Addr().String())
		return err
	}))
	t.Cleanup(func() { a.Close() })
	b, err := l.Accept()
	must(err)
	t.Cleanup(func() { b.Close() })
	return a, b
}
