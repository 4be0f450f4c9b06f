package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of the calls, each inside the caller's context. A server that needs longer is stuck, and the caller fences.
const (
	quickLimit  = 5 * time.Second  // reads a status, sets a variable
	slowLimit   = 30 * time.Second // waits for threads or disks: STOP REPLICA, FLUSH, CHANGE SOURCE
	bulkLimit   = 30 * time.Minute // reads all data: CHECKSUM TABLE
	openLimit   = 20 * time.Second // all logins after a start
	probeLimit  = 10 * time.Minute // a Ping that is out; its callers have their own deadlines
	tableLimit  = 60 * time.Second // reads the dictionary
	sweepRounds = 3                // passes over the process list
)

// Admin is Trireme's own sessions on one incarnation: lanes that are logged in from the start on (package comment). Its
// methods may be called from any goroutine; calls of one lane run one after the other. Errors: ErrTimeout when a limit
// or ctx ended the call, and the server's own.
type Admin struct {
	cfg     Config
	probe   *lane // Ping and nothing else
	status  *lane // reads that never wait
	control *lane // variables that open and close the server
	channel *lane // replication threads: may take half a second
	wait    *lane // WAIT_FOR_EXECUTED_GTID_SET, of a promotion or a switchover
	follow  *lane // the same for readers, who must not keep a promotion waiting
	bulk    *lane // dictionary and table scans, flushes
	killer  *lane // KILL
	app     *lane // the only one that writes to the binary log; logs in when used
	sample  *lane // of the recorder and the governor; logs in when used, and takes nothing of the others' time

	cacheMax uint64 // max_binlog_cache_size as the server started with it; 0: not read yet

	pingMu sync.Mutex
	ping   chan pong // buffered; the answer that a Ping is out for, nil when none is
}

func newAdmin(c Config) *Admin {
	a := &Admin{cfg: c}
	spec := laneSpec{socket: c.Socket(), account: c.Admin}
	a.killer = newLane(spec)
	a.probe = newLane(spec)
	sampling := spec
	sampling.vars = map[string]string{"max_execution_time": strconv.FormatInt(sampleLimit.Milliseconds(), 10)}
	a.sample = newLane(sampling) // it kills nothing: the lane for that is for those who are in a hurry
	spec.abandon = a.abandon
	for _, l := range []**lane{&a.status, &a.control, &a.channel, &a.wait, &a.follow, &a.bulk} {
		*l = newLane(spec)
	}
	spec.logged = true
	a.app = newLane(spec)
	return a
}

func (a *Admin) lanes() []*lane {
	return []*lane{a.killer, a.probe, a.status, a.control, a.channel, a.wait, a.follow, a.bulk}
}

// openAll logs every lane in but app, which a cluster may never need.
func (a *Admin) openAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	for _, l := range a.lanes() {
		if err := l.open(ctx); err != nil {
			return fmt.Errorf("open admin sessions: %w", err)
		}
	}
	return nil
}

// Close ends all sessions. Start's caller need not: the end of the process does it.
func (a *Admin) Close() {
	for _, l := range append(a.lanes(), a.app, a.sample) {
		l.close()
	}
}

// abandon kills a statement that we stopped waiting for, with its connection.
func (a *Admin) abandon(id uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), killStatementLimit)
	defer cancel()
	_ = a.killer.exec(ctx, fmt.Sprintf("KILL %d", id)) // best effort: the caller has its error already
}

