package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/mysqlwire"
	"trireme/internal/needs"
)

// What is too short for its command gets mysqld's error and ends its session: nothing of it reaches the server, and so no answer is taken
// for another command's.
func TestShortCommands(t *testing.T) {
	for command, length := range shortest {
		for n := range length - 1 {
			_, from, _, c := rawSession(t, Config{Cluster: &fakeCluster{}})
			from.set(func(w *wireServer) { w.rows = answers("GRANT USAGE ON *.* TO `app`@`%`") })
			if err := c.WriteCommand(command, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if code := hear(t, c); code != codeMalformed {
				t.Errorf("command %#x with %d bytes: %d", command, n, code)
			}
			if p, err := c.ReadPacket(); err == nil {
				t.Errorf("command %#x with %d bytes: then %q", command, n, p)
			}
			if sent := from.statements(); len(sent) > 0 {
				t.Errorf("command %#x with %d bytes: the server was sent %q", command, n, sent)
			}
		}
	}
}

// A server that answers parameters sent ahead, as mysqld does those beyond max_allowed_packet, ends the session: its next command would get
// that answer.
func TestAnswerToSilentCommand(t *testing.T) {
	_, from, _, c := rawSession(t, Config{})
	if err := c.WriteCommand(comStmtPrepare, []byte("SELECT ?")); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the statement, its parameter, EOF
		if _, err := c.ReadPacket(); err != nil {
			t.Fatal(err)
		}
	}
	from.set(func(w *wireServer) { w.answersLong = true })
	long := mysqlwire.AppendPacket(nil, 0, append([]byte{comStmtSendLong, 1, 0, 0, 0, 0, 0}, make([]byte, 2000)...))
	both := append(long, mysqlwire.AppendPacket(nil, 0, []byte("\x03INSERT 1"))...)
	if _, err := c.NetConn().Write(both); err != nil {
		t.Fatal(err)
	}
	if p, err := readAny(c.NetConn()); err != nil || !mysqlwire.IsERR(p) {
		t.Errorf("answer %q, %v", p, err)
	}
	if p, err := readAny(c.NetConn()); err == nil {
		t.Errorf("then %q", p)
	}
	if sent := from.statements(); slices.Contains(sent, "INSERT 1") {
		t.Errorf("the server was sent %q", sent)
	}
}

// TestPairs: whatever a client sends, each answer goes to its own command. After each random command comes one that the router answers and one
// that mysqld answers: if the router takes an answer for another command's, the last one stays away.
func TestPairs(t *testing.T) { pairs(t, 20*time.Second) }

// TestPairsLong is TestPairs for ten minutes.
func TestPairsLong(t *testing.T) {
	needs.Long(t)
	pairs(t, 10*time.Minute)
}

func pairs(t *testing.T, during time.Duration) {
	addr, root := startMySQL(t, "--max-allowed-packet=4096", "--net-buffer-length=1024")
	db := open(t, addr, root, "")
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (i INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100))",
		"CREATE PROCEDURE d.p() BEGIN SELECT 1; SET time_zone = '+01:00'; SELECT * FROM d.missing; END",
		"CREATE USER app IDENTIFIED BY '" + wirePassword + "'", "GRANT ALL ON d.* TO app"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	r := start(t, Config{Sessions: true, SplitListen: "127.0.0.1:0", TLS: testTLS(t), Reads: oneServer{}, HoldTimeout: limit, DialTimeout: limit})
	r.SetView(View{RW: &Target{Name: "n1", Addr: addr, Epoch: "1"}, RO: []Target{{Name: "n2", Addr: addr, Epoch: "1"}}})
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
	if commands.Load() < 200 {
		t.Error("too few")
	}
}

// session sends commands until the session ends, and says how many.
func (g pairGenerator) session(to string) (n int, err error) {
	nc, err := net.Dial("tcp", to)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	c, err := mysqlwire.Login(context.Background(), nc, sealing)
	if err != nil {
		return 0, err
	}
	var sent []string
	for n < 50 {
		command := g.command()
		sent = append(sent, fmt.Sprintf("%.60q", command))
		n++
		ended, err := inStep(c.NetConn(), command, n)
		if err != nil {
			return n, fmt.Errorf("%w; commands:\n%s", err, strings.Join(sent, "\n"))
		}
		if ended {
			return n, nil
		}
	}
	return n, nil
}

// inStep sends a command and two more, and waits for the last one's answer. ended: the session has ended, as it may.
func inStep(c net.Conn, command []byte, n int) (ended bool, err error) {
	mark := fmt.Sprintf("mark-%d", n)
	var all []byte
	for _, p := range [][]byte{command, []byte("\x03SELECT @@trireme_consistency"), []byte("\x03SELECT '" + mark + "' FROM d.t RIGHT JOIN (SELECT 1) x ON FALSE")} {
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
	texts := []string{"SELECT 1", "INSERT INTO d.t (v) VALUES ('x')", "START TRANSACTION", "COMMIT", "CALL d.p()", "SELECT * FROM d.missing", "", "SET @x = 1",
		"SELECT 1; SELECT 2", "SET time_zone = '+02:00'", "USE d", "SELECT * FROM d.t LIMIT 3", "START TRANSACTION READ ONLY", "SHOW WARNINGS", "DO SLEEP(0)"}
	text := texts[g.IntN(len(texts))]
	switch g.IntN(10) {
	case 0, 1:
		return append([]byte{comQuery}, text...)
	case 2:
		return append([]byte{comStmtPrepare}, "SELECT ? FROM d.t"...)
	case 3: // of a statement that there is, as far as it goes
		commands := []byte{comStmtExecute, comStmtSendLong, comStmtClose, comStmtReset, comStmtFetch}
		whole := append([]byte{commands[g.IntN(len(commands))], byte(1 + g.IntN(3)), 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 8, 0}, p...)
		return whole[:1+g.IntN(len(whole))]
	case 4: // more than the server takes
		return append([]byte{comStmtSendLong, byte(1 + g.IntN(3)), 0, 0, 0, 0, 0}, make([]byte, 500+g.IntN(9000))...)
	case 5:
		return append([]byte{comQuery}, bytes.Repeat([]byte("SELECT 1 + "), g.IntN(600))...)
	}
	for {
		c := byte(g.IntN(0x26))
		if c != comQuit && c != 0x08 && understood(c) {
			return append([]byte{c}, p...)
		}
	}
}
