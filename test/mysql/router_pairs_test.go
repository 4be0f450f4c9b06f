package mysql_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/mysql/mysqlwire"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

const pairsPassword = "pairs-Pass-1"

// TestPairs: whatever a client sends, each answer goes to its own command. After each random command comes one that the
// router answers and one that mysqld answers: if the router takes an answer for another command's, the last one stays
// away. 5 s, in its long form 5 minutes.
func TestPairs(t *testing.T) {
	during := 5 * time.Second
	if needs.IsLong() {
		during = 5 * time.Minute
	}
	server := testkit.StartServer(t, "--skip-name-resolve", "--max-allowed-packet=4096", "--net-buffer-length=1024")
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (i INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100))",
		"CREATE PROCEDURE d.p() BEGIN SELECT 1; SET time_zone = '+01:00'; SELECT * FROM d.missing; END",
		"CREATE USER app IDENTIFIED BY '" + pairsPassword + "'", "GRANT ALL ON d.* TO app"} {
		server.Exec(q)
	}
	r := start(t, router.Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), Reads: oneServer{},
		HoldTimeout: limit, DialTimeout: limit})
	r.SetView(router.View{RW: &router.Target{Name: "n1", Addr: server.Addr(), Epoch: "1"},
		RO: []router.Target{{Name: "n2", Addr: server.Addr(), Epoch: "1"}}})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var commands, sessions atomic.Int64
	var wg sync.WaitGroup
	for worker := range uint64(8) { // a session whose server has closed it waits some seconds
		g := pairGenerator{rand.New(rand.NewPCG(seed, worker))}
		wg.Go(func() {
			for end := time.Now().Add(during); time.Now().Before(end) && !t.Failed(); sessions.Add(1) {
				n, err := g.session([]string{r.RWAddr(), r.SplitAddr(), r.ROAddr()}[g.IntN(3)])
				if commands.Add(int64(n)); err != nil {
					t.Errorf("seed %d, worker %d: %v", seed, worker, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d commands in %d sessions", commands.Load(), sessions.Load())
	if commands.Load() < 50 {
		t.Error("too few")
	}
}

// session sends commands until the session ends, and says how many.
func (g pairGenerator) session(to string) (n int, err error) {
	began := time.Now()
	nc, err := net.Dial("tcp", to)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	c, err := g.login(nc)
	// a machine with too much to do did not end it in the 10 s that a login has
	if errors.Is(err, io.EOF) && time.Since(began) > 5*time.Second {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var sent []string
	for n < 50 {
		command := g.command()
		sent = append(sent, fmt.Sprintf("%.60q", command))
		n++
		ended, err := inStep(c, command, n)
		if err != nil {
			return n, fmt.Errorf("%w; commands:\n%s", err, strings.Join(sent, "\n"))
		}
		if ended {
			return n, nil
		}
	}
	return n, nil
}

// login is that of an older client, or of one that takes OK packets for EOF packets and has its session tracked.
func (g pairGenerator) login(nc net.Conn) (net.Conn, error) {
	if g.IntN(2) == 0 {
		c, err := mysqlwire.Login(context.Background(), nc, mysqlwire.ClientConfig{User: "app", Password: pairsPassword,
			Attributes: []mysqlwire.Attribute{{Name: "_client_name", Value: "pymysql"}}})
		if err != nil {
			return nil, err
		}
		return c.NetConn(), nil
	}
	conn := mysqlwire.NewConn(nc, 0)
	response := mysqlwire.Response{MaxPacket: mysqlwire.MaxPayload, Collation: 255, User: "app",
		Capabilities: mysqlwire.CapProtocol41 | capSecureConnection | capPluginAuth | mysqlwire.CapMultiStatements | capMultiResults |
			capPSMultiResults | mysqlwire.CapDeprecateEOF | mysqlwire.CapSessionTrack}
	_, _, err := mysqlwire.LoginAs(context.Background(), conn, response, pairsPassword,
		mysqlwire.Secrecy{TLS: &tls.Config{InsecureSkipVerify: true}})
	return conn.NetConn(), err
}

// inStep sends a command and two more, and waits for the last one's answer. ended: the session has ended, as it may.
func inStep(c net.Conn, command []byte, n int) (ended bool, err error) {
	mark := fmt.Sprintf("mark-%d", n)
	var all []byte
	for _, p := range [][]byte{command, []byte("\x03SELECT @@trireme_consistency"),
		[]byte("\x03SELECT '" + mark + "' FROM d.t RIGHT JOIN (SELECT 1) x ON FALSE")} {
		all = append(all, mysqlwire.AppendPacket(nil, 0, p)...)
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write(all); err != nil {
		return true, nil
	}
	var got []string
	row := append([]byte{byte(len(mark))}, mark...)
	for {
		p, err := readAny(c)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, fmt.Errorf("no answer to %q; answers: %s", mark, strings.Join(got, " "))
		case err != nil:
			return true, nil
		}
		got = append(got, fmt.Sprintf("%.40q", p))
		if bytes.Equal(p, row) {
			_, err := readAny(c) // the end of the rows
			return err != nil, nil
		}
	}
}

// readAny reads a packet, whatever its number.
func readAny(c io.Reader) ([]byte, error) {
	var head [mysqlwire.HeaderLen]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	length, _ := mysqlwire.ParseHeader(head[:])
	p := make([]byte, length)
	_, err := io.ReadFull(c, p)
	return p, err
}

// pairGenerator makes commands, most of them wrong.
type pairGenerator struct{ *rand.Rand }

func (g pairGenerator) command() []byte {
	p := make([]byte, g.IntN(14))
	for i := range p {
		if p[i] = byte(g.Uint32()); g.IntN(3) > 0 {
			p[i] = byte(g.IntN(3))
		}
	}
	texts := []string{"SELECT 1", "INSERT INTO d.t (v) VALUES ('x')", "START TRANSACTION", "COMMIT", "CALL d.p()",
		"SELECT * FROM d.missing", "", "SET @x = 1", "SELECT 1; SELECT 2", "SET time_zone = '+02:00'", "USE d",
		"SELECT * FROM d.t LIMIT 3", "START TRANSACTION READ ONLY", "SHOW WARNINGS", "DO SLEEP(0)",
		"GET DIAGNOSTICS @n = NUMBER", "GET DIAGNOSTICS CONDITION @n @p = MESSAGE_TEXT"}
	text := texts[g.IntN(len(texts))]
	switch g.IntN(10) {
	case 0, 1:
		return append([]byte{0x03}, text...)
	case 2:
		return append([]byte{0x16}, "SELECT ? FROM d.t"...)
	case 3: // of a statement that there is, as far as it goes
		commands := []byte{0x17, 0x18, 0x19, 0x1a, 0x1c}
		whole := append([]byte{commands[g.IntN(len(commands))], byte(1 + g.IntN(3)), 0, 0, 0, byte(g.IntN(2)), 1, 0, 0, 0, 0,
			1, 8, 0}, p...)
		return whole[:1+g.IntN(len(whole))]
	case 4: // more than the server takes
		return append([]byte{0x18, byte(1 + g.IntN(3)), 0, 0, 0, 0, 0}, make([]byte, 500+g.IntN(9000))...)
	case 5:
		return append([]byte{0x03}, bytes.Repeat([]byte("SELECT 1 + "), g.IntN(600))...)
	}
	for {
		c := byte(g.IntN(0x20))
		// the end, and what is passed on as bytes
		if !bytes.Contains([]byte{0, 1, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x1e}, []byte{c}) {
			return append([]byte{c}, p...)
		}
	}
}
