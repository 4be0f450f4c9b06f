package lifecycle

import (
	"context"
	"time"

	"trireme/internal/base/run"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
)

// How long what should go on may stand still before it counts as stuck.
const (
	ProbeInterval = 500 * time.Millisecond
	probePatience = 400 * time.Millisecond // for the answer, at one look
	probeGap      = 4 * ProbeInterval      // looks further apart than this: the daemon itself did not run
	hungLimit     = 5 * time.Second        // mysqld without an answer, commit or applied transaction
	commitLimit   = 10 * time.Second       // sessions in the middle of a commit, and the binary log does not grow
	appendLimit   = 5 * time.Second        // one write and fsync of the raft log
	slowDisk      = 20 << 20               // bytes per second that a disk which is well flushes at least
)

// look is what one look at mysqld and at the raft log showed.
type look struct {
	at        time.Duration
	answered  bool // mysqld has answered within probePatience
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

// Probe finds a mysqld that is alive and makes no progress, and a disk of the raft log that hangs: it draws the
// conclusion from one look after the other. Time in which the daemon did not run itself does not count as silence. It
// is for one goroutine.
type Probe struct {
	exec     run.Exec
	of       *Life
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

// Probe has not looked yet.
func (s *Lives) Probe() *Probe { return &Probe{exec: s.exec} }

// Stuck is why something makes no progress, empty if it does, and since when.
type Stuck struct {
	Why   string
	Since time.Duration
}

// note takes a look. A commit that waits for Raft, a large transaction on its way into the binary log and a login that
// is refused are no fault.
func (p *Probe) note(l look) (server, log Stuck) {
	if l.at > p.last+probeGap {
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
		server = Stuck{"mysqld does not answer", p.silent}
	case p.still != 0 && l.at >= p.still+commitLimit+p.flushTime():
		server = Stuck{"commits do not progress in mysqld: its disk is full, or hangs", p.still}
	}
	if since := max(l.appending, p.awake); l.appending != 0 && l.at >= since+appendLimit {
		log = Stuck{"the disk of the raft log hangs", since}
	}
	return server, log
}

// flushTime is how long a disk may need for what was written since commits last got on. A large transaction is flushed
// in one go (durability = "double"), and nothing shows how far that is.
func (p *Probe) flushTime() time.Duration {
	return time.Duration(float64(p.written-min(p.settled, p.written)) / slowDisk * float64(time.Second))
}

// Look looks at mysqld, over a connection that has been open since its start, and at the raft log's disk. l is the
// life, nil if none runs, open says whether it takes writes and applied up to which entry it has applied
// everything; appending tells since when the raft log is being written (consensus.Node.AppendingSince).
func (p *Probe) Look(ctx context.Context, l *Life, open bool, applied uint64, appending func() int64) (server,
	log Stuck) {
	if p.of != l {
		*p = Probe{exec: p.exec, of: l}
	}
	look := look{open: open, answered: true}
	look.progress.applied = applied
	if l != nil {
		pctx, cancel := p.exec.WithTimeout(ctx, probePatience)
		var err error
		look.pulse, err = l.mysql.Ping(pctx)
		cancel()
		look.answered = err == nil
		src, _ := l.Stream()
		look.progress.read, look.progress.acked = src.Position(), src.Acked()
		look.owed = look.progress.acked.Less(look.progress.read)
	}
	look.appending = time.Duration(appending())
	look.at = p.exec.Now()
	return p.note(look)
}
