package router

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trireme/internal/base/nbio"
	"trireme/internal/core/dump"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// Streams publishes the committed binary log.
type Streams interface {
	// Serve answers a client whose account may have the log until one of both ends that, and closes the connection.
	Serve(ctx context.Context, c dump.Consumer)
	// Purged is the GTIDs whose transactions are not in the log any more, as text.
	Purged() string
	// Known returns what a server has executed without statements of its own that it would be taken for ahead of the
	// log for.
	Known(ctx context.Context, executed gtid.Set) (gtid.Set, error)
}

// mayDump is the privilege for it.
var mayDump = []string{"REPLICATION SLAVE"}

// whatItSet asks a session for what a replica sets in it before it asks for the log (sql/rpl_replica.cc; other clients
// do alike): the pause between heartbeats in nanoseconds, whether it is a mysqld, whether it wants semi-synchronous
// replication, and the checksum that it takes.
const whatItSet = "SELECT CONCAT_WS(',', IFNULL(@source_heartbeat_period, IFNULL(@master_heartbeat_period, 0)), " +
	"@replica_uuid IS NOT NULL OR @slave_uuid IS NOT NULL, IFNULL(@rpl_semi_sync_replica, IFNULL(@rpl_semi_sync_slave, 0)), " +
	"IFNULL(@source_binlog_checksum, IFNULL(@master_binlog_checksum, ''))) LIMIT 1"

// pieceReader reads what one side says. It has a buffer only while there is something to read.
type pieceReader struct {
	ready func(fd uintptr) bool
	piece *[pieceBytes]byte
	n     int
	err   error
}

// read returns a piece, which is the caller's to give back to pieces if it is not nil.
func (r *pieceReader) read(c net.Conn) (*[pieceBytes]byte, int, error) {
	socket, plain := c.(*nbio.Conn)
	if !plain { // TLS
		piece := pieces.Get().(*[pieceBytes]byte)
		n, err := c.Read(piece[:])
		return piece, n, err
	}
	if r.ready == nil {
		r.ready = r.take
	}
	r.piece, r.n, r.err = nil, 0, nil
	if err := socket.ReadBy(r.ready); err != nil {
		return nil, 0, err
	}
	if r.n == 0 && r.err == nil {
		r.err = io.EOF
	}
	return r.piece, r.n, r.err
}

func (r *pieceReader) take(fd uintptr) bool {
	r.piece = pieces.Get().(*[pieceBytes]byte)
	if r.n, r.err = nbio.Read(fd, r.piece[:]); r.err != syscall.EAGAIN {
		return true
	}
	pieces.Put(r.piece)
	r.piece = nil
	return false
}

// watch copies from the client to the server, as copy does, up to a command that asks for a binary log.
func (l *link) watch(r *Router) {
	var in pieceReader
	for {
		piece, n, err := in.read(l.c)
		if err == nil || n > 0 {
			l.in.Add(int64(n))
			over, failed := l.watched(r, piece[:n])
			if over {
				pieces.Put(piece)
				return
			}
			if failed != nil {
				err = failed
			}
		}
		if piece != nil {
			pieces.Put(piece)
		}
		switch {
		case err == nil:
			continue
		case err == io.EOF:
			err = l.s.(interface{ CloseWrite() error }).CloseWrite() // of TCP, a unix socket or TLS
		}
		if err != nil {
			l.abort()
		}
		return
	}
}

