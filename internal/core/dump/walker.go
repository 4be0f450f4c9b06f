package dump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const (
	// readBytes is how much of the log is asked for at once.
	readBytes = 1 << 20
	// reannounceAt is the position from which the next transaction gets a new ROTATE event, which starts the
	// receiver's count again: heartbeats of version 1 carry 32 bits.
	reannounceAt = 1 << 31
	// packBelow bounds what is packed into one event, bytes of a transaction: it saves a cost per event, and large ones
	// have few per byte.
	packBelow = 64 << 10
)

// dumpServer is what the committed log is sent by, to whomever. A receiver has one of its own: log is read by one
// goroutine at a time.
type dumpServer struct {
	log      Log
	serverID uint32 // of events that stand in no log
	version  string // before the log tells one
	appliers int    // FeedConfig.Appliers
	gates    []Gate
	void     func(gtid.GTID) bool // FeedConfig.Void
	// tolerance is nil where every transaction goes as it is.
	tolerance *Tolerance
	loan      *loan // nil: a goroutine does all
	// exact makes ROTATE events name true offsets in a source's binary log, so that a receiver may keep its position by
	// file and offset. Small transactions are not packed then.
	exact bool
	stats *counters
	tasks *sync.WaitGroup
}

// counters of what is sent.
type counters struct {
	next, transactions, bytes atomic.Uint64
}

// sending is what one dump is asked for.
type sending struct {
	has       gtid.Set
	paused    bool          // heartbeats only
	heartbeat time.Duration // 0: none
	until     uint64        // index after which the dump ends; 0: never
	plain     bool          // the first ROTATE goes without a checksum
	from      fileID        // what the receiver calls its place, and from where on it counts
	offset    uint64
}

// errComplete ends a dump that has sent all that it was asked for.
var errComplete = errors.New("the dump is complete")

// serve runs one dump. It returns when the dump is stopped, the log fails, or all was sent (errComplete).
func (o *dumpServer) serve(w *packetWriter, s *sending) error {
	k, err := o.begin(w, s)
	if err != nil {
		return err
	}
	if s.heartbeat > 0 {
		o.tasks.Go(func() { w.beat(o.serverID, s.heartbeat) })
	}
	o.tasks.Go(func() { // a receiver says nothing during a dump: what can be read is its end
		var b [1]byte
		_, _ = w.nc.Read(b[:])
		w.stop(errGone)
	})
	if s.paused {
		<-w.ctx.Done()
		return context.Cause(w.ctx)
	}
	return k.run(w.ctx)
}

// begin finds where a dump begins, and announces that.
func (o *dumpServer) begin(w *packetWriter, s *sending) (*walker, error) {
	var index uint64
	var fde []byte
	if !s.paused {
		var err error
		if index, fde, err = o.log.SeekGTID(s.has); err != nil {
			return nil, fmt.Errorf("find where to begin: %w", err)
		}
	}
	if fde == nil {
		fde = binlog.AppendFormatDescription(nil, binlog.Header{}, o.version, 0)
	}
	k := &walker{o: o, w: w, sending: s, next: index, fde: fde}
	w.plain = s.plain
	if err := k.announce(s.from, max(s.offset, firstOffset)); err != nil {
		return nil, err
	}
	return k, w.flush()
}

// walker goes through the committed log and sends the transactions that the receiver lacks.
type walker struct {
	o *dumpServer
	w *packetWriter
	*sending
	next uint64 // index

	fde []byte // in force, from the newest barrier
	asm binlog.Assembler
	// announced is the stream of the newest ROTATE; the receiver's logical clocks are local to it.
	announced fileID
	pending   *pending
	begun     uint64       // offset of the transaction at hand in its source's binary log
	meta      raftlog.Meta // of the entry at hand; reused
	packed    []byte       // a transaction that was packed; reused
	gtid      [256]byte    // a GTID event that was changed; reused
	onLoop    bool         // nothing may wait
}

// fileID names a binary log file of an incarnation.
type fileID struct {
	node        uint16
	incarnation uint64
	file        uint32
}

// String is the name of the file towards receivers.
func (f fileID) String() string {
	return string(appendFileName(nil, fmt.Sprintf("trireme-%d-%d", f.node, f.incarnation), f.file))
}

// pending is a transaction whose end has not been committed yet.
type pending struct {
	index       uint64 // of the entry in which it begins
	offset      int    // among that entry's events
	term        uint64
	incarnation uint64
	gtid        []byte // its GTID event
}

// run sends until ctx ends.
func (k *walker) run(ctx context.Context) error {
	for {
		committed := k.o.log.Committed()
		if k.until != 0 {
			committed = min(committed, k.until)
		}
		k.o.stats.next.Store(k.next)
		if k.next > committed {
			if err := k.flush(); err != nil {
				return err
			}
			if k.until != 0 && committed == k.until {
				return errComplete
			}
			failpoint.Hit("feed.after-flush")
			if err := k.await(ctx); err != nil {
				return err
			}
			continue
		}
		if err := k.read(ctx, k.next, committed, func(e *Entry) error { return k.entry(ctx, e) }); err != nil {
			return err
		}
	}
}

