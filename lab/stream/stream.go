// Package stream follows a cluster's change stream, so that a kit can look up what became of statements without an
// answer.
package stream

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
	"trireme/lab/verify"
)

// lookedUp are the tables whose rows are kept.
var lookedUp = regexp.MustCompile(`^(counters|leveled|lists_rr|lists_ser|object_rows|d[0-9]+|oi[0-9]+)$`)

// Limits of a follower of the log.
const (
	logBeat    = 300 * time.Millisecond
	logSilence = 3 * time.Second
	logPause   = 100 * time.Millisecond
	logCatchUp = 30 * time.Second // to the end, after all writers have stopped
	logTries   = 20               // refusals in a row of what the log does not have any more, by all nodes
	maxLogged  = 1 << 30          // bytes of an event
)

// Follower reads the change stream of one node after the other.
type Follower struct {
	login    verify.Login
	stream   func() string
	database string

	mu     sync.Mutex
	has    gtid.Set
	began  bool
	trx    int64
	sum    verify.Committed
	last   error // why the last connection ended
	cancel context.CancelFunc
	done   chan struct{}
}

// Follow all that is committed from now on in a database. stream gives the address for each connection.
func Follow(login verify.Login, stream func() string, database string) *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{login: login.WithDefaults(), stream: stream, database: database, cancel: cancel,
		done: make(chan struct{})}
	f.sum.XA, f.sum.Rows = map[string][]string{}, map[string][]verify.LoggedRow{}
	go f.run(ctx)
	return f
}

// run follows until ctx ends, or the log does not go back far enough any more.
func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	gone := 0
	for ctx.Err() == nil && gone < logTries {
		err := f.follow(ctx, f.stream())
		if gone++; !mysqlwire.IsServerCode(err, mysqlwire.CodeSourceFatalDump) {
			gone = 0
		}
		if gone == logTries || errors.Is(err, errUnreadable) {
			f.mu.Lock()
			f.sum.Why = err.Error()
			f.mu.Unlock()
			return
		}
		f.mu.Lock()
		f.last = err
		f.mu.Unlock()
		_ = poll.Pause(ctx, logPause)
	}
}

// errUnreadable: the log has what is not understood here.
var errUnreadable = errors.New("the log cannot be read")

// follow one connection until it ends.
func (f *Follower) follow(ctx context.Context, addr string) error {
	dialer := net.Dialer{Timeout: f.login.DialTimeout}
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	defer nc.Close()
	c, err := f.open(ctx, nc)
	if err != nil {
		return err
	}
	r := logReader{database: f.database, tables: map[uint64]*loggedTable{}}
	for {
		if err := nc.SetReadDeadline(time.Now().Add(logSilence)); err != nil {
			return err
		}
		p, err := c.ReadPacket()
		switch {
		case err != nil:
			return err
		case mysqlwire.IsERR(p):
			e, err := mysqlwire.ParseERR(p)
			return errors.Join(e, err)
		case mysqlwire.IsEOF(p):
			return errors.New("the stream has ended")
		case len(p) < 1+binlog.MinEventSize:
			return fmt.Errorf("%w: a packet of %d bytes", errUnreadable, len(p))
		}
		ended, err := r.take(p[1:])
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		if ended {
			f.add(&r)
		}
	}
}

// open logs in and asks for all that is not here yet. The first time, it is all that comes from now on.
func (f *Follower) open(ctx context.Context, nc net.Conn) (*mysqlwire.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, f.login.StatementTimeout)
	defer cancel()
	c, err := mysqlwire.Login(ctx, nc, mysqlwire.ClientConfig{User: f.login.User, Password: f.login.Password,
		MaxPacket: maxLogged})
	if err != nil {
		return nil, err
	}
	for _, s := range []string{"SET @source_binlog_checksum='CRC32'", fmt.Sprintf("SET @source_heartbeat_period=%d",
		logBeat.Nanoseconds())} {
		if _, err := c.Exec(ctx, s); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	began, has := f.began, f.has.Clone()
	f.mu.Unlock()
	if !began {
		row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.gtid_executed")
		if err != nil {
			return nil, err
		}
		if has, err = gtid.ParseSet(row[0].Text); err != nil {
			return nil, err
		}
	}
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, dumpFrom(has)); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.began, f.has = true, has
	f.mu.Unlock()
	return c, nil
}

// logReaderID is a server id that no node has.
const logReaderID = 2_900_000

