package mysql_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/mysql/mysqlwire"
)

// watchedReads counts what is asked.
type watchedReads struct {
	oneServer
	barriers atomic.Int64
	late     atomic.Bool // no server comes
}

func (w *watchedReads) Barrier(context.Context) (uint64, error) {
	return uint64(w.barriers.Add(1)), nil
}

func (w *watchedReads) Applied(context.Context, string, uint64) error {
	if w.late.Load() {
		return errors.New("it is late")
	}
	return nil
}

// way leads to the server.
type way struct {
	name, addr string
	followed   bool
}

// routerProtocol: what newer clients ask of the protocol, query attributes and session tracking, is had through every
// port, whether sessions are followed or passed on, as it is had from the server itself.
func routerProtocol(t *testing.T, addr, root string) {
	db := open(t, addr, root, "")
	for _, q := range []string{"INSTALL COMPONENT 'file://component_query_attributes'", "CREATE DATABASE tracked",
		"CREATE TABLE tracked.t (i INT AUTO_INCREMENT PRIMARY KEY)"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	reads := &watchedReads{}
	follows := start(t, router.Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), Reads: reads,
		HoldTimeout: limit, OwnWritesTimeout: 100 * time.Millisecond, ConsistencyTimeout: 300 * time.Millisecond})
	passes := start(t, router.Config{HoldTimeout: limit})
	epoch := 0
	move := func() {
		epoch++
		v := router.View{RW: &router.Target{Name: "n1", Addr: addr, Epoch: fmt.Sprintf("%d/1", epoch)},
			RO: []router.Target{{Name: "n2", Addr: addr, Epoch: fmt.Sprint(epoch)}}}
		follows.SetView(v)
		passes.SetView(v)
	}
	move()
	ways := []way{{"passed 6446", passes.RWAddr(), false}, {"passed 6447", passes.ROAddr(), false},
		{"followed 6446", follows.RWAddr(), true}, {"followed 6447", follows.ROAddr(), true},
		{"6450", follows.SplitAddr(), true}}
	direct := tracking(newestClient(t, addr, root))
	for _, want := range []string{"sql_mode=ANSI_QUOTES", "time_zone=+01:00", "schema tracked", "gtid +0", "gtid +1",
		"character_set_client=latin1"} {
		if !strings.Contains(strings.Join(direct, "\n"), want) {
			t.Errorf("the server itself does not tell %q: %q", want, direct)
		}
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			c := newestClient(t, w.addr, root)
			for i, got := range tracking(c) {
				want := direct[i]
				if got != want {
					t.Errorf("%s, and the server itself said %s", got, direct[i])
				}
			}
			if w.followed {
				trackedBehind(c, move)
			}
			c = newestClient(t, w.addr, root)
			id := c.prepare("SELECT mysql_query_attribute_string('who')")
			if w.followed {
				move()
			}
			if got := c.execute(id, "who", w.name); got != w.name {
				t.Errorf("of a prepared statement the server was told %q", got)
			}
			attributesThrough(t, newestClient(t, w.addr, root), w, reads)
			c = newestClient(t, w.addr, root)
			for _, p := range [][]byte{{comProcessKill}, {comProcessKill, 255, 255, 255, 255}} {
				if got := c.command(p); got.code != codeUnknownCommand {
					t.Errorf("COM_PROCESS_KILL %v: %s", p[1:], got)
				}
			}
			if got := c.do("SELECT 'next'"); !slices.Equal(got.rows, []string{"next"}) {
				t.Errorf("after COM_PROCESS_KILL: %s", got)
			}
		})
	}
	t.Run("attributes at a follower", func(t *testing.T) {
		c, before := newestClient(t, follows.SplitAddr(), root), follows.Stats().Split.FollowerReads
		if got := c.query("SELECT mysql_query_attribute_string('who')", "router.access_mode", "read_only", "who", "me"); !slices.Equal(got.rows, []string{"me"}) {
			t.Errorf("%+v", got)
		}
		eventually(t, "the follower has answered", func() bool { return follows.Stats().Split.FollowerReads == before+1 })
	})
}

