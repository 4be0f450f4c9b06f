package router

import (
	"bytes"
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

	"trireme/internal/mysql/mysqlwire"
)

// owner is the attribute by which a session says whose it is; logins of the router's own repeat it.
const owner = "owner"

// ownAnswer is what a question is answered with, in rows of text; a question is "SELECT '«owner» «number» «rows»
// «bytes»' /* padding */".
func ownAnswer(question string) (rows [][]mysqlwire.Value, who string, err error) {
	mark, padding, ok := strings.Cut(strings.TrimPrefix(question, "SELECT '"), "' /* ")
	var number, count, size int
	if _, err := fmt.Sscanf(mark, "%s %d %d %d", &who, &number, &count, &size); err != nil || !ok {
		return nil, "", fmt.Errorf("question %.100q", question)
	}
	if left := strings.Trim(strings.TrimSuffix(padding, " */"), who[:1]); left != "" {
		return nil, "", fmt.Errorf("in the middle of a question of %s: %.100q", who, left)
	}
	for i := range count {
		rows = append(rows,
			[]mysqlwire.Value{{Text: fmt.Sprintf("%s %d %d ", who, number, i) + strings.Repeat(who[:1], size)}})
	}
	return rows, who, nil
}

// newOwnServer answers each session what it has asked for, and makes sure that it is that session that asks. Now and
// then it closes a connection, in the middle of an answer or before that.
func newOwnServer(t *testing.T, offered *tls.Config, wrong func(error)) net.Listener {
	return handled(t, func(c net.Conn) {
		s, err := mysqlwire.Accept(t.Context(), c, mysqlwire.ServerConfig{User: "app", Password: wirePassword,
			Version: "9.7.4", TLS: offered})
		if err != nil {
			return
		}
		of := ""
		for _, a := range s.Client.Attributes {
			if a.Name == owner {
				of = a.Value
			}
		}
		for {
			command, argument, err := s.ReadCommand()
			if err != nil || command == mysqlwire.ComQuit {
				return
			}
			rows, who, err := [][]mysqlwire.Value{{{Text: "no such variables"}}}, of, error(nil)
			if string(argument) != readSettingsQuery {
				rows, who, err = ownAnswer(string(argument))
			}
			if err == nil && who != of {
				err = fmt.Errorf("a question of %s over the connection of %s", who, of)
			}
			if err != nil {
				wrong(err)
				return
			}
			answer := mysqlwire.AppendRows(nil, s.Sequence(), []mysqlwire.Column{{Name: "c"}}, rows, mysqlwire.StatusAutocommit,
				false)
			ends := rand.IntN(50) == 0
			if ends {
				answer = answer[:rand.IntN(len(answer))]
			}
			if _, err := s.NetConn().Write(answer); err != nil || ends {
				return
			}
		}
	})
}

// heard reads an answer. Each row of it must be the asker's, and belong to the question asked: mixed reports others. An
// error is a connection's end, which may come at any place; leave ends it after the first row.
func heard(c *mysqlwire.Client, question string, leave bool) (code uint16, mixed, err error) {
	want, _, err := ownAnswer(question)
	if err != nil {
		return 0, err, nil
	}
	p, err := c.ReadPacket()
	if err != nil {
		return 0, nil, err
	}
	if mysqlwire.IsERR(p) {
		e, err := mysqlwire.ParseERR(p)
		if err != nil || !strings.HasPrefix(e.Message, "Trireme: ") {
			return 0, fmt.Errorf("%q, %w", p, errors.Join(err, errAnswer)), nil
		}
		return e.Code, nil, nil
	}
	if !bytes.Equal(p, []byte{1}) {
		return 0, fmt.Errorf("%.100q in place of a number of columns", p), nil
	}
	for at := -2; ; at++ { // a column, the EOF after it, rows
		if p, err = c.ReadPacket(); err != nil {
			return 0, nil, err
		}
		switch {
		case mysqlwire.IsERR(p): // the server was lost between two packets
			return 1, nil, nil
		case at < 0:
		case mysqlwire.IsEOF(p) && at == len(want):
			return 0, nil, nil
		case at >= len(want):
			return 0, fmt.Errorf("%.100q after %d rows", p, at), nil
		default:
			row, err := mysqlwire.ParseRow(p, 1)
			if err != nil || row[0] != want[at][0] {
				return 0, fmt.Errorf("row %d of %d is %.100q, not %.100q, %w", at, len(want), p, want[at][0].Text,
					errors.Join(err, errAnswer)), nil
			}
			if leave {
				return 0, nil, io.ErrClosedPipe
			}
		}
	}
}

