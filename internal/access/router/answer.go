package router

import (
	"errors"

	"trireme/internal/mysql/mysqlwire"
)

// Commands of the protocol (include/my_command.h) that the router tells apart.
const (
	comQuit            = 0x01
	comInitDB          = 0x02
	comQuery           = 0x03
	comFieldList       = 0x04
	comRefresh         = 0x07
	comStatistics      = 0x09
	comProcessInfo     = 0x0a
	comPing            = 0x0e
	comChangeUser      = 0x11
	comStmtPrepare     = 0x16
	comStmtExecute     = 0x17
	comStmtSendLong    = 0x18
	comStmtClose       = 0x19
	comStmtReset       = 0x1a
	comSetOption       = 0x1b
	comStmtFetch       = 0x1c
	comResetConnection = 0x1f
)

// shortest is the least length of commands with fixed parts, the command's own byte included (sql/protocol_classic.cc).
// mysqld answers what is shorter with an error, even a command that has no answer. COM_PROCESS_KILL is not among them:
// it always has an answer, which of 9.7 is that there is no such command, whatever its length.
var shortest = map[byte]int{comRefresh: 2, comSetOption: 3, comStmtExecute: 10, comStmtSendLong: 7, comStmtClose: 5,
	comStmtReset: 5, comStmtFetch: 9}

// silentBytes is how long a command without an answer may be without being beyond max_allowed_packet, whose least value
// is 1024. mysqld answers what is beyond with an error, and goes on.
const silentBytes = 1000

// silent says that the server does not answer a command.
func silent(command byte) bool { return command == comStmtSendLong || command == comStmtClose }

// understood says that it is known where the answer to a command ends. What else there is (COM_CHANGE_USER's exchange
// of passwords, the streams of replication, commands of a later series) is passed on as bytes for the rest of the
// connection.
func understood(command byte) bool {
	switch command {
	// BINLOG_DUMP, TABLE_DUMP, CONNECT_OUT, REGISTER_SLAVE, BINLOG_DUMP_GTID
	case comChangeUser, 0x12, 0x13, 0x14, 0x15, 0x1e:
		return false
	}
	return command != 0 && command <= comResetConnection
}

var errAnswer = errors.New("the server's answer does not follow the protocol")

// answerState is what the next packet of an answer is.
type answerState int

const (
	expectFirst   answerState = iota // OK, ERR, LOCAL INFILE or a column count
	expectOne                        // the only packet
	expectPrepare                    // the head of an answer to COM_STMT_PREPARE
	expectSkipped                    // one of `skip` packets that are not looked at
	expectEOF                        // the EOF after those
	expectRow                        // a row, or what ends the rows
	answerLocal                      // the server waits for the client's file
	answerDone
)

// headBytes of a packet are enough to know what it is: a mark, two length-encoded integers, flags.
const headBytes = 23

// answer follows the bytes of a server's answer to one command, to know where it ends and what state it leaves. It
// holds no payload but the head of a packet that came in parts.
type answer struct {
	command      byte
	deprecateEOF bool
	state        answerState
	skip         int  // packets to pass over in expectSkipped
	then         int  // COM_STMT_PREPARE: column definitions after the parameters'
	prepared     bool // within COM_STMT_PREPARE's definitions
	status       uint16
	hasStatus    bool
	failed       bool   // ended in an ERR packet
	code         uint16 // of it
	insertID     uint64 // of the last OK packet that had one
	outParams    bool   // the rows are a procedure's OUT parameters

	seq       byte // of the packet that began last
	packet    int  // payload bytes of that packet
	left      int  // of those not seen yet
	continued bool // it goes on in the next packet
	head      [4 + headBytes]byte
	have      int // bytes of header and head collected
	fed       bool
}

func newAnswer(command byte, deprecateEOF bool) answer {
	a := answer{command: command, deprecateEOF: deprecateEOF, state: expectOne}
	switch command {
	case comQuery, comStmtExecute, comProcessInfo:
		a.state = expectFirst
	case comStmtPrepare:
		a.state = expectPrepare
	case comFieldList, comStmtFetch:
		a.state = expectRow
	}
	return a
}

// whole says that the bytes fed so far end between two packets, so that one of the router's own may follow.
func (a *answer) whole() bool { return a.left == 0 && a.have == 0 && !a.continued }

// done says that the answer has ended, local that the server waits for the client's file.
func (a *answer) done() bool  { return a.state == answerDone && a.whole() }
func (a *answer) local() bool { return a.state == answerLocal && a.whole() }

// began says that a packet of the answer has begun.
func (a *answer) began() bool { return a.fed }

// feed takes the next bytes and returns how many of them belong to the answer: less than all when it ends, or waits for
// the client's file. The protocol allows nothing after either.
func (a *answer) feed(b []byte) (used int, err error) {
	a.fed = a.fed || len(b) > 0
	for used < len(b) && (!a.whole() || a.state != answerDone && a.state != answerLocal) {
		if a.left > 0 && a.have == 0 { // in the middle of a packet whose head is known
			n := min(a.left, len(b)-used)
			a.left -= n
			used += n
			if a.left > 0 {
				return used, nil
			}
			continue
		}
		n, err := a.begin(b[used:])
		used += n
		if err != nil {
			return used, err
		}
	}
	return used, nil
}

