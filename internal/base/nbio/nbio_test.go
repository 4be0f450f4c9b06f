package nbio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// pair is a connection of a kind, wrapped on one side.
func pair(t *testing.T, network, addr string) (*Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	other, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, ok := Wrap(nc).(*Conn)
	if !ok {
		t.Fatalf("%T is not wrapped", nc)
	}
	t.Cleanup(func() { c.Close(); other.Close() })
	if err := errors.Join(c.SetDeadline(time.Now().Add(20*time.Second)),
		other.SetDeadline(time.Now().Add(20*time.Second))); err != nil {
		t.Fatal(err)
	}
	return c, other
}

func each(t *testing.T, f func(*testing.T, *Conn, net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = t.TempDir() + "/s"
			}
			c, other := pair(t, network, addr)
			f(t, c, other)
		})
	}
}

// More than the socket and one system call take, both ways, to the last byte and the end.
func TestReadWrite(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, other net.Conn) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write(want)
			wrote <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("written: %v, equal %t", err, bytes.Equal(got, want))
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := other.Write(want)
			wrote <- errors.Join(err, other.Close())
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d of %d bytes: %v", len(got), len(want), err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(nil); n != 0 || err != nil {
			t.Fatalf("reading nothing: %d, %v", n, err)
		}
	})
}

// TryWrite takes what fits and no more, and does not wait for the reader.
func TestTryWrite(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, other net.Conn) {
		piece, total := make([]byte, 1<<20), 0
		for {
			n, err := c.TryWrite(piece)
			if err != nil {
				t.Fatal(err)
			}
			if total += n; n == 0 {
				break
			}
		}
		got := make([]byte, total)
		if _, err := io.ReadFull(other, got); err != nil {
			t.Fatalf("%d bytes were taken: %v", total, err)
		}
		if n, err := c.TryWrite(nil); n != 0 || err != nil {
			t.Fatalf("writing nothing: %d, %v", n, err)
		}
	})
}

func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, _ net.Conn) {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		var ne net.Error
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) ||
			!ne.Timeout() {
			t.Fatalf("read: %v", err)
		}
		if err := c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n == 64<<20 {
			t.Fatalf("write of %d bytes: %v", n, err)
		}
	})
}

// The errors by which the end of a peer is told from other failures.
func TestErrors(t *testing.T) {
	c, other := pair(t, "tcp", "127.0.0.1:0")
	if err := errors.Join(other.(*net.TCPConn).SetLinger(0), other.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("write: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("read after the close: %v", err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Wrap(a) != a {
		t.Fatal("what is no socket was wrapped")
	}
}

// Peek tells the three states of a socket apart and takes nothing.
func TestPeek(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, other net.Conn) {
		if n, err := c.Peek(); n != 0 || err != syscall.EAGAIN {
			t.Fatalf("nothing was said: %d, %v", n, err)
		}
		if _, err := other.Write([]byte("ab")); err != nil {
			t.Fatal(err)
		}
		await := func(want int) {
			for n, err := 0, error(syscall.EAGAIN); err != nil || n != want; n, err = c.Peek() {
				if err != nil && err != syscall.EAGAIN {
					t.Fatal(err)
				}
			}
		}
		await(1)
		if got, err := io.ReadAll(io.LimitReader(c, 2)); err != nil || string(got) != "ab" {
			t.Fatalf("%q, %v", got, err)
		}
		_ = other.Close()
		await(0)
	})
}

// ReadBy calls when there is something to read, and once before that.
func TestReadBy(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, other net.Conn) {
		b, n, calls := make([]byte, 16), 0, make(chan struct{}, 3)
		done := make(chan error, 1)
		go func() {
			done <- c.ReadBy(func(fd uintptr) bool {
				calls <- struct{}{}
				k, err := Read(fd, b[n:])
				n += k
				return err != nil && err != syscall.EAGAIN || n == 2
			})
		}()
		<-calls
		for _, say := range []string{"a", "b"} {
			if _, err := io.WriteString(other, say); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil || string(b[:n]) != "ab" {
			t.Fatalf("%q, %v", b[:n], err)
		}
	})
}

// What several goroutines write stays whole, though the socket takes it in parts.
func TestWritersTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, other net.Conn) {
		const writers, size, rounds = 4, 200 << 10, 5
		for w := range writers {
			go func() {
				piece := bytes.Repeat([]byte{byte(w)}, size)
				for range rounds {
					if _, err := c.Write(piece); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		got := make([]byte, size)
		for range writers * rounds {
			if _, err := io.ReadFull(other, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, bytes.Repeat(got[:1], size)) {
				t.Fatal("two goroutines' bytes are mixed")
			}
		}
	})
}

// Ended may be asked while somebody reads, and is true only when nothing is left to be read.
func TestEnded(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, other net.Conn) {
		got := make(chan string)
		go func() {
			b := make([]byte, 1)
			for {
				if _, err := c.Read(b); err != nil {
					close(got)
					return
				}
				got <- string(b)
			}
		}()
		if c.Ended() {
			t.Fatal("it has ended")
		}
		if _, err := io.WriteString(other, "abc"); err != nil {
			t.Fatal(err)
		}
		if s := <-got; s != "a" { // b is read, and c is not
			t.Fatal(s)
		}
		_ = other.Close()
		if c.Ended() {
			t.Fatal("what it has said was not read yet")
		}
		for range got {
		}
		for !c.Ended() {
		}
		_ = c.Close()
		if c.Ended() {
			t.Fatal("it cannot be known")
		}
	})
}
