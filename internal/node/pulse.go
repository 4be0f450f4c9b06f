package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/ha"
	"trireme/internal/mysqld"
	"trireme/internal/node/lifecycle"
	"trireme/internal/raftlog"
)

// How long what should go on may stand still before it counts as stuck.
const (
	pulseInterval = 500 * time.Millisecond
	pulsePatience = 400 * time.Millisecond // for the answer, at one look
	pulseGap      = 4 * pulseInterval      // looks further apart than this: the daemon itself did not run
	hungLimit     = 5 * time.Second        // mysqld without an answer, commit or applied transaction
	commitLimit   = 10 * time.Second       // sessions in the middle of a commit, and nothing is written to the binary log
	appendLimit   = 5 * time.Second        // one write and fsync of the raft log
	slowDisk      = 20 << 20               // bytes per second that a disk which is well flushes at least
)

// look is what one look at mysqld and at the raft log showed.
type look struct {
	at        time.Duration
	answered  bool // mysqld has answered within pulsePatience
	pulse     mysqld.Pulse
	open      bool // mysqld takes writes
	owed      bool // some of what mysqld wrote is not acknowledged: commits wait for Raft, and not for mysqld
	progress  progress
	appending time.Duration // since when the raft log is being written; 0: it is not
}

// progress changes whenever something is committed or applied.
type progress struct {
	read, acked raftlog.Pos
	applied     uint64
}

// pulse draws the conclusion from one look after the other. Time in which the daemon did not run itself is nobody's silence.
type pulse struct {
	last     time.Duration // of the looks
	awake    time.Duration // since when they have come in time
	silent   time.Duration // since when mysqld has shown nothing; 0: it did
	still    time.Duration // since when commits have stood still in mysqld; 0: they do not
	progress progress
	seen     progress // at the last answer
	based    bool     // there was one
	written  uint64
	settled  uint64 // what was written when commits last got on: what came since may be in one flush
}

// stuck is why something does not get on, empty if it does, and since when.
type stuck struct {
	why   string
	since time.Duration
}

// note takes a look. A commit that waits for Raft, a large transaction on its way into the binary log and a login that is refused are no
// fault.
func (p *pulse) note(l look) (server, log stuck) {
	if l.at > p.last+pulseGap {
		p.awake, p.silent, p.still, p.based = l.at, 0, 0, false
	}
	moved := l.progress != p.progress
	p.last, p.progress = l.at, l.progress
	switch {
	case l.answered || moved:
		p.silent = 0
	case p.silent == 0:
		p.silent = l.at
	}
	if l.answered {
		moved = moved || l.pulse.Written != p.written
		p.written = l.pulse.Written
		if !p.based || l.progress != p.seen || l.pulse.Committing == 0 {
			p.settled = p.written
		}
		p.based, p.seen = true, l.progress
		switch {
		case moved || l.pulse.Committing == 0 || l.owed || !l.open:
			p.still = 0
		case p.still == 0:
			p.still = l.at
		}
	}
	switch {
	case p.silent != 0 && l.at >= p.silent+hungLimit:
		server = stuck{"mysqld does not answer", p.silent}
	case p.still != 0 && l.at >= p.still+commitLimit+p.flushTime():
		server = stuck{"commits do not progress in mysqld: its disk is full, or hangs", p.still}
	}
	if since := max(l.appending, p.awake); l.appending != 0 && l.at >= since+appendLimit {
		log = stuck{"the disk of the raft log hangs", since}
	}
	return server, log
}

// flushTime is how long a disk may need for what was written since commits last got on. A large transaction is flushed in one go
// (durability = "double"), and nothing shows how far that is.
func (p *pulse) flushTime() time.Duration {
	return time.Duration(float64(p.written-min(p.settled, p.written)) / slowDisk * float64(time.Second))
}

// feelPulse looks at mysqld, over a connection that has been open since its start, and at the raft log's disk.
func (n *Node) feelPulse(ctx context.Context) {
	n.mu.Lock()
	life := n.srv.life
	l := look{open: n.takesWritesLocked()}
	l.progress.applied = n.srv.backlog.Applied
	n.mu.Unlock()
	if life != n.pulseOf {
		n.pulseOf, n.pulse = life, pulse{}
	}
	l.answered = true
	if life != nil {
		pctx, cancel := context.WithTimeout(ctx, pulsePatience)
		var err error
		l.pulse, err = life.Admin().Ping(pctx)
		cancel()
		l.answered = err == nil
		src, _ := life.Stream()
		l.progress.read, l.progress.acked = src.Position(), src.Acked()
		l.owed = l.progress.acked.Less(l.progress.read)
	}
	l.appending = time.Duration(n.cons.AppendingSince())
	l.at = now()
	server, log := n.pulse.note(l)

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv.life != life {
		return
	}
	if n.srv.hung.why != server.why || n.logStuck.why != log.why {
		n.publishNow = true
		defer n.poke()
	}
	n.srv.hung, n.logStuck = server, log
}

// stuckLocked is why mysqld cannot serve although it is alive, empty if it can; since is set when time may heal it.
func (n *Node) stuckLocked() (why string, since time.Duration) {
	if n.srv.stuck != "" {
		return n.srv.stuck, 0
	}
	return n.srv.hung.why, n.srv.hung.since
}

// restartServer ends a mysqld that serves nothing and does not get on; its end brings the next start.
func (n *Node) restartServer(reason string) {
	n.mu.Lock()
	l := n.srv.life
	n.mu.Unlock()
	if l == nil {
		return
	}
	n.log.Error("killing mysqld", "why", reason, "pid", l.Process().Pid())
	n.history.add(n.event("restart", 0, "mysqld was killed: "+reason))
	n.endServer(l)
}

// endServer sends SIGKILL and waits a moment for the end. A process that hangs in the kernel, with its disk, can stay for longer: it does
// nothing any more, and nobody waits for it.
func (n *Node) endServer(l *lifecycle.Life) {
	if err := l.Process().SendKill(); err != nil {
		n.fail(fmt.Errorf("mysqld cannot be killed: %w", err)) // it ends with this process
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv.life == l {
		n.srv.state, n.srv.stuck, n.srv.hung = ha.ServerDying, "", stuck{}
		n.publishNow = true
	}
}