// watched passes on what the client has said. over: it has asked for a binary log, and everything has been done about
// that.
func (l *link) watched(r *Router, p []byte) (over bool, err error) {
	for len(p) > 0 {
		pass, found := l.tap.feed(p)
		if pass > 0 {
			if _, err := l.s.Write(p[:pass]); err != nil {
				return false, err
			}
		}
		p = p[pass:]
		switch {
		case found == nil:
		case found.command != comQuery:
			l.divert(r, found, p)
			return true, nil
		default:
			if p, err = l.question(r, found, p); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// unsurePurged is told instead of what is purged. Debezium takes that for what it has, too, unless it finds in
// gtid_executed that it has not.
var unsurePurged = &mysqlwire.ServerError{Code: codeNotCurrent, State: "HYT00",
	Message: "Trireme: no majority said what is committed when this session began, " +
		"so what this server has and what is purged cannot be compared; connect again later, see `trireme status`"}

// question answers a short statement on the stream port if this log knows the answer better than a mysqld; otherwise it
// passes the statement on. p begins with the packet; rest is what comes after it.
func (l *link) question(r *Router, found *stop, p []byte) (rest []byte, err error) {
	packet := p[:min(len(p), mysqlwire.HeaderLen+found.length)]
	rest = p[len(packet):]
	if lacks := mysqlwire.HeaderLen + found.length - len(packet); lacks > 0 {
		packet = append(make([]byte, 0, mysqlwire.HeaderLen+found.length), packet...)[:mysqlwire.HeaderLen+found.length]
		if _, err := io.ReadFull(l.c, packet[len(packet)-lacks:]); err != nil {
			return nil, err
		}
	}
	text := packet[mysqlwire.HeaderLen+1:]
	if l.tap.caps&mysqlwire.CapQueryAttributes != 0 {
		if at, ok := parseAttributes(packet[mysqlwire.HeaderLen:]); ok {
			text = packet[mysqlwire.HeaderLen+at.length:]
		}
	}
	column, value := "", ""
	switch q := strings.ToUpper(strings.Trim(string(text), " \t\r\n;")); q {
	case "SELECT @@GLOBAL.RPL_SEMI_SYNC_SOURCE_ENABLED", "SELECT @@GLOBAL.RPL_SEMI_SYNC_MASTER_ENABLED":
		column, value = "@@GLOBAL.rpl_semi_sync_source_enabled", "0"
	case "SELECT @@GLOBAL.GTID_PURGED", "SELECT @@GTID_PURGED":
		if l.unsure {
			_, err = l.c.Write(mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendERR(nil, unsurePurged)))
			return rest, err
		}
		column, value = "@@GLOBAL.gtid_purged", r.cfg.Streams.Purged()
	case "SELECT @@GLOBAL.GTID_EXECUTED", "SELECT @@GTID_EXECUTED", "SHOW BINARY LOG STATUS", "SHOW MASTER STATUS":
		return rest, l.executed(r, packet)
	default:
		_, err = l.s.Write(packet)
		return rest, err
	}
	_, err = l.c.Write(mysqlwire.AppendRow(nil, 1, column, value, mysqlwire.StatusAutocommit,
		l.tap.caps&mysqlwire.CapDeprecateEOF != 0))
	return rest, err
}

// executed has the server answer a question of which the last column is what it has executed, and leaves out what a
// consumer that begins there would be refused for.
func (l *link) executed(r *Router, packet []byte) error {
	l.takeBack()
	_ = l.server.SetDeadline(time.Now().Add(r.cfg.LoginTimeout))
	var answer []byte
	seq := byte(1)
	err := aligned(l.ask)
	conn := mysqlwire.NewConn(l.s, mysqlwire.DefaultMaxPacket)
	if err == nil {
		err = conn.WritePacket(packet[mysqlwire.HeaderLen:])
	}
	if err == nil {
		_, err = readAnswer(conn, l.tap.caps&mysqlwire.CapDeprecateEOF != 0, func(p []byte, columns int) error {
			if columns > 0 {
				known, err := r.known(p, columns)
				if err != nil {
					return err
				}
				p = known
			}
			answer = mysqlwire.AppendPacket(answer, seq, p)
			seq++
			return nil
		})
	}
	refused, err := asRefused(err)
	if err != nil {
		return err
	}
	if refused != nil {
		answer = mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendERR(nil, refused))
	}
	_ = l.server.SetDeadline(time.Time{})
	l.passBack()
	_, err = l.c.Write(answer)
	return err
}

// known is a row whose last value, a GTID set, is replaced by what Streams knows of it.
func (r *Router) known(row []byte, columns int) ([]byte, error) {
	values, err := mysqlwire.ParseRow(row, columns)
	if err != nil || len(values) == 0 {
		return nil, errors.Join(errAnswer, err)
	}
	last := &values[len(values)-1]
	executed, err := gtid.ParseSet(last.Text)
	if err != nil {
		return nil, errors.Join(errAnswer, err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.LoginTimeout)
	defer cancel()
	known, err := r.cfg.Streams.Known(ctx, executed)
	if err != nil || known.Equal(executed) {
		return row, err
	}
	last.Text = known.String()
	return mysqlwire.AppendTextRow(nil, values), nil
}

// divert answers a command that asks for a binary log, of which p is the beginning, and ends the connection. The other
// direction has nothing to do meanwhile: the client waits for this answer.
func (l *link) divert(r *Router, found *stop, p []byte) {
	defer l.abort()
	l.takeBack()
	c, refused, err := l.consumer(r, found)
	if !r.letGo(l) || err != nil {
		return
	}
	l.closeServer()
	if refused != nil {
		l.refuseDump(refused)
		return
	}
	defer context.AfterFunc(r.ctx, func() { _ = l.client.Close() })() // letGo has taken it out of those that Close cuts
	conn := mysqlwire.NewConn(l.c, maxDumpRequest)
	conn.Unread(append([]byte(nil), p...))
	_ = l.client.SetReadDeadline(time.Now().Add(r.cfg.LoginTimeout))
	request, err := conn.ReadPacket()
	_ = l.client.SetReadDeadline(time.Time{})
	if err != nil {
		r.cfg.Logger.Debug("router: a request for the binary log", "client", origin(l.from), "error", err)
		return
	}
	c.Conn, c.Seq, c.Command, c.Argument = l.c, conn.Sequence(), request[0], append([]byte(nil), request[1:]...)
	r.cfg.Streams.Serve(r.ctx, c)
}

// maxDumpRequest bounds a dump command, bytes; a GTID set is its only large part.
const maxDumpRequest = 16<<20 + 1024

// consumer asks the server whether the client's account may have the log, and what it has set. refused is for the
// client; an error is a connection's.
func (l *link) consumer(r *Router, found *stop) (c dump.Consumer, refused *mysqlwire.ServerError, err error) {
	switch {
	case r.cfg.Streams == nil:
		return c, noStream("this router has no log; connect to router.stream_port (7307) of a node"), nil
	case l.tap.packed:
		return c, noStream("over a compressed connection; connect without compression, or to router.stream_port (7307)"), nil
	case found.begun:
		return c, noStream("the request came in pieces; connect to router.stream_port (7307)"), nil
	}
	_ = l.server.SetDeadline(time.Now().Add(r.cfg.LoginTimeout))
	held := false
	err = aligned(l.ask)
	if err == nil {
		err = l.ask("SHOW GRANTS", func(line string) { held = held || holds(line, mayDump) })
	}
	if err == nil && !held {
		return c, noPrivilege(mayDump), nil
	}
	if err == nil {
		err = l.ask(whoAsks, func(digits string) {
			if name, err := hex.DecodeString(digits); err == nil {
				c.Account = string(name)
			}
		})
	}
	if err == nil && c.Account == "" { // every session has an account
		return c, nil, errAnswer
	}
	var set string
	if err == nil {
		err = l.ask(whatItSet, func(v string) { set = v })
	}
	if err == nil {
		err = takeSet(&c, set)
	}
	refused, err = asRefused(err)
	return c, refused, err
}

// aligned makes sure that the server's next answer is to the router's next question. A client that does not wait for
// its answers may have put one in front, with whatever rows it likes.
func aligned(ask func(query string, row func(string)) error) error {
	mark, answer := rand.Text(), ""
	if err := ask("SELECT '"+mark+"' LIMIT 1", func(v string) { answer = v }); err != nil {
		return err
	}
	if answer != mark {
		return errAnswer
	}
	return nil
}

// noStream words why a binary log is not served here.
func noStream(why string) *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: mysqlwire.CodeSourceFatalDump, State: "HY000",
		Message: "Trireme: binary logs are not served here: " + why}
}

