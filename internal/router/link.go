package router

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// link is one client joined to one target.
type link struct {
	port           *port
	target         Target
	client, server *net.TCPConn
	greeting       []byte        // read from the server already; empty: nothing was
	in, out        atomic.Int64  // bytes client to server, server to client
	done           chan struct{} // closed when both directions have ended and both sockets are closed
}

func newLink(p *port, t Target, client, server *net.TCPConn) *link {
	return &link{port: p, target: t, client: client, server: server, done: make(chan struct{})}
}

// run copies both ways until both ends have closed or one has failed, and returns the bytes of each direction.
func (l *link) run() (in, out int64) {
	defer close(l.done)
	if len(l.greeting) > 0 {
		n, err := l.client.Write(l.greeting)
		l.out.Add(int64(n))
		if err != nil {
			l.abort()
		}
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		l.copy(l.client, l.server, &l.out)
	}()
	l.copy(l.server, l.client, &l.in)
	<-back
	_ = l.client.Close()
	_ = l.server.Close()
	return l.in.Load(), l.out.Load()
}

// countEvery is after how many bytes a lasting connection's counter is brought up to date.
const countEvery = 64 << 20

// copy moves bytes until src ends. A clean end is passed on as one (half-close: the other direction goes on); a failure ends
// both directions, because neither side could tell what the other has heard.
//
// ReadFrom moves the bytes inside the kernel (splice(2) on Linux). For small statements that costs what a read and a write
// cost, for large results less, and it needs no buffer here.
func (l *link) copy(dst, src *net.TCPConn, count *atomic.Int64) {
	for {
		part := &io.LimitedReader{R: src, N: countEvery}
		n, err := dst.ReadFrom(part)
		count.Add(n)
		if err == nil && part.N == 0 {
			continue
		}
		if err == nil {
			err = dst.CloseWrite()
		}
		if err != nil {
			l.abort()
		}
		return
	}
}

// abort closes both sockets at once. The server side is reset: mysqld has to see that nobody reads its answer. The client
// side is closed in order, so that an answer which mysqld gave before still arrives.
func (l *link) abort() {
	_ = l.server.SetLinger(0)
	_ = l.server.Close()
	_ = l.client.Close()
}

// cutAll aborts the links and returns when their sockets are closed.
func cutAll(links []*link) {
	for _, l := range links {
		l.abort()
	}
	for _, l := range links {
		<-l.done
	}
}

// MySQL errors that the router itself gives, always instead of a server's greeting.
const (
	erTooManyConnections      = 1040
	erOptionPreventsStatement = 1290
)

// refuse tells the client why it gets no connection and closes. The packet has no SQLSTATE: before the greeting the client's
// protocol version is not known, and mysqld leaves it out there too.
func refuse(client *net.TCPConn, code uint16, text string) {
	packet := make([]byte, 4, 7+len(text))
	packet = append(packet, 0xff)
	packet = binary.LittleEndian.AppendUint16(packet, code)
	packet = append(packet, text...)
	n := len(packet) - 4
	packet[0], packet[1], packet[2] = byte(n), byte(n>>8), byte(n>>16)
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = client.Write(packet)
	_ = client.Close()
}
