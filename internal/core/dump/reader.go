package dump

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/loop"
)

// reader hands out what one connection brings, on a loop. All of it runs there.
type reader struct {
	s     *Source
	w     *wire
	l     *loop.Loop
	take  func(Payload) (more bool) // nil: only the FORMAT_DESCRIPTION event is wanted
	ended chan error                // gets why it has ended, once

	watch   *loop.Watch
	silence *loop.Timer // looks whether something comes at all
	group   *loop.Timer // the end of the wait for the rest of a commit group; nil: none is waited for
	heard   bool        // something has come since silence looked
	full    bool        // take has no room
	parked  bool        // the socket has something, which is not read because take has no room
	busy    bool        // handOut runs
}

// begin starts with what was read before.
func (r *reader) begin() {
	r.s.reader = r
	if err := r.listen(); err != nil {
		r.end(lost(err))
		return
	}
	r.silence = r.l.After(r.s.cfg.SilenceLimit, r.lookForSilence)
	r.handOut()
}

// end says why, unless it was said already. The connection stays open: see Source.retire.
func (r *reader) end(why error) {
	if r.s.reader != r {
		return
	}
	r.s.reader = nil
	r.s.mu.Lock()
	r.w.await = nil
	r.s.mu.Unlock()
	r.silence.Stop()
	r.group.Stop()
	r.watch.Remove()
	r.ended <- why
}

// listen watches the socket.
func (r *reader) listen() (err error) {
	if r.watch, err = r.l.Watch(r.w.sock.FD(), r.ready); err != nil {
		return err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.w.await = func() { r.l.Do(func() { r.watch.WantWrite(true) }) }
	r.watch.WantWrite(len(r.w.rest) > 0)
	return nil
}

func (r *reader) ready(is loop.Ready) {
	if is.Write() {
		r.s.mu.Lock()
		r.s.send(r.w)
		r.watch.WantWrite(len(r.w.rest) > 0)
		r.s.mu.Unlock()
	}
	switch {
	case !is.Read():
	case r.parked: // the other side has hung up, which a watch tells of in any case
		r.watch.Remove()
	case r.full:
		r.parked = true
		r.watch.WantRead(false)
	default:
		r.read()
	}
}

// resume goes on: take has room.
func (r *reader) resume() {
	r.full = false
	if r.parked {
		r.parked = false
		r.watch.Remove()
		if err := r.listen(); err != nil {
			r.end(lost(err))
			return
		}
	}
	if !r.busy {
		r.handOut()
	}
}

// read reads once, without waiting, and hands out what has come: what a turn of the loop brings makes one batch. It
// returns false if there is nothing.
func (r *reader) read() bool {
	st := r.s.st
	st.compact()
	n, err := r.w.sock.Read(st.space())
	switch {
	case err == unix.EAGAIN:
		return false
	case err != nil:
		r.end(lost(os.NewSyscallError("read", err)))
	case n == 0:
		r.end(lost(io.EOF))
	default:
		st.came(n)
		r.heard = true
		r.group.Stop()
		r.group = nil
		r.handOut()
	}
	return true
}

// handOut gives away what there is as far as take has room.
func (r *reader) handOut() {
	r.busy = true
	defer func() { r.busy = false }()
	for !r.full {
		p, ok, err := r.s.scan()
		switch {
		case err != nil:
			r.end(err)
			return
		case !ok:
			if r.take == nil && r.s.cut.fde != nil {
				r.end(nil)
			} else if r.s.b.cut.bytes > 0 && r.group == nil {
				r.group = r.l.After(groupLimit, r.groupOver)
			}
			return
		}
		r.s.hand(&p)
		failpoint.Hit("source.batch-cut")
		r.full = true // until take has said something else, or has called Resume
		if r.take(p) {
			r.full = false
		}
	}
}

// groupOver ends the wait for the rest of a commit group, if it has not come: the loop may have been held up.
func (r *reader) groupOver() {
	r.group = nil
	if !r.read() {
		r.s.groupWaited = true
		r.handOut()
	}
}

// lookForSilence comes twice per SilenceLimit. While take has no room nothing is read, and nothing is missed. A stream
// that still comes has been resumed, with a payload or without: the next loss has all of ReconnectLimit.
func (r *reader) lookForSilence() {
	r.silence = r.l.After(r.s.cfg.SilenceLimit/2, r.lookForSilence)
	switch {
	case r.heard:
		r.s.lostSince = time.Time{}
	case !r.full && !r.read(): // the loop may have been held up
		r.end(lost(os.ErrDeadlineExceeded))
	}
	r.heard = r.full
}