// However often servers change, and connections end in the middle of what is said: what a session hears is the answer
// to its own question, or an end, and what a server is asked over a session's connection is that session's. All of them
// share the router's buffers.
func TestAnswersAreTheAskers(t *testing.T) {
	const sessions, questions = 64, 40
	keyMade(t)
	var answered, failed, ended, told atomic.Int64
	wrong := func(err error) { failed.Add(1); t.Error(err) }
	certificate := testTLS(t)
	r := start(t, Config{Sessions: true, SplitListen: "127.0.0.1:0", ReplayReads: true, TLS: certificate,
		HoldTimeout: limit})
	var servers []Target
	for i := range 3 {
		servers = append(servers, Target{Name: fmt.Sprintf("n%d", i+1), Addr: newOwnServer(t, certificate, wrong).Addr().
			String()})
	}
	view := func(turn int) View {
		of := func(i int) Target {
			target := servers[(turn+i)%len(servers)]
			target.Epoch = fmt.Sprint(turn / 2)
			return target
		}
		rw := of(0)
		return View{RW: &rw, RO: []Target{of(1), of(2)}[:turn%3]}
	}
	r.SetView(view(0))
	done := make(chan struct{})
	var churn, wg sync.WaitGroup
	// every so many answers, or after half a second. Changes of the view in between that cut no connection explain the
	// ends of connections that sessions wait for
	churn.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for turn, last := 1, int64(0); ; turn++ {
			for waits := 0; waits < 25 && answered.Load() < last+200; waits++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				v := view(turn - 1)
				v.RO = append(v.RO, Target{Name: "gone", Epoch: fmt.Sprint(turn, waits)})
				r.SetView(v)
			}
			last = answered.Load()
			if turn%3 == 0 {
				r.SetView(View{KeepRW: true})
			}
			r.SetView(view(turn))
		}
	})
	for id := range sessions {
		wg.Go(func() {
			who := fmt.Sprintf("%c%d", 'a'+id%26, id)
			cfg := mysqlwire.ClientConfig{User: "app", Password: wirePassword,
				Attributes: append([]mysqlwire.Attribute{{Name: owner, Value: who}}, sealing.Attributes...)}
			addr := r.RWAddr()
			if id%2 == 1 {
				addr = r.SplitAddr()
			}
			if id%8 < 2 {
				cfg.TLS = &tls.Config{InsecureSkipVerify: true}
			}
			var c *mysqlwire.Client
			for number := range questions {
				for tries := 0; c == nil; tries++ {
					var err error
					if c, err = askingSession(t, addr, cfg); err != nil && tries == 50 {
						wrong(fmt.Errorf("session %s does not get in: %w", who, err))
						return
					}
				}
				size := 1 << rand.IntN(15)
				question := fmt.Sprintf("SELECT '%s %d %d %d' /* %s */", who, number, rand.IntN(8), rand.IntN(size),
					strings.Repeat(who[:1], rand.IntN(size)))
				err := c.WriteCommand(comQuery, []byte(question))
				var code uint16
				var mixed error
				if err == nil {
					code, mixed, err = heard(c, question, rand.IntN(50) == 0)
				}
				switch {
				case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, mysqlwire.ErrSequence),
					errors.Is(err, mysqlwire.ErrTooLarge):
					mixed = fmt.Errorf("question %d: %w", number, err)
				case err != nil:
					ended.Add(1)
					_ = c.Close()
					c = nil
				case code != 0:
					told.Add(1)
				default:
					answered.Add(1)
				}
				if mixed != nil {
					wrong(fmt.Errorf("session %s: %w", who, mixed))
					break
				}
			}
			if c != nil {
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	close(done)
	churn.Wait()
	r.SetView(view(0))
	st := r.Stats()
	t.Logf("%d answers, %d errors, %d ends; carried over %d times", answered.Load(), told.Load(), ended.Load(),
		st.RW.Carried+st.Split.Carried)
	if failed.Load() == 0 && (answered.Load() < sessions*questions/2 || ended.Load() == 0 || st.RW.Carried == 0 ||
		st.Split.Carried == 0 || st.Split.FollowerReads == 0) {
		t.Errorf("too little has happened: %+v", st)
	}
	eventually(t, "nothing is left", func() bool { return clientsOf(r) == 0 })
}

// askingSession logs in. What it hears later has a deadline.
func askingSession(t *testing.T, addr string, cfg mysqlwire.ClientConfig) (*mysqlwire.Client, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c, err := mysqlwire.Login(t.Context(), nc, cfg)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(3 * limit))
	return c, nil
}