// limit names the call in its error and gives it its own limit.
func limit(ctx context.Context, d time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Pulse is what a server says of its commits, from memory: no file and no lock is touched for it. With
// performance_schema=OFF it comes from the process list and the sizes of the binary log's files.
type Pulse struct {
	Committing int    // sessions between the end of their statement and the end of their commit
	Written    uint64 // bytes of binary log that this incarnation has written
}

type pong struct {
	pulse Pulse
	err   error
}

// The states are those of a group commit and of AFTER_SYNC (mysqld.cc, all_server_stages; semisync_source.cc). Threads
// of the server's own keep such a state while they do nothing.
const (
	stateCommit = "waiting for handler commit"
	stateAck    = "Waiting for semi-sync ACK"

	pulseQuery = "SELECT @@performance_schema, (SELECT COUNT(*) FROM performance_schema.threads" +
		" WHERE TYPE = 'FOREGROUND' AND PROCESSLIST_COMMAND IN ('Query', 'Execute')" +
		" AND (PROCESSLIST_STATE = '" + stateCommit + "' OR PROCESSLIST_STATE LIKE '" + stateAck + "%'))," +
		" (SELECT COALESCE(SUM(SUM_NUMBER_OF_BYTES_WRITE), 0) FROM performance_schema.file_summary_by_event_name" +
		" WHERE EVENT_NAME = 'wait/io/file/sql/binlog')"
)

func (a *Admin) readPulse(ctx context.Context) (p Pulse, err error) {
	var instrumented bool
	err = a.probe.row(ctx, []any{&instrumented, &p.Committing, &p.Written}, pulseQuery)
	if err != nil || instrumented {
		return p, err
	}
	sessions, err := a.probe.query(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return p, err
	}
	for _, s := range sessions {
		asked := s["user"] != "system user" && (s["command"] == "Query" || s["command"] == "Execute")
		if asked && (s["state"] == stateCommit || strings.HasPrefix(s["state"], stateAck)) {
			p.Committing++
		}
	}
	p.Written = TreeBytes(a.cfg.BinlogDir())
	return p, nil
}

// TreeBytes is what the files below dir take, of what can be read.
func TreeBytes(dir string) (sum uint64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += uint64(info.Size())
			}
		}
		return nil
	})
	return sum
}

// Ping asks the server for a sign of life on a connection of its own. ctx is the deadline. A question that was not
// answered in time stays asked, and the next Ping waits for its answer: giving the connection up would mean a new
// login, which can hang on a server that is well (package comment). An error that the server itself reports, too many
// connections for instance, is a sign of life. One call at a time; a second one waits.
func (a *Admin) Ping(ctx context.Context) (Pulse, error) {
	a.pingMu.Lock()
	defer a.pingMu.Unlock()
	if a.ping == nil {
		answer := make(chan pong, 1)
		a.ping = answer
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
			defer cancel()
			var p pong
			p.pulse, p.err = a.readPulse(ctx)
			answer <- p
		}()
	}
	select {
	case p := <-a.ping:
		a.ping = nil
		if p.err != nil && errorNumber(p.err) == 0 {
			return p.pulse, fmt.Errorf("ping mysqld: %w", p.err)
		}
		return p.pulse, nil
	case <-ctx.Done():
		return Pulse{}, fmt.Errorf("ping mysqld: %w: %w", ErrTimeout, ctx.Err())
	}
}

// globals reads system variables, in the order of names.
func (a *Admin) globals(ctx context.Context, names ...string) ([]string, error) {
	values := make([]sql.NullString, len(names))
	dest := make([]any, len(names))
	exprs := make([]string, len(names))
	for i, n := range names {
		dest[i], exprs[i] = &values[i], "@@GLOBAL."+n
	}
	err := limit(ctx, quickLimit, "read settings", func(ctx context.Context) error {
		return a.status.row(ctx, dest, "SELECT "+strings.Join(exprs, ", "))
	})
	out := make([]string, len(names))
	for i, v := range values {
		out[i] = v.String
	}
	return out, err
}

// GTIDExecuted is @@GLOBAL.gtid_executed, without the line breaks that mysqld puts in.
func (a *Admin) GTIDExecuted(ctx context.Context) (string, error) {
	v, err := a.globals(ctx, "gtid_executed")
	return strings.ReplaceAll(v[0], "\n", ""), err
}

// GTIDOwned lists the GTIDs of transactions that are being committed, as "UUID:N#THREAD…" (@@GLOBAL.gtid_owned). Each
// is in it, or in gtid_executed if that is read afterwards.
func (a *Admin) GTIDOwned(ctx context.Context) (string, error) {
	v, err := a.globals(ctx, "gtid_owned")
	return strings.ReplaceAll(v[0], "\n", ""), err
}

