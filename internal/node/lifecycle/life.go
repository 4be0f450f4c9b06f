package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/run"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// Life is one incarnation of mysqld, from its start to its death.
type Life struct {
	Incarnation uint64
	UUID        gtid.UUID
	of          *Lives
	proc        Process
	mysql       MySQL
	tail        gtid.Set // what the life before it had written (shown once it is known what Raft kept of it)

	judgedXA atomic.Pointer[xaWatch] // the watch as the judgement begins it, until it is taken up
	own      ownXA                   // written by the judgement, then by promotions, one after the other

	fed     bool     // replication from the feed was started; written by the judgement
	limit   trxLimit // transaction_refuse as it is in force here
	refused uint64   // transactions that were; see Refused
	leftOut leftOut  // see LeftOut
	purged  uint32   // the binary log has been purged up to this file; see TidyBinlog

	channel sync.Mutex // held while the receiver is pointed somewhere, and while it starts; see Lives.lock

	gate   sync.Mutex  // held while writes are opened, and while they are closed; see Lives.lock
	polite atomic.Bool // it is this daemon that shuts mysqld down

	mu       sync.Mutex
	source   Stream
	consumed raftlog.Pos // where the next dump starts
	executed gtid.Set    // as last read
	writes   writes
	carried  chan struct{} // closed when the stream is not carried any more; nil: it never was
	stalled  string        // why the stream cannot be carried on; empty: it can
	events   bool          // scheduled events were started
}

// ErrDead ends what was begun with a life that has ended since.
var ErrDead = errors.New("this mysqld is dead")

// Start begins a new incarnation: fresh server_uuid, no binary log, read-only (S5).
func (s *Lives) Start(ctx context.Context) (*Life, error) {
	if err := s.Memory.Remember(func(st *State) { st.Incarnation++ }); err != nil {
		return nil, err
	}
	failpoint.Hit("server.incarnation-persisted")
	inc := s.Memory.Recall().Incarnation
	proc, err := s.Host.NewProcess()
	if err != nil {
		return nil, err
	}
	l := &Life{Incarnation: inc, UUID: gtid.IncarnationUUID(s.Cluster, s.Node, inc),
		of: s, proc: proc, consumed: raftlog.Pos{File: 1, Off: 4}}
	// The start removes the binary log, also when it fails: what was in it is reported by the life that rejoins.
	s.tail.AddSet(proc.LoggedGTIDs())
	l.tail = s.tail.Clone()
	if err := l.proc.Start(ctx, l.UUID.String()); err != nil {
		return nil, err
	}
	err = l.connect(ctx)
	if err == nil {
		err = s.Host.Prove(ctx, l, proc.Certificate()) // before anybody is led there
	}
	if err == nil {
		err = ctx.Err() // no task would end it
	}
	if err != nil {
		return nil, errors.Join(err, l.proc.Kill())
	}
	s.tail = gtid.Set{}
	s.Logger.Info("mysqld is up, read-only", "pid", l.proc.Pid(), "incarnation", inc, "uuid", l.UUID.String())
	return l, nil
}

// connect opens every session to mysqld that will be needed, while logins still work (MYSQL-FACTS: an account statement
// that waits for its ACK makes every login hang).
func (l *Life) connect(ctx context.Context) error {
	l.mysql = l.proc.MySQL()
	set, err := l.mysql.GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	if l.executed, err = gtid.ParseSet(set); err != nil {
		return fmt.Errorf("gtid_executed: %w", err)
	}
	l.source = l.of.Host.NewSource(l)
	return l.source.Prepare(ctx)
}

// Admin is for what is asked of mysqld besides its life.
func (l *Life) Admin() *mysqld.Admin { return l.Process().Admin() }

// Process is the process, of a life on this host.
func (l *Life) Process() *mysqld.Server { return l.proc.(hostProcess).Server }

// Executed is what mysqld was last seen to have executed.
func (l *Life) Executed() gtid.Set {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.executed
}

// Stream is the source in use and where its next dump starts.
func (l *Life) Stream() (Stream, raftlog.Pos) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source, l.consumed
}

// Acked is up to where everything that this life wrote is committed.
func (l *Life) Acked() raftlog.Pos {
	src, from := l.Stream()
	if p := src.Acked(); from.Less(p) {
		return p
	}
	return from
}

// EndStream ends the dump of the binary log.
func (l *Life) EndStream() {
	src, _ := l.Stream()
	_ = src.Close()
}

// ReadExecuted reads gtid_executed, and returns up to which entry everything is applied.
func (l *Life) ReadExecuted(ctx context.Context) (applied uint64, err error) {
	text, err := l.mysql.GTIDExecuted(ctx)
	if err != nil {
		return 0, err
	}
	set, err := gtid.ParseSet(text)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.executed = set
	l.mu.Unlock()
	return l.of.Host.Executed(l, set)
}

// Watch waits for the end of the life, and says whether it has ended: a mysqld that was killed and whose disk hangs may
// not end before the daemon does, with which ctx ends.
func (l *Life) Watch(ctx context.Context) (ended bool) {
	h, x, dying := l.of.Host, l.of.exec, l.proc.Dying()
	err := x.Either(ctx, dying, l.proc.SocketGone())
	switch {
	case run.Closed(dying):
		h.Dying(l)
	case err == nil && !l.polite.Load():
		// Somebody else shuts mysqld down; a polite shutdown would release waiters (S4).
		l.of.Logger.Error("mysqld's socket file vanished: somebody is shutting it down; killing it", "pid", l.proc.Pid())
		if err := l.proc.Kill(); err != nil {
			h.Fail(fmt.Errorf("mysqld cannot be killed: %w", err))
			return false
		}
	}
	err = x.Wait(ctx, l.proc.Done())
	l.EndStream()
	return err == nil || run.Closed(l.proc.Done()) // if not, the daemon's end ends it
}
