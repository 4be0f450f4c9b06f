package robustness

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"trireme/lab/faultfs"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// diskFault is one that a node's disk has for a while.
type diskFault struct {
	what   string
	leader bool // whose disk it is
	fault  faultfs.Fault
	moves  bool   // another node leads while it lasts
	stays  bool   // the leader leads on, in its term
	ends   string // the daemon ends, and says so
	long   bool   // only in long runs
}

var (
	logSync = faultfs.Fault{Path: "raft", Ops: faultfs.Fsync}
	redo    = faultfs.Fault{Path: "#innodb_redo", Ops: faultfs.Write | faultfs.Fsync}
	data    = faultfs.Fault{Path: "*.ibd", Ops: faultfs.Write | faultfs.Fsync}
)

func failing(f faultfs.Fault) faultfs.Fault { f.Err = syscall.EIO; return f }
func hanging(f faultfs.Fault) faultfs.Fault { f.Hang = true; return f }
func slow(f faultfs.Fault) faultfs.Fault    { f.Delay = 200 * time.Millisecond; return f }
func hiccup(f faultfs.Fault) faultfs.Fault  { f.Delay, f.Times = 300*time.Millisecond, 3; return f }

var diskFaults = []diskFault{
	{what: "EIO on the log's fsync", leader: true, fault: failing(logSync), moves: true, ends: "input/output error"},
	{what: "EIO on the log's fsync", fault: failing(logSync), ends: "input/output error", long: true},
	{what: "EIO on the redo log", leader: true, fault: failing(redo), moves: true},
	{what: "EIO on data files", leader: true, fault: failing(data), moves: true, long: true},
	{what: "EIO on data files", fault: failing(data), long: true},
	{what: "slow fsync of the log", leader: true, fault: slow(logSync), long: true},
	{what: "slow fsync of the log", fault: slow(logSync)},
	{what: "hanging fsync of the log", fault: hanging(logSync)},
	{what: "three syncs of the log that take 0.3 s", leader: true, fault: hiccup(logSync), stays: true},
	{what: "no space for data", leader: true, fault: faultfs.Full("data"), long: true},
	{what: "no space for data", fault: faultfs.Full("data"), long: true},
	{what: "a log that is read-only", leader: true, fault: faultfs.ReadOnly("raft"), moves: true,
		ends: "read-only file system", long: true},
}

// TestDiskFaults lets disks fail and stall under load, one part of one node at a time; TestFullDisk and TestStalledDisk
// have the rest. A node whose log cannot be believed any more must end with the reason (S2), others must go on, the
// node must be back by itself or with its daemon's next start, and nothing may be lost.
func TestDiskFaults(t *testing.T) {
	t.Parallel()
	p := createPowered(t, directDisk)
	w := p.load(verify.Config{Writers: 8, Mixed: true, Rate: steady()})
	for _, f := range diskFaults {
		if f.long && !needs.IsLong() {
			continue
		}
		t.Run(f.what+map[bool]string{true: " of the leader", false: " of a follower"}[f.leader], func(t *testing.T) {
			p.t = t
			p.suffer(w, f)
		})
		if p.t = t; t.Failed() {
			return
		}
	}
	t.Logf("%s", p.check(w))
}

// suffer one fault, and its end.
func (p *powered) suffer(w *verify.Workload, f diskFault) {
	p.t.Helper()
	leader := p.healthy()
	victim, who := leader, "leader"
	if !f.leader {
		victim, who = p.others(leader)[0], "follower"
	}
	p.writesMore(w, 50)
	term := p.view().Term
	at := time.Now()
	must(p.t, p.disks[victim.Name].Inject(f.fault))
	switch {
	case f.moves:
		p.writesAfter(w, term)
	default:
		p.writesMore(w, 50)
	}
	if f.ends != "" {
		p.ends(victim, f.ends)
	}
	hits := 0
	eventually(p.t, healLimit, "the fault hits something", func() error {
		h, err := p.disks[victim.Name].Hits()
		if err != nil {
			return err
		}
		if hits = h[0]; hits == 0 {
			return errors.New("nothing has met it")
		}
		return nil
	})
	p.writesMore(w, 50)
	if !f.moves && !f.leader {
		if now := p.leader(); now != leader {
			p.t.Errorf("%s of a follower: leadership went from %s to %s", f.what, leader.Name, now.Name)
		}
	}
	if now := p.view(); f.stays && (now.Leader != leader.Name || now.Term != term) {
		p.t.Errorf("%s of the leader: %s leads in term %d, %s did in term %d", f.what, now.Leader, now.Term, leader.Name,
			term)
	}
	gap := w.Meter().LongestGap(at).Length()
	must(p.t, p.disks[victim.Name].Inject())
	healing := time.Now()
	if f.ends != "" {
		p.start(victim)
	}
	p.healthy()
	p.t.Logf("%s, %s %s: %d operations hit, write gap %v, healthy %v after its end", f.what, who, victim.Name, hits,
		gap.Round(time.Millisecond), time.Since(healing).Round(100*time.Millisecond))
}

// TestBrokenBinaryLog: a mysqld whose binary log lacks bytes, because a session was killed that waited for room in it
// (docs/mysql.md), is killed: another node leads, and this one is back by itself.
func TestBrokenBinaryLog(t *testing.T) {
	t.Parallel()
	p := createPowered(t, directDisk)
	leader := p.healthy()
	disk, term := p.disks[leader.Name], p.view().Term
	db, err := p.Routed().Open("")
	must(t, err)
	defer db.Close()
	for _, q := range []string{"CREATE DATABASE killed", "CREATE TABLE killed.t (id INT PRIMARY KEY, v LONGTEXT)"} {
		_, err := db.ExecContext(t.Context(), q)
		must(t, err)
	}
	committing := 0
	insert := func(id, bytes int) (session int64, done <-chan error) {
		conn, err := db.Conn(t.Context())
		must(t, err)
		must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&session))
		out := make(chan error, 1)
		go func() {
			_, err := conn.ExecContext(t.Context(), "INSERT INTO killed.t VALUES (?, REPEAT('x', ?))", id, bytes)
			out <- err
		}()
		committing++
		eventually(t, healLimit, "a commit is written", func() error {
			var n int
			err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist"+
				" WHERE state = 'waiting for handler commit'").Scan(&n)
			if err == nil && n < committing {
				err = fmt.Errorf("%d of %d", n, committing)
			}
			return err
		})
		return session, out
	}
	must(t, disk.Inject(faultfs.Fault{Path: "binlog/binlog.0*", Ops: faultfs.Write, Hang: true}))
	_, first := insert(1, 100)
	_, second := insert(2, 500) // while the first is being written, these two become a group
	session, third := insert(3, 20000)
	must(t, disk.Inject(faultfs.Full("binlog/binlog.0*")))
	must(t, <-first)
	eventually(t, healLimit, "the second's write finds no room", func() error {
		if hits, err := disk.Hits(); err != nil || hits[0] > 0 {
			return err
		}
		return errors.New("not yet")
	})
	_, err = db.ExecContext(t.Context(), fmt.Sprintf("KILL QUERY %d", session))
	must(t, err)
	p.failedOver(term)
	must(t, disk.Inject())
	must(t, p.tells(leader, "the stream of its binary log is broken"))
	if p.healthy() == leader {
		t.Error("the node whose binary log broke leads")
	}
	if err := <-second; err == nil {
		t.Error("the second, which is in no log, was acknowledged")
	}
	if err := <-third; err == nil {
		t.Error("the third, which was killed, was acknowledged")
	}
	p.equal()
}