// ReadOnly reports read_only and super_read_only.
func (a *Admin) ReadOnly(ctx context.Context) (readOnly, super bool, err error) {
	v, err := a.globals(ctx, "read_only", "super_read_only")
	return sameValue(v[0], "ON"), sameValue(v[1], "ON"), err
}

// PlugGTIDs marks the GTIDs of set as executed without executing anything (S5). set must be disjoint from
// gtid_executed.
func (a *Admin) PlugGTIDs(ctx context.Context, set string) error {
	return limit(ctx, slowLimit, "plug GTIDs", func(ctx context.Context) error {
		return a.control.exec(ctx, "SET GLOBAL gtid_purged = "+quote("+"+set))
	})
}

// SetSuperReadOnly closes the server for writes, or lifts only the ban for SUPER. Closing waits for running statements,
// and hangs if a commit waits for its acknowledgement: give ctx a deadline, and on ErrTimeout Kill.
func (a *Admin) SetSuperReadOnly(ctx context.Context, on bool) error {
	return a.setSwitch(ctx, slowLimit, "super_read_only", on) // ON switches read_only on too
}

// OpenWrites lets everybody write. VerifyLeaderSettings first (S4).
func (a *Admin) OpenWrites(ctx context.Context) error {
	return limit(ctx, quickLimit, "open writes", func(ctx context.Context) error {
		return a.control.exec(ctx, "SET GLOBAL read_only = OFF") // switches super_read_only off too
	})
}

// AdmitClients lets applications log in: a server starts offline, and turns all away that have not CONNECTION_ADMIN
// (error 3032).
func (a *Admin) AdmitClients(ctx context.Context) error {
	return a.setSwitch(ctx, quickLimit, "offline_mode", false)
}

// RefuseClients takes AdmitClients back: who is logged in without CONNECTION_ADMIN is cut off as well.
func (a *Admin) RefuseClients(ctx context.Context) error {
	return a.setSwitch(ctx, quickLimit, "offline_mode", true)
}

// WaitExecuted waits until set is executed. Reached is false when timeout was over first.
func (a *Admin) WaitExecuted(ctx context.Context, set string, timeout time.Duration) (reached bool, err error) {
	return waitExecuted(ctx, a.wait, set, timeout)
}

// FollowExecuted is WaitExecuted on a session of its own, for one who follows what is applied all the time.
func (a *Admin) FollowExecuted(ctx context.Context, set string, timeout time.Duration) (reached bool, err error) {
	return waitExecuted(ctx, a.follow, set, timeout)
}

func waitExecuted(ctx context.Context, l *lane, set string, timeout time.Duration) (reached bool, err error) {
	err = limit(ctx, timeout+quickLimit, "wait for GTIDs", func(ctx context.Context) error {
		var timedOut sql.NullInt64
		if err := l.row(ctx, []any{&timedOut},
			"SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", set, timeout.Seconds()); err != nil {
			return err
		}
		if !timedOut.Valid {
			return errors.New("WAIT_FOR_EXECUTED_GTID_SET returned NULL")
		}
		reached = timedOut.Int64 == 0
		return nil
	})
	return reached, err
}

// SetDurabilityRole switches mysqld's flushing to what the role needs (docs/configuration.md, mysql.durability).
func (a *Admin) SetDurabilityRole(ctx context.Context, leader bool) error {
	commit, sync := a.cfg.flushing(leader)
	return limit(ctx, quickLimit, "set flushing", func(ctx context.Context) error {
		return a.control.exec(ctx, "SET GLOBAL innodb_flush_log_at_trx_commit = "+commit+", GLOBAL sync_binlog = "+sync)
	})
}

