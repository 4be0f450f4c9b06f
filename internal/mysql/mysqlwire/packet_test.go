package mysqlwire

import (
	"bytes"
	"errors"
	"net"
	"testing"
)

// pipe returns two framed ends of a loopback connection.
func pipe(t testing.TB) (a, b *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type accepted struct {
		nc  net.Conn
		err error
	}
	ch := make(chan accepted, 1)
	go func() {
		nc, err := l.Accept()
		ch <- accepted{nc, err}
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other := <-ch
	if other.err != nil {
		t.Fatal(other.err)
	}
	t.Cleanup(func() { nc.Close(); other.nc.Close() })
	return NewConn(nc, 0), NewConn(other.nc, 0)
}

func TestPacketSplitting(t *testing.T) {
	for _, length := range []int{0, 1, 250, MaxPayload - 1, MaxPayload, MaxPayload + 1, 2 * MaxPayload, 2*MaxPayload + 7} {
		a, b := pipe(t)
		want := bytes.Repeat([]byte{byte(length), 7, 9}, length/3+1)[:length]
		sent := make(chan error, 1)
		go func() { sent <- a.WritePacket(want) }()
		got, err := b.ReadPacket()
		if err != nil {
			t.Fatalf("length %d: %v", length, err)
		}
		if err := <-sent; err != nil {
			t.Fatalf("length %d: %v", length, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("length %d: payload differs", length)
		}
		if packets := byte(length/MaxPayload + 1); a.Sequence() != packets || b.Sequence() != packets {
			t.Fatalf("length %d: sequences %d and %d, want %d", length, a.Sequence(), b.Sequence(), packets)
		}
	}
}

func TestPacketOutOfSequence(t *testing.T) {
	a, b := pipe(t)
	a.seq = 3
	if err := a.WritePacket([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadPacket(); !errors.Is(err, ErrSequence) {
		t.Fatalf("got %v, want ErrSequence", err)
	}
}

func TestPacketLimit(t *testing.T) {
	a, b := pipe(t)
	b.maxPacket = 10
	if err := a.WritePacket(make([]byte, 11)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadPacket(); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
}

func TestDetachKeepsBufferedBytes(t *testing.T) {
	a, b := pipe(t)
	if err := a.BufferPacket([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := a.WritePacket([]byte("two")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadPacket(); err != nil {
		t.Fatal(err)
	}
	for b.r.Buffered() < HeaderLen+3 { // both packets went out in one write, but may arrive in two reads
		if _, err := b.r.Peek(b.r.Buffered() + 1); err != nil {
			t.Fatal(err)
		}
	}
	_, rest, err := b.Detach()
	if err != nil {
		t.Fatal(err)
	}
	if want := append([]byte{3, 0, 0, 1}, "two"...); !bytes.Equal(rest, want) {
		t.Fatalf("detached %q, want %q", rest, want)
	}
}

// A header that promises much takes little memory until the bytes are there.
func TestLengthAloneTakesLittle(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := NewConn(ours, 0)
	done := make(chan error, 1)
	go func() {
		_, err := c.ReadPacket()
		done <- err
	}()
	head := make([]byte, HeaderLen)
	PutHeader(head, 256<<10, 0)
	if _, err := theirs.Write(append(head, make([]byte, 1000)...)); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if err := <-done; err == nil {
		t.Error("a packet that was cut off was accepted")
	}
	if got := cap(c.payload); got > 2*ioBufferBytes {
		t.Errorf("1000 bytes of a packet of 256 KiB took %d", got)
	}
}