// tracking has the server track what it can, does all sorts of things, and returns what each answer said.
func tracking(c *newest) (said []string) {
	for _, q := range []string{
		"SET SESSION session_track_system_variables = '*'", "SET SESSION session_track_gtids = 'OWN_GTID'",
		"SET SESSION sql_mode = 'ANSI_QUOTES', time_zone = '+01:00'", "USE tracked", "INSERT INTO t VALUES (NULL)",
		"SELECT 1", "SELECT COUNT(*) > 0 FROM t", "SET NAMES latin1", "SELECT 2", "BEGIN", "INSERT INTO t VALUES (NULL)",
		"COMMIT", "SELECT 3", "schema mysql", "schema tracked", "SELEC", "DO 1", "BEGIN", "INSERT INTO t VALUES (NULL)",
		"CREATE TABLE t (i INT)", "DO 2", "SELECT 1; SET SESSION sql_mode = ''; INSERT INTO t VALUES (NULL); SELECT 2",
		"reset", "SELECT 4", "SET SESSION session_track_gtids = 'OWN_GTID'", "INSERT INTO t VALUES (NULL)", "SELECT 5",
	} {
		said = append(said, q+": "+c.do(q).String())
	}
	return said
}

// trackedBehind: what the router says to the next server, and to the other one on the splitting port, is not told to
// the client; what that says then, is.
func trackedBehind(c *newest, move func()) {
	c.t.Helper()
	c.do("SET SESSION time_zone = '+02:00'")
	c.do("USE tracked")
	move()
	for _, q := range []string{"SELECT 6", "SHOW COUNT(*) ERRORS", "SET @@trireme_consistency = 'EVENTUAL'",
		"SELECT @@trireme_consistency", "SELECT COUNT(*) > 0 FROM t"} {
		if got := c.do(q); got.code != 0 || len(got.told) > 0 {
			c.t.Errorf("%s: %s, which the client has not asked for", q, got)
		}
	}
	if got := c.do("SET SESSION time_zone = '+03:00'"); !slices.Contains(got.told, "time_zone=+03:00") {
		c.t.Errorf("at the next server: %s", got)
	}
}

// attributesThrough: the server is told what the client says of its statement, and the router takes what is meant for
// it.
func attributesThrough(t *testing.T, c *newest, w way, reads *watchedReads) {
	t.Helper()
	if got := c.query("SELECT mysql_query_attribute_string('who')", "who", w.name); !slices.Equal(got.rows, []string{w.name}) {
		t.Errorf("the server was told %+v", got)
	}
	before := reads.barriers.Load()
	for _, level := range []string{"BEFORE", "EVENTUAL"} {
		if got := c.query("SELECT 1", "trireme.consistency", level); !slices.Equal(got.rows, []string{"1"}) {
			t.Errorf("%s: %+v", level, got)
		}
	}
	// docs/consistency.md: where a session is not followed it is only an attribute
	asked, late, wrong := int64(0), uint16(0), uint16(0)
	if w.followed {
		asked, late, wrong = 1, codeNotCurrent, codeParse
	}
	if n := reads.barriers.Load() - before; n != asked {
		t.Errorf("for a statement at BEFORE and one at EVENTUAL %d barriers were asked for, want %d", n, asked)
	}
	if got := c.query("SELECT 1", "trireme.consistency", "MOST"); got.code != wrong {
		t.Errorf("%+v", got)
	}
	reads.late.Store(true)
	if got := c.query("SELECT 1", "trireme.consistency", "BEFORE"); got.code != late {
		t.Errorf("no server comes: %+v", got)
	}
	reads.late.Store(false)
	long := strings.Repeat("x", 2*inBytes)
	if got := c.query("SELECT mysql_query_attribute_string('who')", "long", long, "who", w.name); !slices.Equal(got.rows, []string{w.name}) {
		t.Errorf("a long one: %+v", got)
	}
	if got := c.query("SELECT 1", "long", long, "trireme.consistency", "BEFORE"); got.code != wrong {
		t.Errorf("a level that is not seen: %+v", got)
	}
}