// begin collects the header and head of a packet and, once they are there, moves on by them.
func (a *answer) begin(b []byte) (used int, err error) {
	if a.have < 4 {
		n := copy(a.head[a.have:4], b)
		a.have += n
		if used = n; a.have < 4 {
			return used, nil
		}
		a.packet, a.seq = mysqlwire.ParseHeader(a.head[:])
		a.left = a.packet
	}
	want := 4 + min(a.packet, headBytes)
	n := copy(a.head[a.have:want], b[used:])
	a.have += n
	a.left -= n
	used += n
	if a.have < want {
		return used, nil
	}
	a.have = 0
	// A packet of exactly MaxPayload bytes goes on in the next one, which is no packet of its own.
	part := a.continued
	a.continued = a.packet == mysqlwire.MaxPayload
	if part {
		return used, nil
	}
	return used, a.step(a.head[4:want])
}

// step moves on by a packet that begins with p.
func (a *answer) step(p []byte) error {
	if a.state == expectSkipped && (len(p) == 0 || p[0] != 0xff) {
		a.skipped()
		return nil
	}
	if len(p) == 0 {
		return errAnswer
	}
	if p[0] == 0xff && a.state != expectOne || p[0] == 0xff && a.command != comStatistics {
		a.fail(p)
		return nil
	}
	switch a.state {
	case expectOne:
		return a.only(p)
	case expectFirst:
		return a.first(p)
	case expectPrepare:
		return a.prepare(p)
	case expectEOF:
		return a.columnsEnd(p)
	case expectRow:
		if p[0] == 0xfe && (a.deprecateEOF && a.packet < mysqlwire.MaxPayload || a.packet < 9) {
			return a.end(p)
		}
	}
	return nil
}

func (a *answer) fail(p []byte) {
	a.failed, a.state = true, answerDone
	if len(p) >= 3 {
		a.code = uint16(p[1]) | uint16(p[2])<<8
	}
}

func (a *answer) only(p []byte) error {
	a.state = answerDone
	if a.command == comStatistics || p[0] != 0 && p[0] != 0xfe {
		return nil
	}
	return a.flags(p, a.deprecateEOF && p[0] == 0xfe && a.packet >= 7)
}

// flags reads the status of an OK or EOF packet.
func (a *answer) flags(p []byte, okInPlaceOfEOF bool) error {
	status, err := mysqlwire.Status(p, okInPlaceOfEOF)
	if err != nil {
		return errAnswer
	}
	a.status, a.hasStatus = status, true
	if p[0] == 0 {
		if _, rest, ok := mysqlwire.Lenenc(p[1:]); ok {
			if id, _, ok := mysqlwire.Lenenc(rest); ok && id != 0 {
				a.insertID = id
			}
		}
	}
	return nil
}

func (a *answer) first(p []byte) error {
	switch {
	case p[0] == 0x00:
		return a.end(p)
	case p[0] == 0xfb:
		a.state = answerLocal
		return nil
	}
	n, err := mysqlwire.ParseColumnCount(p)
	if err != nil || a.packet > headBytes {
		return errAnswer
	}
	a.state, a.skip = expectSkipped, n
	return nil
}

func (a *answer) prepare(p []byte) error {
	if p[0] != 0 || len(p) < 12 {
		return errAnswer
	}
	columns, params := int(p[5])|int(p[6])<<8, int(p[7])|int(p[8])<<8
	a.prepared, a.state, a.skip, a.then = true, expectSkipped, params, columns
	if params == 0 {
		a.skip, a.then = columns, 0
	}
	if a.skip == 0 {
		a.state = answerDone
	}
	return nil
}

// skipped counts a definition.
func (a *answer) skipped() {
	if a.skip--; a.skip > 0 {
		return
	}
	switch {
	case !a.deprecateEOF:
		a.state = expectEOF
	case a.prepared:
		a.nextDefinitions()
	default:
		a.state = expectRow
	}
}

func (a *answer) nextDefinitions() {
	a.skip, a.then, a.state = a.then, 0, expectSkipped
	if a.skip == 0 {
		a.state = answerDone
	}
}

func (a *answer) columnsEnd(p []byte) error {
	if p[0] != 0xfe || a.packet >= 9 {
		return errAnswer
	}
	if a.prepared {
		a.nextDefinitions()
		return nil
	}
	if err := a.flags(p, false); err != nil {
		return err
	}
	a.outParams = a.status&statusOutParams != 0
	if a.state = expectRow; a.status&mysqlwire.StatusCursorExists != 0 {
		a.state = answerDone // the rows wait for COM_STMT_FETCH
	}
	return nil
}

// statusOutParams is SERVER_PS_OUT_PARAMS.
const statusOutParams = 0x1000

// end takes the packet that ends a result: another result may follow. The EOF after OUT parameters does not say that
// the OK of their CALL follows (9.7.4; the EOF before them does).
func (a *answer) end(p []byte) error {
	if err := a.flags(p, a.deprecateEOF || p[0] == 0); err != nil {
		return err
	}
	if a.state = answerDone; a.status&mysqlwire.StatusMoreResults != 0 || a.outParams {
		a.state = expectFirst
	}
	a.outParams = false
	return nil
}

// resume continues after the client's file.
func (a *answer) resume() { a.state = expectFirst }
