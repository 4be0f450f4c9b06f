package mysqlwire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// HeaderLen is the length of a packet header.
	HeaderLen = 4
	// MaxPayload is the longest payload of one packet; a payload of this length is followed by another packet.
	MaxPayload = 0xFFFFFF
	// DefaultMaxPacket bounds a joined payload, as mysqld's largest max_allowed_packet does.
	DefaultMaxPacket = 1 << 30

	ioBufferBytes = 16 << 10
	// growStep is how much a payload grows at once. Memory is taken as bytes arrive, at first ioBufferBytes, then as
	// much again as has come: a length field alone, of a client that has not logged in, takes no more.
	growStep = 1 << 20
)

// PutHeader writes a packet header into b[:4]. length must not exceed MaxPayload.
func PutHeader(b []byte, length int, seq byte) {
	_ = b[3]
	b[0], b[1], b[2], b[3] = byte(length), byte(length>>8), byte(length>>16), seq
}

// ParseHeader reads a packet header from b[:4].
func ParseHeader(b []byte) (length int, seq byte) {
	_ = b[3]
	return int(b[0]) | int(b[1])<<8 | int(b[2])<<16, b[3]
}

// Conn frames packets over a net.Conn and checks their sequence. Reads and writes share one sequence counter, as the
// protocol does, so a Conn is for one goroutine at a time.
type Conn struct {
	nc        net.Conn
	r         *bufio.Reader
	w         *bufio.Writer
	seq       byte
	maxPacket int
	payload   []byte
}

// NewConn frames nc. maxPacket bounds a joined payload in bytes; 0 means DefaultMaxPacket.
func NewConn(nc net.Conn, maxPacket int) *Conn {
	if maxPacket <= 0 {
		maxPacket = DefaultMaxPacket
	}
	return &Conn{
		nc: nc, maxPacket: maxPacket,
		r: bufio.NewReaderSize(nc, ioBufferBytes),
		w: bufio.NewWriterSize(nc, ioBufferBytes),
	}
}

// NetConn returns the connection underneath.
func (c *Conn) NetConn() net.Conn { return c.nc }

// Close closes the connection underneath.
func (c *Conn) Close() error { return c.nc.Close() }

// ResetSequence starts a new command: the next packet in either direction carries sequence 0.
func (c *Conn) ResetSequence() { c.seq = 0 }

// Sequence returns the number that the next packet carries.
func (c *Conn) Sequence() byte { return c.seq }

// Detach gives up framing: it returns the connection and a copy of the bytes already read from it but not consumed.
func (c *Conn) Detach() (net.Conn, []byte, error) {
	if err := c.w.Flush(); err != nil {
		return nil, nil, fmt.Errorf("flush before detaching: %w", err)
	}
	rest, err := c.r.Peek(c.r.Buffered())
	if err != nil {
		return nil, nil, fmt.Errorf("take buffered bytes: %w", err)
	}
	return c.nc, append([]byte(nil), rest...), nil
}

// ReadPacket returns the next payload, joined from its pieces. The bytes are valid until the next ReadPacket.
// It fails with ErrSequence, ErrTooLarge or the connection's error.
func (c *Conn) ReadPacket() ([]byte, error) {
	c.payload = c.payload[:0]
	for {
		var head [HeaderLen]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return nil, fmt.Errorf("read packet header: %w", err)
		}
		length, seq := ParseHeader(head[:])
		if seq != c.seq {
			return nil, fmt.Errorf("got packet %d, expected %d: %w", seq, c.seq, ErrSequence)
		}
		c.seq++
		if len(c.payload)+length > c.maxPacket {
			return nil, fmt.Errorf("payload over %d bytes: %w", c.maxPacket, ErrTooLarge)
		}
		if err := c.readPiece(length); err != nil {
			return nil, err
		}
		if length < MaxPayload {
			return c.payload, nil
		}
	}
}

func (c *Conn) readPiece(length int) error {
	for length > 0 {
		start := len(c.payload)
		n := min(length, max(ioBufferBytes, min(start, growStep)))
		c.payload = append(c.payload, make([]byte, n)...)
		if _, err := io.ReadFull(c.r, c.payload[start:]); err != nil {
			return fmt.Errorf("read packet payload: %w", err)
		}
		length -= n
	}
	return nil
}

// WritePacket sends payload as one or several packets and flushes.
func (c *Conn) WritePacket(payload []byte) error {
	if err := c.BufferPacket(payload); err != nil {
		return err
	}
	return c.Flush()
}

// BufferPacket is WritePacket without the flush.
func (c *Conn) BufferPacket(payload []byte) error {
	for {
		n := min(len(payload), MaxPayload)
		var head [HeaderLen]byte
		PutHeader(head[:], n, c.seq)
		c.seq++
		if _, err := c.w.Write(head[:]); err != nil {
			return fmt.Errorf("write packet header: %w", err)
		}
		if _, err := c.w.Write(payload[:n]); err != nil {
			return fmt.Errorf("write packet payload: %w", err)
		}
		if payload = payload[n:]; n < MaxPayload {
			return nil
		}
	}
}

// Flush sends what BufferPacket has kept back.
func (c *Conn) Flush() error {
	if err := c.w.Flush(); err != nil {
		return fmt.Errorf("flush packets: %w", err)
	}
	return nil
}

// raw is the connection, preceded by the bytes that were read from it but not consumed: a client may send its TLS hello
// directly after SSLRequest.
func (c *Conn) raw() net.Conn {
	rest, _ := c.r.Peek(c.r.Buffered())
	if len(rest) == 0 {
		return c.nc
	}
	return &prefixedConn{Conn: c.nc, prefix: append([]byte(nil), rest...)}
}

// swap puts nc, a TLS connection over raw, underneath.
func (c *Conn) swap(nc net.Conn) {
	c.nc = nc
	c.r.Reset(nc)
	c.w.Reset(nc)
}

type prefixedConn struct {
	net.Conn
	prefix []byte
}

func (p *prefixedConn) Read(b []byte) (int, error) {
	if len(p.prefix) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.prefix)
	p.prefix = p.prefix[n:]
	return n, nil
}

// watch makes I/O on nc end when ctx does. The returned function ends the watch and turns an error that ctx caused
// into ctx's; after it the connection has no deadline, unless ctx ended, when it is left unusable.
func watch(ctx context.Context, nc net.Conn) func(error) error {
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	return func(err error) error {
		if !stop() && ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", context.Cause(ctx), errOr(err, io.ErrUnexpectedEOF))
		}
		_ = nc.SetDeadline(time.Time{})
		return err
	}
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