// read calls f with the entries from index from on that one look at the log gives.
func (k *walker) read(ctx context.Context, from, to uint64, f func(*Entry) error) error {
	entries, err := k.o.log.Read(ctx, from, to, readBytes)
	if err != nil {
		return fmt.Errorf("read entry %d: %w", from, err)
	}
	if len(entries) == 0 {
		return broken(errFeed, "entry %d is committed and not in the log", from)
	}
	for i := range entries {
		if err := f(&entries[i]); err != nil {
			return fmt.Errorf("entry %d: %w", entries[i].Index, err)
		}
	}
	return nil
}

func (k *walker) flush() error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.w.flush()
}

// entry takes the next entry.
func (k *walker) entry(ctx context.Context, e *Entry) error {
	if e.Index != k.next {
		return broken(errFeed, "the log gave entry %d for %d", e.Index, k.next)
	}
	k.next++
	if len(e.Data) == 0 {
		return nil
	}
	events, err := k.meta.Decode(e.Data)
	if err != nil {
		return fmt.Errorf("%w: %w", errFeed, err)
	}
	switch k.meta.Kind {
	case raftlog.Barrier:
		return k.barrier(e.Term, events)
	case raftlog.Trx:
		return k.trx(ctx, e, events)
	}
	return nil
}

// barrier begins an incarnation or a term: an unfinished transaction of another incarnation, or of an earlier term,
// never happened.
func (k *walker) barrier(term uint64, events []byte) error {
	if err := binlog.VerifyChecksum(events); err != nil {
		return fmt.Errorf("%w: barrier: %w", errFeed, err)
	}
	if _, err := binlog.ParseFormatDescription(events); err != nil {
		return fmt.Errorf("%w: barrier: %w", errFeed, err)
	}
	k.fde = append([]byte(nil), events...)
	if p := k.pending; p != nil && (p.incarnation != k.meta.Incarnation || p.term < term) {
		k.pending = nil
		k.asm.Reset()
	}
	return nil
}

// trx checks an entry's events and sends the transactions that end in it.
func (k *walker) trx(ctx context.Context, e *Entry, events []byte) error {
	p := k.pending
	if continues := k.meta.Flags&raftlog.FlagContinues != 0; continues != (p != nil) {
		return broken(errFeed, "entry continues a transaction: %v, one is unfinished: %v", continues, p != nil)
	}
	if p != nil && (p.incarnation != k.meta.Incarnation || p.term != e.Term) {
		return broken(errFeed, "incarnation %d in term %d continues a transaction of %d in term %d",
			k.meta.Incarnation, e.Term, p.incarnation, p.term)
	}
	start := 0 // of the transaction at hand, when it begins here
	for off := 0; off < len(events); {
		h, ev, _, err := binlog.Cut(events[off:])
		if err == nil {
			err = binlog.VerifyChecksum(ev)
		}
		var boundary binlog.Boundary
		if err == nil {
			boundary, err = k.asm.Feed(h, ev)
		}
		if err != nil {
			return fmt.Errorf("%w: event at offset %d: %w", errFeed, off, err)
		}
		end := off + len(ev)
		switch boundary {
		case binlog.Outside:
			return broken(errFeed, "%v at offset %d belongs to no transaction", h.Type, off)
		case binlog.Start:
			start, k.begun = off, binlog.PositionOf(k.meta.Start.Off, h.LogPos)-uint64(len(ev))
		case binlog.End:
			if err := k.finish(ctx, e, events[start:end]); err != nil {
				return err
			}
			failpoint.Hit("feed.after-trx")
		}
		off = end
	}
	unfinished := k.asm.InTransaction()
	if unfinished != (k.meta.Flags&raftlog.FlagUnfinished != 0) {
		return broken(errFeed, "entry's flags %#x, and its last event ends a transaction: %v", k.meta.Flags, !unfinished)
	}
	if unfinished && k.pending == nil {
		_, first, _, err := binlog.Cut(events[start:])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvariant, err) // it was cut above
		}
		k.pending = &pending{index: e.Index, offset: start, term: e.Term, incarnation: k.meta.Incarnation,
			gtid: bytes.Clone(first)}
	}
	return nil
}

