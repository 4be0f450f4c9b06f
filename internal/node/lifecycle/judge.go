package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/mysql/sqlkind"
)

// ErrStillFed: replication that an earlier judgement of this life has begun does not end. Such a life cannot be judged
// any more.
var ErrStillFed = errors.New("it has to be judged again, and its replication does not stop")

// Judge decides by S5 whether what InnoDB holds is a prefix of what was acknowledged, plugs the holes and lets the feed
// begin. rolledBack is what the life before has written and Raft does not have.
func (l *Life) Judge(ctx context.Context) (j *ledger.Judgement, rolledBack gtid.Set, err error) {
	if j, err = l.judge(ctx); err != nil {
		return nil, rolledBack, err
	}
	// What mysqld holds was not rolled back. It may hold more than is committed: XA transactions that it had adopted to
	// lead.
	_, committed := l.of.Ledger.Snapshot()
	return j, l.tail.Subtract(committed).Subtract(l.own.judged), nil
}

// stopFeeding ends what an earlier judgement of this life has begun: what is judged must stand still, and a receiver
// that runs cannot be pointed anywhere.
func (l *Life) stopFeeding(ctx context.Context) error {
	if !l.fed {
		return nil
	}
	if err := l.mysql.StopReplica(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStillFed, err)
	}
	l.fed = false
	return nil
}

func (l *Life) judge(ctx context.Context) (*ledger.Judgement, error) {
	if err := l.stopFeeding(ctx); err != nil {
		return nil, err
	}
	s := l.of
	rctx, cancel := s.exec.WithTimeout(ctx, readIndexTimeout)
	defer cancel()
	if !mutant.S11 {
		index, err := s.Host.Raft().ReadIndex(rctx)
		if err != nil {
			return nil, err
		}
		if err := s.awaitCommitted(rctx, index); err != nil {
			return nil, fmt.Errorf("waiting for entry %d: %w", index, err)
		}
	}
	set, err := l.mysql.GTIDExecuted(ctx)
	if err != nil {
		return nil, err
	}
	executed, err := gtid.ParseSet(set)
	if err != nil {
		return nil, err
	}
	xids, err := l.mysql.XARecover(ctx)
	if err != nil {
		return nil, err
	}
	upTo, committed := s.Ledger.Snapshot()
	state, purged := s.Memory.Recall(), s.Log.Boundary()
	inherited, err := gtid.ParseSet(state.Inherited)
	if err != nil {
		return nil, fmt.Errorf("node.json: inherited: %w", err)
	}
	in := ledger.JudgeInput{Executed: executed, Committed: committed, Purged: purged.GTIDs, PurgedTo: purged.Index,
		Base: s.Base, Durable: state.Durable,
		XARecover: XIDKeys(xids), Inherited: inherited, Local: state.Harmless(s.Cluster, s.Node)}
	marks := ledger.Marker{Executed: executed, Now: time.Now()}
	j, err := ledger.Judge(in, func(known gtid.Set, f func(ledger.Txn) error) error {
		return s.scanLog(known, upTo, func(t ledger.Txn) error { marks.Add(t); return f(t) })
	})
	if err != nil || !j.Consistent() {
		return j, err
	}
	if err := s.Host.FollowDecisions(executed.Union(j.Plug)); err != nil {
		return nil, err
	}
	if !j.Plug.Empty() {
		if err := failpoint.Err("judge.before-plug"); err != nil {
			return nil, err
		}
		if err := l.mysql.PlugGTIDs(ctx, j.Plug.String()); err != nil {
			return nil, fmt.Errorf("plugging %s: %w", j.Plug, err)
		}
		failpoint.Hit("judge.after-plug")
	}
	// Everything below next is executed. Purging and the watch over XA transactions go on from there: what a restart
	// leaves unknown for a moment would hold the log at its bound, or let a transaction be ended unseen.
	next, _, err := s.Log.SeekGTID(executed.Union(j.Plug).Union(purged.GTIDs), upTo)
	if err != nil {
		return nil, fmt.Errorf("finding where mysqld left off: %w", err)
	}
	l.own = ownXA{found: map[mysqld.XID]bool{}, judged: executed.Union(j.Plug), adopted: map[mysqld.XID]gtid.GTID{}}
	for _, x := range xids {
		l.own.found[x] = true
	}
	w := newXAWatch(l, next-1, in.XARecover) // what ends those and lies below is executed
	l.judgedXA.Store(&w)
	keep := uint64(0)
	if len(xids) == 0 { // else see KeepDurable
		keep = min(state.Durable, next-1)
	}
	s.setKeepFrom(l, keep)
	s.Ledger.Restart(marks.List, upTo)
	if err := l.connectFeed(ctx); err != nil {
		return nil, err
	}
	if err := failpoint.Err("judge.after-feed"); err != nil {
		return nil, err
	}
	if err := l.mysql.AdmitClients(ctx); err != nil {
		return nil, err
	}
	_, err = l.ReadExecuted(ctx)
	return j, err
}

