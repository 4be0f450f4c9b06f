package dump

import (
	"context"
	"fmt"
	"net"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// Stepper is a Source without connections and goroutines: its caller brings the events of a dump, and carries what Ack
// takes. With the same calls it does the same things. It is for simulations; not safe for concurrent use.
type Stepper struct{ *Source }

// NewStepper makes a Stepper; Dial, Loop and the account of cfg are not used.
func NewStepper(cfg SourceConfig) *Stepper { return &Stepper{NewSource(cfg)} }

// Attach is Source.Attach: the caller begins a dump at from.
func (x *Stepper) Attach(from raftlog.Pos) {
	x.begin(from)
	x.attached = true
	x.rewind(from)
}

// Resume starts again after a lost connection. It returns where the new dump has to begin.
func (x *Stepper) Resume() (from raftlog.Pos) {
	_ = x.st.reset(nil)
	x.rewind(x.acked)
	return x.acked
}

// Event takes the next event of the dump. Next is called between events until it has nothing.
func (x *Stepper) Event(event []byte, needAck bool) error {
	st := x.st
	st.compact()
	size := eventOffset + len(event)
	if size > len(st.buf)-st.filled || len(event)+prefixLen >= mysqlwire.MaxPayload {
		return fmt.Errorf("dump: an event of %d bytes does not fit", len(event))
	}
	packet := st.buf[st.filled : st.filled+size]
	mysqlwire.PutHeader(packet, prefixLen+len(event), 0)
	packet[mysqlwire.HeaderLen], packet[mysqlwire.HeaderLen+1], packet[mysqlwire.HeaderLen+2] = 0, semiSyncMagic, 0
	if needAck {
		packet[mysqlwire.HeaderLen+2] = 1
	}
	copy(packet[eventOffset:], event)
	st.filled += size
	return nil
}

// Next is the next payload; ok is false while more events are needed. waited says that the rest of a commit group did
// not come in time. Every error means that the stream is broken.
func (x *Stepper) Next(waited bool) (p Payload, ok bool, err error) {
	x.groupWaited = waited
	if p, ok, err = x.scan(); err != nil {
		return p, false, asInvariant(err)
	}
	if ok {
		x.hand(&p)
	}
	return p, ok, nil
}

// FDE is the incarnation's FORMAT_DESCRIPTION event, for its barrier; nil before the dump has brought it.
func (x *Stepper) FDE() []byte { return append([]byte(nil), x.cut.fde...) }

// FeedStepper is the dump that a Feed sends to its receiver, without connections and goroutines. It is for simulations,
// as Stepper is; its receiver has to close nothing.
type FeedStepper struct {
	walker *walker
	sent   collector
	stats  counters
}

// NewFeedStepper begins a dump for a receiver that has some transactions. Of cfg only Appliers, ServerID,
// ServerVersion, Void and Tolerance count.
func NewFeedStepper(cfg FeedConfig, log Log, has gtid.Set) (*FeedStepper, error) {
	x := &FeedStepper{}
	o := &dumpServer{log: log, serverID: cfg.ServerID, version: cfg.ServerVersion, appliers: cfg.Appliers,
		void: cfg.Void, tolerance: cfg.Tolerance, stats: &x.stats}
	k, err := o.begin(newPacketWriter(context.Background(), &x.sent, 0), &sending{has: has})
	x.walker = k
	return x, err
}

// Next hands out what is committed, a few entries at most, event by event. more says that there is more.
func (x *FeedStepper) Next(ctx context.Context, entries uint64, event func(ev []byte) error) (more bool, err error) {
	k := x.walker
	committed := k.o.log.Committed()
	if k.next <= committed {
		err = k.read(ctx, k.next, min(committed, k.next+entries-1), func(e *Entry) error { return k.entry(ctx, e) })
	}
	if err == nil {
		err = k.flush()
	}
	for err == nil && len(x.sent.b) > 0 {
		n, _ := mysqlwire.ParseHeader(x.sent.b)
		packet := x.sent.b[mysqlwire.HeaderLen : mysqlwire.HeaderLen+n]
		x.sent.b = x.sent.b[mysqlwire.HeaderLen+n:]
		err = event(packet[statusLen:])
	}
	return k.next <= committed, err
}

// collector is a connection that keeps what is written.
type collector struct {
	net.Conn
	b []byte
}

// Write implements net.Conn.
func (c *collector) Write(b []byte) (int, error) {
	c.b = append(c.b, b...)
	return len(b), nil
}

// SetWriteDeadline implements net.Conn.
func (c *collector) SetWriteDeadline(time.Time) error { return nil }