// SetSemisync sets whether commits wait for an acknowledgement. Off is for a server that takes no writes. What waits
// there is a local statement (super_read_only does not stop ANALYZE or REPAIR TABLE) that would never be acknowledged,
// and everything that the applier commits waits for it (measured on 9.7.4). On a server on which clients' commits wait,
// it would release them (S4).
func (a *Admin) SetSemisync(ctx context.Context, on bool) error {
	return a.setSwitch(ctx, quickLimit, "rpl_semi_sync_source_enabled", on)
}

// SetTolerant has the applier pass over rows that are not there and replace those whose key is taken, or stop at both.
func (a *Admin) SetTolerant(ctx context.Context, on bool) error {
	mode := "STRICT"
	if on {
		mode = "IDEMPOTENT"
	}
	return limit(ctx, quickLimit, "set replica_exec_mode", func(ctx context.Context) error {
		return a.control.exec(ctx, "SET GLOBAL replica_exec_mode = "+mode)
	})
}

// setSwitch sets a global variable that is ON or OFF.
func (a *Admin) setSwitch(ctx context.Context, within time.Duration, name string, on bool) error {
	value := "OFF"
	if on {
		value = "ON"
	}
	return limit(ctx, within, "set "+name,
		func(ctx context.Context) error { return a.control.exec(ctx, "SET GLOBAL "+name+" = "+value) })
}

// FlushEngineLogs returns once InnoDB's redo is on disk: everything executed before the call is durable (S8). It uses
// no GTID and works under super_read_only.
func (a *Admin) FlushEngineLogs(ctx context.Context) error {
	return limit(ctx, slowLimit, "flush engine logs", func(ctx context.Context) error {
		return a.bulk.exec(ctx, "FLUSH LOCAL ENGINE LOGS")
	})
}

// BinlogPos is an end of the binary log.
type BinlogPos struct {
	File   string // base name
	Offset uint64 // bytes
}

// BinlogStatus is the end of the binary log. It counts transactions that are not acknowledged yet.
func (a *Admin) BinlogStatus(ctx context.Context) (BinlogPos, error) {
	q := "SHOW BINARY LOG STATUS"
	if !a.cfg.Binary.Version.AtLeast(8, 2, 0) {
		q = "SHOW MASTER STATUS"
	}
	var pos BinlogPos
	err := limit(ctx, quickLimit, "read the binary log's end", func(ctx context.Context) error {
		t, err := a.status.query(ctx, q)
		if err != nil {
			return err
		}
		if len(t) != 1 {
			return fmt.Errorf("%w: the binary log is off", ErrWrongSettings)
		}
		pos.File = t[0]["file"]
		_, err = fmt.Sscan(t[0]["position"], &pos.Offset)
		return err
	})
	return pos, err
}

// PurgeBinlogs deletes the binary log files before file: the daemon has all of them in Raft. It does not wait for
// commits.
func (a *Admin) PurgeBinlogs(ctx context.Context, file string) error {
	return limit(ctx, slowLimit, "purge the binary log", func(ctx context.Context) error {
		return a.bulk.exec(ctx, "PURGE BINARY LOGS TO "+quote(file))
	})
}

// Semisync is what the leader's plugin says of itself.
type Semisync struct {
	Waiting uint64 // sessions that wait for an acknowledgement
	Clients uint64 // semi-sync replicas connected: the daemon, 1
	On      bool   // operational
}

// WaitingSessions reads the semi-sync plugin's state.
func (a *Admin) WaitingSessions(ctx context.Context) (Semisync, error) {
	var s Semisync
	err := limit(ctx, quickLimit, "read semi-sync status", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_%'")
		if err != nil {
			return err
		}
		if len(t) == 0 {
			return fmt.Errorf("%w: the semi-sync plugin is not loaded", ErrWrongSettings)
		}
		for _, r := range t {
			v := r["value"]
			switch strings.ToLower(r["variable_name"]) {
			case "rpl_semi_sync_source_wait_sessions":
				_, err = fmt.Sscan(v, &s.Waiting)
			case "rpl_semi_sync_source_clients":
				_, err = fmt.Sscan(v, &s.Clients)
			case "rpl_semi_sync_source_status":
				s.On = sameValue(v, "ON")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}