// takeSet reads the answer to whatItSet.
func takeSet(c *dump.Consumer, set string) error {
	v := strings.SplitN(set, ",", 4)
	if len(v) != 4 {
		return noStream("this session's character set hides what it has set; connect with another one")
	}
	ns, err := strconv.ParseFloat(v[0], 64)
	if err != nil || ns < 0 || ns > float64(24*time.Hour) {
		return noStream("@source_heartbeat_period is not a number of nanoseconds below a day: " + v[0])
	}
	c.Beat, c.Replica, c.SemiSync, c.Checksum = time.Duration(ns), v[1] == "1", v[2] != "0" && v[2] != "", v[3]
	return nil
}

// ask has the server answer a query of the router's own.
func (l *link) ask(query string, row func(string)) error {
	payload := []byte{comQuery}
	if l.tap.caps&mysqlwire.CapQueryAttributes != 0 {
		payload = append(payload, 0, 1)
	}
	_, err := ask(mysqlwire.NewConn(l.s, mysqlwire.DefaultMaxPacket), append(payload, query...),
		l.tap.caps&mysqlwire.CapDeprecateEOF != 0, row)
	return err
}

// refuseDump tells the client, and waits until it leaves: unread bytes of the client would make the kernel drop the
// answer.
func (l *link) refuseDump(e *mysqlwire.ServerError) {
	p := mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendERR(nil, e))
	if l.tap.packed {
		n := len(p)
		p = append([]byte{byte(n), byte(n >> 8), byte(n >> 16), 1, 0, 0, 0}, p...)
	}
	_ = l.client.SetDeadline(time.Now().Add(refusePatience))
	if _, err := l.c.Write(p); err == nil {
		_, _ = io.Copy(io.Discard, l.c)
	}
}

// refusePatience is for a client to hear why it is refused.
const refusePatience = time.Second

// letGo forgets a link whose client goes on without its server. It fails when the view has turned against the server
// meanwhile.
func (r *Router) letGo(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unlink(l)
	return !l.cut.Load()
}
