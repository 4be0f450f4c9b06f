package router

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"trireme/internal/base/nbio"
	"trireme/internal/mysql/mysqlwire"
)

// link is one client joined to one target.
type link struct {
	port     *port
	target   Target
	client   *nbio.Conn     // over TCP, or a unix socket
	server   *nbio.Conn     // over TCP
	from     netip.AddrPort // the client's; not valid through a unix socket
	greeting []byte         // read from the server already; empty: nothing was
	in, out  atomic.Int64   // bytes client to server, server to client
	done     chan struct{}  // closed when both directions have ended and both sockets are closed
	c, s     net.Conn       // client and server, or TLS on them
	// its server's end is not waited for any more; nil: it was not; guarded by Router.mu
	unwatch func()
	// not nil: its commands are followed, and it goes on without this server; guarded by Router.mu
	session *session
	enters  bool // its client is logging in; guarded by Router.mu
	spoke   bool // that client has answered the greeting; the login's goroutine only
	// why its session, which is passed on as bytes, ends with its server; empty: no reason yet, or it is followed;
	// likewise
	tiedBy  string
	cut     atomic.Bool                        // the view turned against it
	wake    atomic.Pointer[context.CancelFunc] // of who waits for its server (until)
	applied uint64                             // its server shows the log up to here; of the session's goroutine
	live    bool                               // Reads.Live was asked since it began; of the same
	tap     *tap                               // of what the client says, once bytes are passed on; of run
	// of the stream's port: its server may show less than was committed when it came
	unsure bool
	early  []byte        // said by the client already, and not passed on
	taken  atomic.Bool   // the server's answers are not passed on any more
	back   chan struct{} // closed when they are not
}

func newLink(p *port, t Target, client, server *nbio.Conn, from netip.AddrPort) *link {
	return &link{port: p, target: t, client: client, server: server, from: from, c: client, s: server,
		done: make(chan struct{})}
}

// turnAgainst notes that the view does not allow it any more.
func (l *link) turnAgainst() {
	l.cut.Store(true)
	if wake := l.wake.Load(); wake != nil {
		(*wake)()
	}
}

// until is a context that also ends when the view turns against the link. It is for the session's goroutine, one at a
// time.
func (l *link) until(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(parent, deadline)
	l.wake.Store(&cancel)
	if l.cut.Load() { // before it could be woken
		cancel()
	}
	return ctx, func() { l.wake.Store(nil); cancel() }
}

// wire frames the server's side in packets.
func (l *link) wire() *mysqlwire.Conn {
	c := mysqlwire.NewConn(l.server, loginMaxPacket)
	if len(l.greeting) > 0 {
		c.Unread(l.greeting)
		l.greeting = nil
	}
	return c
}

// run copies both ways until both ends have closed or one has failed, and returns the bytes of each direction. A client
// that asks for a binary log gets the committed one.
func (l *link) run(r *Router) (in, out int64) {
	defer close(l.done)
	if len(l.greeting) > 0 {
		n, err := l.client.Write(l.greeting)
		l.out.Add(int64(n))
		if err != nil {
			l.abort()
		}
	}
	if l.tap == nil {
		l.tap = &tap{}
	}
	l.passBack()
	if over, err := l.watched(r, l.early); err != nil {
		l.abort()
	} else if !over {
		l.watch(r)
	}
	<-l.back
	_ = l.client.Close()
	_ = l.server.Close()
	return l.in.Load(), l.out.Load()
}

// passBack begins to pass on what the server says.
func (l *link) passBack() {
	l.taken.Store(false)
	back := make(chan struct{})
	l.back = back
	go func() {
		defer close(back)
		l.copy(l.c, l.s, &l.out)
		// a mysqld that has ended hears nothing any more, and a client that does not go by itself would stay forever
		if !l.taken.Load() {
			_ = l.client.SetReadDeadline(time.Now().Add(refusePatience))
		}
	}()
}

// takeBack ends that: what the server says next is for the router. It is between two answers if the client waits for
// each.
func (l *link) takeBack() {
	l.taken.Store(true)
	_ = l.server.SetReadDeadline(time.Unix(1, 0))
	<-l.back
}

// copy moves bytes until src ends. A clean end is passed on as one (half-close: the other direction goes on); a failure
// ends both directions, because neither side could tell what the other has heard. While nothing comes it holds no more
// than its two sockets: splice(2) would hold a pipe.
func (l *link) copy(dst, src net.Conn, count *atomic.Int64) {
	var in pieceReader
	for {
		piece, n, err := in.read(src)
		if n > 0 {
			count.Add(int64(n))
			if _, failed := dst.Write(piece[:n]); failed != nil {
				err = failed
			}
		}
		if piece != nil {
			pieces.Put(piece)
		}
		if err == nil {
			continue
		}
		if err == io.EOF {
			err = dst.(interface{ CloseWrite() error }).CloseWrite() // of TCP, a unix socket or TLS
		}
		if err != nil && !l.taken.Load() {
			l.abort()
		}
		return
	}
}

// abort closes both sockets at once. The server side is reset: mysqld has to see that its answer is not read. The
// client side is closed in order, so that an answer which mysqld gave before still arrives.
func (l *link) abort() {
	l.closeServer()
	_ = l.client.Close()
}

// closeServer resets the server side. It returns when the socket is closed, even if another goroutine reads from it.
func (l *link) closeServer() {
	_ = l.server.Conn.(*net.TCPConn).SetLinger(0)
	_ = l.server.Close()
}

// forbidden is a link that a new view does not allow, and whose it was at that moment.
type forbidden struct {
	*link
	session *session
}

// cutAll ends the links and returns when their servers' sockets are closed. Followed sessions find out by themselves.
func cutAll(links []forbidden) {
	for _, l := range links {
		if l.session != nil {
			l.closeServer()
			l.session.ring()
			l.session.hasLost(l.link)
		} else {
			l.abort()
		}
	}
	for _, l := range links {
		if l.session == nil {
			<-l.done
		}
	}
}

// MySQL errors that the router itself gives, always instead of a server's greeting.
const (
	erTooManyConnections      = 1040
	erOptionPreventsStatement = 1290
)

// refuse tells the client why it gets no connection and closes.
func refuse(client net.Conn, code uint16, text string) {
	packet := mysqlwire.AppendPacket(nil, 0, mysqlwire.AppendEarlyERR(nil, code, text))
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = client.Write(packet)
	_ = client.Close()
}