// XIDKeys are prepared XA transactions, named as the log's scanner names them. mysqld writes 32 bits of a format id
// into the binary log's XA_PREPARE event.
func XIDKeys(xids []mysqld.XID) map[string]bool {
	m := make(map[string]bool, len(xids))
	for _, x := range xids {
		m[sqlkind.XID{FormatID: uint32(x.FormatID), GTRID: x.Gtrid, BQual: x.Bqual}.String()] = true
	}
	return m
}

// scanLog gives the transactions of the committed log to f, from the first one that is not in known up to index upTo.
func (s *Lives) scanLog(known gtid.Set, upTo uint64, f func(ledger.Txn) error) error {
	from, _, err := s.Log.SeekGTID(known, upTo)
	if err != nil {
		return fmt.Errorf("finding where mysqld left off: %w", err)
	}
	if from > upTo {
		return nil
	}
	var sc ledger.Scanner
	return s.Log.Scan(from, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return sc.Entry(m, index, events, f)
	})
}

// resumeFeed feeds it again, unless its data was found to differ meanwhile: it must be seeded then.
func (l *Life) resumeFeed() {
	if s := l.of.Status(); s.State() != ha.ServerBroken {
		l.of.Feed.Resume()
	}
}

// connectFeed points mysqld's receiver at this daemon and starts it.
func (l *Life) connectFeed(ctx context.Context) error {
	ch, err := l.of.Feed.Begin()
	if err != nil {
		return err
	}
	if err := l.mysql.SetTolerant(ctx, false); err != nil { // an earlier judgement of this life may have left it
		return err
	}
	l.resumeFeed()
	if err := l.mysql.SetSemisync(ctx, false); err != nil {
		return err
	}
	if err := l.mysql.SetDurabilityRole(ctx, false); err != nil {
		return err
	}
	if err := l.of.lock(ctx, &l.channel); err != nil {
		return err
	}
	defer l.channel.Unlock()
	if err := l.mysql.ConfigureChannel(ctx, ch); err != nil {
		return fmt.Errorf("pointing mysqld's receiver at the feed: %w", err)
	}
	l.fed = true
	if err := l.mysql.StartReplica(ctx); err != nil {
		return fmt.Errorf("starting replication from the feed: %w", err)
	}
	return nil
}

// errNotFed: the receiver may point at a plain source (LeaveFeed), or mysqld leads.
var errNotFed = errors.New("this mysqld does not follow any more")

// RestartFeed starts replication from the feed again where it has stopped.
func (l *Life) RestartFeed(ctx context.Context) error {
	if err := l.of.lock(ctx, &l.channel); err != nil {
		return err
	}
	defer l.channel.Unlock()
	if s := l.of.Status(); s.Life() != l || !s.Follows() {
		return errNotFed
	}
	return l.mysql.StartReplica(ctx)
}

// ApplyError is what stopped the applier, of which st tells.
func (l *Life) ApplyError(ctx context.Context, st mysqld.ReplicaStatus) (mysqld.ApplyError, error) {
	return l.mysql.ApplyError(ctx, st)
}

// errStays: what was begun with Leave does not hold any more.
var errStays = errors.New("its mysqld was restarted, or judged again, meanwhile")

// LeaveFeed ends replication from the feed, and points the receiver at a plain source for the next start of mysqld. The
// status says Leave: such a mysqld is not promoted, and must not replicate from there as long as the cluster exists
// (S3, S5). Only a judgement brings the feed back.
func (l *Life) LeaveFeed(ctx context.Context, ch mysqld.Channel) error {
	if err := l.of.lock(ctx, &l.channel); err != nil {
		return err
	}
	defer l.channel.Unlock()
	if s := l.of.Status(); s.Life() != l || !s.HasLeft() {
		return errStays
	}
	if err := l.mysql.StopReplica(ctx); err != nil {
		return err
	}
	return l.mysql.ConfigurePlain(ctx, ch)
}