// finish sends the transaction that ends with these events of an entry, unless the receiver has it.
func (k *walker) finish(ctx context.Context, e *Entry, events []byte) error {
	p, id := k.pending, k.asm.Trx().GTID
	k.pending = nil
	if k.has.Contains(id) {
		return nil
	}
	for _, g := range k.o.gates {
		if err := k.hold(ctx, g); err != nil {
			return err
		}
	}
	if !k.onLoop { // which has the writer already
		k.w.mu.Lock() // keeps heartbeats away
		defer k.w.mu.Unlock()
	}
	if err := k.announceChange(); err != nil {
		return err
	}
	failpoint.Hit("feed.before-trx")
	k.o.stats.transactions.Add(1)
	k.o.stats.bytes.Add(k.asm.Trx().Bytes)
	if k.o.void != nil && k.o.void(id) {
		first := events
		if p != nil {
			first = p.gtid
		}
		_, first, _, err := binlog.Cut(first)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvariant, err)
		}
		void, err := binlog.AppendVoid(nil, first)
		if err != nil {
			return fmt.Errorf("%w: %w", errFeed, err)
		}
		return k.send(void)
	}
	send := k.send
	if k.o.tolerance != nil && k.o.tolerance.is(id) {
		send = k.sendUnchecked
	} else if p == nil {
		events = k.pack(events)
	}
	if p != nil {
		if err := k.sendChunks(ctx, p, e.Index, send); err != nil {
			return err
		}
	}
	return send(events)
}

// sendUnchecked sends checked events so that a replica applies them without foreign key checks. The GTID event before
// them may name another length; replicas do not rely on it.
func (k *walker) sendUnchecked(events []byte) error {
	for len(events) > 0 {
		_, ev, rest, err := binlog.Cut(events)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvariant, err)
		}
		if err := binlog.Unchecked(ev, k.send); err != nil {
			return err
		}
		events = rest
	}
	return nil
}

// hold returns when a gate lets the transaction at hand pass. What goes before it is on its way to the receiver
// meanwhile.
func (k *walker) hold(ctx context.Context, g Gate) error {
	for {
		wait, changed := g.Pass(k.asm.Trx())
		if wait <= 0 {
			return nil
		}
		if k.onLoop {
			return errHold
		}
		if err := k.flush(); err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return fmt.Errorf("hold back %s: %w", k.asm.Trx().GTID, context.Cause(ctx))
		}
	}
}

// pack makes two events of a small transaction's, if it may: the receiver's threads and its relay log have a cost for
// each. What cannot be packed is given back as it is.
func (k *walker) pack(events []byte) []byte {
	if k.o.exact || k.asm.Trx().Kind != binlog.RowsXID || len(events) > packBelow {
		return events
	}
	packed, ok, err := binlog.AppendPacked(k.packed[:0], events)
	if k.packed = packed; err != nil || !ok {
		return events
	}
	return packed
}

// send sends checked events.
func (k *walker) send(events []byte) error {
	for len(events) > 0 {
		_, ev, rest, err := binlog.Cut(events)
		if err != nil {
			return fmt.Errorf("%w: %w", errFeed, err)
		}
		n := k.o.appliers
		if n > 0 && binlog.WaitsForAll(ev, rest) {
			n = 1
		}
		if err := k.w.event(binlog.LimitInFlight(k.gtid[:0], ev, int64(n))); err != nil {
			return err
		}
		events = rest
	}
	return nil
}

// sendChunks reads the pieces of a transaction once more, up to the entry before its last, and sends them: it was not
// kept while its end was awaited.
func (k *walker) sendChunks(ctx context.Context, p *pending, last uint64, send func(events []byte) error) error {
	var m raftlog.Meta
	for next := p.index; next < last; {
		err := k.read(ctx, next, last-1, func(e *Entry) error {
			if e.Index != next {
				return broken(errFeed, "the log gave entry %d for %d", e.Index, next)
			}
			if next++; len(e.Data) == 0 {
				return nil
			}
			events, err := m.Decode(e.Data)
			if err != nil {
				return fmt.Errorf("%w: %w", errFeed, err)
			}
			if m.Kind != raftlog.Trx {
				return nil
			}
			if e.Index == p.index {
				events = events[p.offset:]
			}
			return send(events)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// announceChange begins a new file for the receiver where the source did, or where its count gets too high. An exact
// one is told too where its count is not the source's: events that are in no entry lie between two transactions.
func (k *walker) announceChange() error {
	to := fileID{k.meta.Node, k.meta.Incarnation, k.meta.End.File}
	switch {
	case k.o.exact && to != k.announced:
		return k.announce(to, k.begun)
	case k.o.exact && k.w.pos != k.begun:
		return k.w.rotate(k.o.serverID, to.String(), k.begun)
	case k.o.exact || to == k.announced && k.w.pos < reannounceAt:
		return nil
	}
	return k.announce(to, firstOffset)
}

// announce begins a file at an offset, with the FORMAT_DESCRIPTION event in force. That event counts towards the
// receiver's offset: with the 0 that would make it artificial, a cut in mid-transaction can leave a parallel applier
// waiting (docs/mysql.md). So the offset is sent again after the event. It is also sent before the event, because a
// receiver that is cut off between the two comes back for what comes after the last offset that it was told.
func (k *walker) announce(to fileID, offset uint64) error {
	k.announced = to
	fde := withServerID(k.fde, k.o.serverID)
	binlog.SetLogPos(fde, uint32(offset)+uint32(len(fde)))
	if err := k.w.rotate(k.o.serverID, to.String(), offset); err != nil {
		return err
	}
	if err := k.w.event(fde); err != nil || offset == firstOffset {
		return err
	}
	return k.w.rotate(k.o.serverID, to.String(), offset)
}