// dumpFrom is the argument of COM_BINLOG_DUMP_GTID: flags, server id, no file, position 4, what is here.
func dumpFrom(has gtid.Set) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{0, 0}, logReaderID)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, 4)
	set := has.AppendBinary(nil)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(set)))
	return append(b, set...)
}

// add a transaction that was read whole.
func (f *Follower) add(r *logReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := r.asm.Trx()
	if !f.has.Add(t.GTID) {
		return
	}
	f.trx++
	f.sum.Statements = append(f.sum.Statements, r.statements...)
	say := func(what string) { f.sum.XA[t.XID.GTRID] = append(f.sum.XA[t.XID.GTRID], what) }
	switch t.Kind {
	case binlog.XAPrepare:
		say(verify.XAPrepared)
	case binlog.XACommit:
		say(verify.XACommitted)
	case binlog.XARollback:
		say(verify.XARolledBack)
	}
	for _, row := range r.rows {
		f.sum.Rows[row.table] = append(f.sum.Rows[row.table], verify.LoggedRow{Trx: f.trx, Values: row.values})
	}
}

// Started waits until the follower knows where its reading starts. Only what is written after that can be looked up.
func (f *Follower) Started(ctx context.Context) error {
	for {
		f.mu.Lock()
		began, last := f.began, f.last
		f.mu.Unlock()
		if began {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no node has told its change stream: %w", errors.Join(ctx.Err(), last))
		case <-f.done:
			return errors.New("the change stream cannot be followed: " + f.sum.Why)
		case <-time.After(logPause):
		}
	}
}

// Ends waits until all that nodes have executed was read, and says what it was.
func (f *Follower) Ends(ctx context.Context, executed string, now func() int64) *verify.Committed {
	want, err := gtid.ParseSet(executed)
	for deadline := time.Now().Add(logCatchUp); err == nil; {
		f.mu.Lock()
		missing, why := want.Subtract(f.has), f.sum.Why
		f.mu.Unlock()
		switch {
		case why != "":
			err = errors.New(why)
		case missing.Empty():
			return f.end("", now())
		case ctx.Err() != nil || time.Now().After(deadline):
			f.mu.Lock()
			err = fmt.Errorf("the change stream has not told %d transactions: %w", missing.Count(),
				cmp.Or(f.last, ctx.Err(), context.DeadlineExceeded))
			f.mu.Unlock()
		}
		if err == nil {
			_ = poll.Pause(ctx, logPause)
		}
	}
	return f.end(err.Error(), now())
}

// Stop ends it.
func (f *Follower) Stop() {
	f.cancel()
	<-f.done
}

func (f *Follower) end(why string, now int64) *verify.Committed {
	f.Stop()
	f.sum.Why, f.sum.End = why, now
	return &f.sum
}

// logReader puts the transactions of one connection together.
type logReader struct {
	database string
	asm      binlog.Assembler
	tables   map[uint64]*loggedTable
	// Of the transaction that is under way.
	statements []string
	rows       []readRow
}

type readRow struct {
	table  string
	values []string
}

// take the next event; it says whether a transaction has ended with it.
func (r *logReader) take(ev []byte) (ended bool, err error) {
	h, err := binlog.ParseHeader(ev)
	if err != nil {
		return false, err
	}
	b, err := r.asm.Feed(h, ev)
	if err != nil || b == binlog.Outside {
		return false, err
	}
	if b == binlog.Start {
		r.statements, r.rows = nil, nil
	}
	switch h.Type {
	case binlog.TypeQuery:
		q, err := binlog.ParseQuery(ev)
		if err != nil {
			return false, err
		}
		switch text := string(q.SQL); {
		case text == "BEGIN" || text == "COMMIT" || text == "ROLLBACK" || strings.HasPrefix(text, "XA "):
		default:
			r.statements = append(r.statements, text)
		}
	case binlog.TypeTableMap:
		err = r.tableMap(binlog.Body(ev))
	case binlog.TypeWriteRows:
		err = r.changed(binlog.Body(ev), false)
	case binlog.TypeUpdateRows:
		err = r.changed(binlog.Body(ev), true)
	case binlog.TypeTransactionPayload:
		err = errors.New("a compressed transaction")
	}
	return b == binlog.End, err
}

// loggedTable is what a TABLE_MAP event says of a table that is looked up.
type loggedTable struct {
	name  string
	types []byte
	meta  []int
}