// newest is a client that asks for query attributes, session tracking and results without EOF packets.
type newest struct {
	t     *testing.T
	conn  *mysqlwire.Conn
	gtids uint64 // number of the first one that it was told; 0: none
}

func newestClient(t *testing.T, addr, password string) *newest {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn := mysqlwire.NewConn(c, 0)
	login := mysqlwire.Response{MaxPacket: mysqlwire.MaxPayload, Collation: 255, User: "root",
		Capabilities: mysqlwire.CapProtocol41 | capSecureConnection | capPluginAuth | mysqlwire.CapSessionTrack | mysqlwire.CapQueryAttributes | mysqlwire.CapDeprecateEOF | mysqlwire.CapMultiStatements | capMultiResults}
	if _, _, err := mysqlwire.LoginAs(t.Context(), conn, login, password,
		mysqlwire.Secrecy{TLS: &tls.Config{InsecureSkipVerify: true}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.NetConn().SetDeadline(time.Now().Add(time.Minute))
	return &newest{t: t, conn: conn}
}

// What the protocol calls them.
const (
	comInitDB          = 0x02
	comQuery           = 0x03
	comProcessKill     = 0x0c
	comPing            = 0x0e
	comStmtPrepare     = 0x16
	comStmtExecute     = 0x17
	comResetConnection = 0x1f

	capSecureConnection = 1 << 15
	capMultiResults     = 1 << 17
	capPSMultiResults   = 1 << 18
	capPluginAuth       = 1 << 19

	executeCounted = 0x08 // a count of parameters follows

	codeUnknownCommand = 1047 // of those that 9.7 does not have any more

	codeParse      = 1064  // docs/consistency.md: a level that there is not
	codeNotCurrent = 45801 // docs/consistency.md: the statement could not be made as current as asked for

	inBytes = 4096 // the router's buffer of a session
)

func lenencBytes(p []byte) (v, rest []byte, ok bool) {
	n, rest, ok := mysqlwire.Lenenc(p)
	if !ok || n > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}

// said is an answer.
type said struct {
	code uint16   // of its error
	rows []string // of all its results, each a column
	told []string // what was tracked, in the server's order
}

func (s said) String() string {
	text := strings.TrimSpace(strings.Join(s.rows, ",") + " " + fmt.Sprintf("%q", s.told))
	if s.code != 0 {
		text = fmt.Sprintf("error %d %s", s.code, text)
	}
	return text
}

// do carries out a statement, "schema NAME" or "reset".
func (c *newest) do(q string) said {
	c.t.Helper()
	if schema, ok := strings.CutPrefix(q, "schema "); ok {
		return c.command(append([]byte{comInitDB}, schema...))
	}
	if q == "reset" {
		return c.command([]byte{comResetConnection})
	}
	return c.query(q)
}

// query carries out a statement with attributes, a name and a text each.
func (c *newest) query(q string, attributes ...string) said {
	c.t.Helper()
	p := appendAttributes([]byte{comQuery, byte(len(attributes) / 2), 1}, attributes)
	return c.command(append(p, q...))
}

// prepare prepares a statement without parameters that yields one column.
func (c *newest) prepare(q string) (id []byte) {
	c.t.Helper()
	c.send(append([]byte{comStmtPrepare}, q...))
	p := c.read()
	if p[0] != 0 || p[5] != 1 || p[7] != 0 {
		c.t.Fatalf("%s: %q", q, p)
	}
	c.read() // the column
	return p[1:5]
}

// execute carries it out with attributes, and returns the one row.
func (c *newest) execute(id []byte, attributes ...string) string {
	c.t.Helper()
	p := append(append([]byte{comStmtExecute}, id...), executeCounted, 1, 0, 0, 0, byte(len(attributes)/2))
	c.send(appendAttributes(p, attributes))
	if p = c.read(); p[0] != 1 {
		c.t.Fatalf("%q", p)
	}
	c.read()        // the column
	row := c.read() // a mark and the NULLs, a byte each
	if p = c.read(); p[0] != 0xfe || len(row) < 3 {
		c.t.Fatalf("%q, %q", row, p)
	}
	v, _, _ := lenencBytes(row[2:])
	return string(v)
}

// appendAttributes appends what follows their count.
func appendAttributes(p []byte, attributes []string) []byte {
	if len(attributes) == 0 {
		return p
	}
	p = append(append(p, make([]byte, (len(attributes)/2+7)/8)...), 1) // NULLs, and that types follow
	var values []byte
	for i := 0; i < len(attributes); i += 2 {
		p = appendText(append(p, 0xfe, 0), attributes[i]) // MYSQL_TYPE_STRING
		values = appendText(values, attributes[i+1])
	}
	return append(p, values...)
}

// appendText appends a length-encoded string below 64 KiB.
func appendText(p []byte, text string) []byte {
	if len(text) < 0xfb {
		p = append(p, byte(len(text)))
	} else {
		p = binary.LittleEndian.AppendUint16(append(p, 0xfc), uint16(len(text)))
	}
	return append(p, text...)
}

func (c *newest) send(payload []byte) {
	c.t.Helper()
	c.conn.ResetSequence()
	if err := c.conn.WritePacket(payload); err != nil {
		c.t.Fatal(err)
	}
}

func (c *newest) command(payload []byte) (out said) {
	c.t.Helper()
	c.send(payload)
	for {
		p := c.read()
		if p[0] != 0 && p[0] != 0xff {
			for range p[0] { // column definitions
				c.read()
			}
			for p = c.read(); p[0] != 0xfe && p[0] != 0xff; p = c.read() {
				v, _, _ := lenencBytes(p)
				out.rows = append(out.rows, string(v))
			}
		}
		if p[0] == 0xff {
			out.code = binary.LittleEndian.Uint16(p[1:])
			return out
		}
		status, told := c.tracked(p)
		out.told = append(out.told, told...)
		if status&mysqlwire.StatusMoreResults == 0 {
			return out
		}
	}
}

func (c *newest) read() []byte {
	c.t.Helper()
	p, err := c.conn.ReadPacket()
	if err != nil || len(p) == 0 {
		c.t.Fatalf("%q, %v", p, err)
	}
	return bytes.Clone(p)
}

// tracked reads what an OK packet tells of the session
// (https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_ok_packet.html).
func (c *newest) tracked(p []byte) (status uint16, told []string) {
	c.t.Helper()
	_, p, _ = mysqlwire.Lenenc(p[1:]) // rows
	_, p, _ = mysqlwire.Lenenc(p)     // id
	status = binary.LittleEndian.Uint16(p)
	if p = p[4:]; status&0x4000 == 0 { // SERVER_SESSION_STATE_CHANGED
		return status, nil
	}
	_, p, _ = lenencBytes(p) // the text for people
	changes, rest, ok := lenencBytes(p)
	if !ok || len(rest) > 0 {
		c.t.Fatalf("changes of the session in %q", p)
	}
	for len(changes) > 0 {
		kind := changes[0]
		var v []byte
		if v, changes, ok = lenencBytes(changes[1:]); !ok {
			c.t.Fatalf("a change of the session in %q", p)
		}
		switch kind {
		case 0:
			name, value, _ := lenencBytes(v)
			value, _, _ = lenencBytes(value)
			if string(name) != "statement_id" { // it counts all sessions' statements
				told = append(told, string(name)+"="+string(value))
			}
		case 1:
			name, _, _ := lenencBytes(v)
			told = append(told, "schema "+string(name))
		case 3:
			gtid, _, _ := lenencBytes(v[1:])
			told = append(told, c.gtid(string(gtid)))
		default:
			told = append(told, fmt.Sprintf("%d %q", kind, v))
		}
	}
	return status, told
}

// gtid counts from the first that this client was told: others write before it.
func (c *newest) gtid(text string) string {
	n, err := strconv.ParseUint(text[strings.LastIndexByte(text, ':')+1:], 10, 64)
	if err != nil {
		return "gtid " + text
	}
	if c.gtids == 0 {
		c.gtids = n
	}
	return fmt.Sprintf("gtid +%d", n-c.gtids)
}