// Types of columns, as a TABLE_MAP event has them.
const (
	columnTiny    = 1
	columnShort   = 2
	columnLong    = 3
	columnBigint  = 8
	columnVarchar = 15
	columnBlob    = 252
)

var errCutShort = errors.New("an event ends too early")

// eventFields takes an event's body apart.
type eventFields struct {
	b      []byte
	failed bool
}

func (f *eventFields) take(n int) []byte {
	if n < 0 || n > len(f.b) {
		f.failed = true
		return make([]byte, 0)
	}
	out := f.b[:n]
	f.b = f.b[n:]
	return out
}

func (f *eventFields) uint(n int) (v uint64) {
	for i, c := range f.take(n) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func (f *eventFields) packed() int {
	switch n := f.uint(1); n {
	case 252:
		return int(f.uint(2))
	case 253:
		return int(f.uint(3))
	case 254:
		return int(f.uint(8))
	default:
		return int(n)
	}
}

// tableMap: table id u48, flags u16, schema and table each with its length before it and a zero after it, the number of
// columns, their types, then the length of the metadata, and the metadata.
func (r *logReader) tableMap(body []byte) error {
	f := eventFields{b: body}
	id := f.uint(6)
	f.take(2)
	schema := string(f.take(int(f.uint(1))))
	f.take(1)
	t := &loggedTable{name: string(f.take(int(f.uint(1))))}
	f.take(1)
	if f.failed {
		return errCutShort
	}
	delete(r.tables, id)
	if schema != r.database || !lookedUp.MatchString(t.name) {
		return nil
	}
	t.types = append(t.types, f.take(f.packed())...)
	meta := eventFields{b: f.take(f.packed())}
	for _, c := range t.types {
		size, ok := map[byte]int{columnTiny: 0, columnShort: 0, columnLong: 0, columnBigint: 0, columnVarchar: 2,
			columnBlob: 1}[c]
		if !ok {
			return fmt.Errorf("%s has a column of type %d", t.name, c)
		}
		t.meta = append(t.meta, int(meta.uint(size)))
	}
	if f.failed || meta.failed {
		return errCutShort
	}
	r.tables[id] = t
	return nil
}

// changed keeps the rows as they are after a change. The event: table id u48, flags u16, length of extra data including
// itself u16, the extra data, the number of columns, which of them are present (twice for an update: before and after),
// then the rows.
func (r *logReader) changed(body []byte, update bool) error {
	f := eventFields{b: body}
	t := r.tables[f.uint(6)]
	if t == nil {
		return nil
	}
	f.take(2)
	f.take(int(f.uint(2)) - 2)
	columns := f.packed()
	if columns != len(t.types) {
		return fmt.Errorf("a change of %d columns to %s, which has %d", columns, t.name, len(t.types))
	}
	images := 1
	if update {
		images = 2
	}
	for range images {
		for i, c := range f.take((columns + 7) / 8) {
			for bit := range 8 {
				if i*8+bit < columns && c>>bit&1 == 0 {
					return fmt.Errorf("a row of %s is not there whole", t.name)
				}
			}
		}
	}
	for len(f.b) > 0 && !f.failed {
		if update {
			t.row(&f)
		}
		r.rows = append(r.rows, readRow{t.name, t.row(&f)})
	}
	if f.failed {
		return errCutShort
	}
	return nil
}

// row reads one: which columns are NULL, then the others.
func (t *loggedTable) row(f *eventFields) (values []string) {
	null := f.take((len(t.types) + 7) / 8)
	for i, c := range t.types {
		if f.failed {
			return nil
		}
		if null[i/8]>>(i%8)&1 == 1 {
			values = append(values, "NULL")
			continue
		}
		switch c {
		case columnTiny:
			values = append(values, strconv.FormatInt(int64(int8(f.uint(1))), 10))
		case columnShort:
			values = append(values, strconv.FormatInt(int64(int16(f.uint(2))), 10))
		case columnLong:
			values = append(values, strconv.FormatInt(int64(int32(f.uint(4))), 10))
		case columnBigint:
			values = append(values, strconv.FormatInt(int64(f.uint(8)), 10))
		case columnVarchar:
			size := 1
			if t.meta[i] > 255 {
				size = 2
			}
			values = append(values, string(f.take(int(f.uint(size)))))
		case columnBlob:
			values = append(values, string(f.take(int(f.uint(t.meta[i])))))
		}
	}
	return values
}
