package router

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// value asks for one.
func (s *split) value(q string) string {
	s.Helper()
	return one(s.T, s.c, q)
}

// BEFORE waits on every server that is read, for the session, or for one statement.
func TestBefore(t *testing.T) {
	s := newSplit(t, 1, Config{OwnWritesTimeout: 50 * time.Millisecond, ConsistencyTimeout: 300 * time.Millisecond})
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 5})
	s.run("SET @@trireme_consistency = 'BEFORE'", "SELECT 1", "INSERT 1", "START TRANSACTION", "SELECT 2", "COMMIT")
	if got, want := s.reads.log(), []string{"barrier", "n-2 5", "barrier", "n-1 5", "barrier"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	if got := s.value("SELECT @@trireme_consistency"); got != "BEFORE" {
		t.Errorf("level %q", got)
	}
	s.got([]string{"INSERT 1", "START TRANSACTION", "SELECT 2", "COMMIT"}, "SELECT 1")
	// A follower that does not come is not read; a leader that does not come is an error, and nothing is carried out.
	s.reads.set(6, map[string]uint64{"n-1": 6, "n-2": 5})
	s.run("SELECT 3")
	s.got([]string{"SELECT 3"})
	s.reads.set(7, map[string]uint64{"n-1": 6, "n-2": 5})
	_, err := s.c.ExecContext(t.Context(), "INSERT 2")
	wantError(t, err, codeNotCurrent)
	s.reads.set(7, map[string]uint64{"n-1": 7, "n-2": 7})
	s.reads.mu.Lock()
	s.reads.down = errors.New("no majority")
	s.reads.mu.Unlock()
	_, err = s.c.ExecContext(t.Context(), "SELECT 4")
	if wantError(t, err, codeNotCurrent); !strings.Contains(err.Error(), "no majority") {
		t.Errorf("error %v", err)
	}
	s.got(nil)
	s.run("SET SESSION group_replication_consistency = eventual", "SELECT 5", "SET trireme_consistency = DEFAULT")
	_, err = s.c.ExecContext(t.Context(), "SELECT /*+ trireme_consistency(BEFORE) */ 6")
	wantError(t, err, codeNotCurrent)
	_, err = s.c.ExecContext(t.Context(), "SELECT /*+ trireme_consistency(BEFORE) */ ?", 6)
	wantError(t, err, codeNotCurrent)
	_, err = s.c.ExecContext(t.Context(), "SELECT /*+ trireme_consistency(MOST) */ 6")
	wantError(t, err, codeParse)
	s.run("SELECT 7")
	s.got(nil, "SELECT 5", "prepare SELECT /*+ trireme_consistency(BEFORE) */ ?", "close", "SELECT 7")
	for q, code := range map[string]uint16{"SET @@trireme_consistency = 'MOST'": codeWrongValue,
		"SET GLOBAL trireme_consistency = 'BEFORE'": codeSession,
		"SET @@trireme_token = 'x'":                 codeWrongValue, "SET @@trireme_token = 'other/0:1'": codeWrongValue,
		"SET @@trireme_token = 'main/0:x'": codeWrongValue} {
		_, err := s.c.ExecContext(t.Context(), q)
		wantError(t, err, code)
	}
	s.run("START TRANSACTION")
	_, err = s.c.ExecContext(t.Context(), "SET @@trireme_consistency = 'BEFORE'")
	wantError(t, err, codeWithin)
}

// A router's level holds on its other ports too.
func TestRouterLevel(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true, Consistency: Before, ConsistencyTimeout: 50 * time.Millisecond})
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 4})
	s.c = s.connect(s.r.RWAddr())
	s.run("SELECT 1")
	s.c = s.connect(s.r.ROAddr())
	_, err := s.c.ExecContext(t.Context(), "SELECT 2")
	wantError(t, err, codeNotCurrent)
	s.run("SET @@trireme_consistency = 'EVENTUAL'", "SELECT 3")
	s.got([]string{"SELECT 1"}, "SELECT 3")
}

// An account's level is its sessions' from the first statement on, and again after a session says DEFAULT or is reset;
// others have the router's.
func TestLevelOfAnAccount(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true, Levels: map[string]Level{"app": Before},
		ConsistencyTimeout: 50 * time.Millisecond})
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 4})
	s.c = s.connect(s.r.ROAddr())
	if got := s.value("SELECT @@trireme_consistency"); got != "BEFORE" {
		t.Fatal(got)
	}
	_, err := s.c.ExecContext(t.Context(), "SELECT 1")
	wantError(t, err, codeNotCurrent)
	s.run("SET @@trireme_consistency = 'EVENTUAL'", "SELECT 2", "SET @@trireme_consistency = DEFAULT")
	_, err = s.c.ExecContext(t.Context(), "SELECT 3")
	wantError(t, err, codeNotCurrent)
	s.got(nil, "SELECT 2")

	other := newSplit(t, 1, Config{Sessions: true, Levels: map[string]Level{"batch": Before}})
	other.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 4})
	other.c = other.connect(other.r.ROAddr())
	other.run("SELECT 1")
	other.got(nil, "SELECT 1")
}

// Who becomes another account must not get less than that account's level: a session that changes its user is not
// followed.
func TestLevelOfTheNextAccount(t *testing.T) {
	change := func(user string) []byte { return append(append([]byte{comChangeUser}, user...), 0) }
	for name, c := range map[string]struct {
		levels  map[string]Level
		command []byte
		refused bool
	}{
		"no levels":        {nil, change("app"), false},
		"one without":      {map[string]Level{"batch": Before}, change("app"), false},
		"one with a level": {map[string]Level{"batch": Before}, change("batch"), true},
		"cut short":        {map[string]Level{"batch": Before}, []byte{comChangeUser, 'b'}, true},
	} {
		s := &session{r: New(Config{Levels: c.levels})}
		s.r1 = copy(s.buf[:], append([]byte{byte(len(c.command)), 0, 0, 0}, c.command...))
		if got := s.levelOfNext(); got.waits() != c.refused {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A level that is asked for among attributes too long to be read is refused: what is not seen cannot be kept.
func TestLevelAmongLongAttributes(t *testing.T) {
	long := strings.Repeat("x", 2*inBytes)
	for name, refused := range map[string]bool{"trireme.consistency": true, "another": false} {
		p := []byte{comQuery, 2, 1, 0, 1}
		for _, n := range []string{"long", name} {
			p = appendText(append(p, 0xfe, 0), n)
		}
		p = append(appendText(appendText(p, long), "BEFORE"), "SELECT 1"...)
		s := &session{r: New(Config{}), attrs: true}
		s.r1 = copy(s.buf[:], mysqlwire.AppendPacket(nil, 0, p))
		if level, err := s.levelOf(comQuery, len(p)); (err != nil) != refused || level != Eventual {
			t.Errorf("%s: %v, %v", name, level, err)
		}
	}
}

// BEFORE_ON_PRIMARY_FAILOVER asks for nothing while there is a leader, under either of its names. After a failover
// nothing is answered before the router is told of the next leader, which has applied what was committed by then. A
// follower meanwhile answers where it is read, as at EVENTUAL.
func TestBeforeOnFailover(t *testing.T) {
	for _, set := range []string{"SET SESSION group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'",
		"SET @@trireme_consistency = before_on_primary_failover"} {
		s := newSplit(t, 1, Config{Sessions: true})
		to := newWireServer(t)
		s.reads.set(5, map[string]uint64{"n-1": 4, "n-2": 4})
		split := s.c
		s.c = s.connect(s.r.RWAddr())
		for _, c := range []*sql.Conn{s.c, split} {
			run(t, c, set, "SELECT 1")
			if got := one(t, c, "SELECT @@trireme_consistency"); got != "BEFORE_ON_PRIMARY_FAILOVER" {
				t.Errorf("level %q", got)
			}
		}
		if got := s.reads.log(); len(got) > 0 {
			t.Errorf("asked %q", got)
		}
		s.got([]string{"SELECT 1"}, "SELECT 1")
		s.r.SetView(View{RO: []Target{*s.followers[0].target("2")}})
		done := make(chan error, 2)
		for c, q := range map[*sql.Conn]string{s.c: "SELECT 2", split: "SELECT f(2)"} {
			go func() { _, err := c.ExecContext(t.Context(), q); done <- err }()
		}
		eventually(t, "they wait", func() bool { st := s.r.Stats(); return st.RW.Held == 1 && st.Split.Held == 1 })
		s.got(nil)
		s.r.SetView(View{RW: to.target("3"), RO: []Target{*s.followers[0].target("2")}})
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := slices.Sorted(slices.Values(to.statements())); !slices.Equal(got, []string{"SELECT 2", "SELECT f(2)"}) {
			t.Errorf("the next leader was sent %q", got)
		}
		s.got(nil)
	}
}

// A token makes a session of any port read what another has written or seen.
func TestToken(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true, OwnWritesTimeout: 50 * time.Millisecond,
		ConsistencyTimeout: 50 * time.Millisecond})
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 4})
	token := s.value("SELECT @@trireme_token")
	if token != "main/0:5" {
		t.Fatalf("token %q", token)
	}
	set := "SET @@trireme_token = '" + token + "'"
	s.run("SELECT 1", set, "SELECT 2")
	s.got([]string{"SELECT 2"}, "SELECT 1")
	s.c = s.connect(s.r.ROAddr())
	s.run("SELECT 3", set)
	_, err := s.c.ExecContext(t.Context(), "SELECT 4")
	wantError(t, err, codeNotCurrent)
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 5})
	s.run("SELECT 5", "SET @@trireme_token = 'main/0:3'", "SELECT 6")
	s.got(nil, "SELECT 3", "SELECT 5", "SELECT 6")
	if got := s.reads.log(); !slices.Equal(got, []string{"n-2 5"}) {
		t.Errorf("asked %q", got)
	}
}

// A session that waits for its token, or for its level, goes on at the next leader: the one that it waited for may
// never come there. Nor does a switchover wait for it.
func TestWaitMovesWithLeadership(t *testing.T) {
	for name, set := range map[string]string{"token": "SET @@trireme_token = 'main/0:5'",
		"BEFORE": "SET @@trireme_consistency = 'BEFORE'",
		"AFTER":  "SET @@trireme_consistency = 'AFTER'",
		"AFTER, and the leader does not count as live": "SET @@trireme_consistency = 'AFTER'"} {
		for how, lose := range map[string]func(s *split){
			"lost its role": func(s *split) {},
			"ended": func(s *split) {
				s.r.mu.Lock()
				defer s.r.mu.Unlock()
				for l := range s.r.links {
					l.closeServer()
				}
			},
		} {
			t.Run(name+", its server "+how, func(t *testing.T) {
				s := newSplit(t, 0, Config{Sessions: true, ConsistencyTimeout: time.Minute})
				s.reads.set(5, map[string]uint64{"n-1": 4, "n-2": 5})
				if strings.Contains(name, "live") {
					s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 5})
					s.reads.drop("n-1")
				}
				to := newWireServer(t)
				s.c = s.connect(s.r.RWAddr())
				s.run(set)
				done := make(chan error, 1)
				go func() { _, err := s.c.ExecContext(t.Context(), "SELECT 1"); done <- err }()
				eventually(t, "it waits", func() bool {
					s.reads.mu.Lock()
					defer s.reads.mu.Unlock()
					return s.reads.waits > 0 || slices.Contains(s.reads.asked, "live")
				})
				s.r.SetView(View{KeepRW: true})
				eventually(t, "a switchover does not wait for a statement that has not begun", s.r.Quiet)
				lose(s)
				s.r.SetView(View{RW: to.target("2")})
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(limit):
					t.Fatal("it waits for the old leader")
				}
				if got := to.statements(); !slices.Equal(got, []string{"SELECT 1"}) {
					t.Errorf("sent %q", got)
				}
				s.got(nil)
			})
		}
	}
}

// A server that does not say what it has applied is asked again, within the time there is.
func TestServerIsAskedAgain(t *testing.T) {
	s := newSplit(t, 0, Config{Sessions: true, ConsistencyTimeout: limit})
	s.c = s.connect(s.r.RWAddr())
	s.run("SET @@trireme_token = 'main/0:1'")
	s.reads.mu.Lock()
	s.reads.silent = 1
	s.reads.mu.Unlock()
	s.run("INSERT 1")
}

// Without a way to know what servers show, nothing that depends on it is promised.
func TestNoReads(t *testing.T) {
	s := splitOf(t, 1, Config{})
	s.run("SELECT 1", "INSERT 1", "SELECT 2")
	s.got([]string{"INSERT 1", "SELECT 2"}, "SELECT 1")
	_, err := s.c.ExecContext(t.Context(), "SET @@trireme_consistency = 'BEFORE'")
	wantError(t, err, codeWrongValue)
	_, err = s.c.ExecContext(t.Context(), "SELECT /* trireme_consistency(BEFORE) */ 3")
	wantError(t, err, codeNotCurrent)
	_, err = s.c.QueryContext(t.Context(), "SELECT @@trireme_token")
	wantError(t, err, codeNotCurrent)
}

// What is in front of a text is taken apart, whatever types it has.
func TestParseAttributes(t *testing.T) {
	level, mode := Before, accessReadOnly
	head := func(count byte, rest ...byte) []byte { return append([]byte{comQuery, count, 1}, rest...) }
	str := func(v string) []byte { return append([]byte{byte(len(v))}, v...) }
	join := func(parts ...[]byte) (p []byte) {
		for _, part := range parts {
			p = append(p, part...)
		}
		return p
	}
	for name, c := range map[string]struct {
		p     []byte
		ok    bool
		level *Level
		mode  *accessMode
		wrong bool
	}{
		"none": {head(0), true, nil, nil, false},
		"two": {join(head(2, 0, 1), []byte{254, 0}, str("trireme.consistency"), []byte{254, 0}, str("router.access_mode"),
			str("before"), str("Read_Only")), true, &level, &mode, false},
		"others": {join(head(4, 0b1000, 1), []byte{8, 0}, str("a"), []byte{12, 0}, str("b"), []byte{1, 0}, str("c"),
			[]byte{254, 0}, str("router.access_mode"),
			make([]byte, 8), []byte{4, 0, 0, 0, 0}, []byte{1}), true, nil, nil, false},
		"wrong":    {join(head(1, 0, 1), []byte{254, 0}, str("router.access_mode"), str("x")), true, nil, nil, true},
		"no types": {head(1, 0, 0), false, nil, nil, false},
		"cut":      {join(head(1, 0, 1), []byte{254, 0}, str("router.access_mode"), []byte{9, 'x'}), false, nil, nil, false},
	} {
		at, ok := parseAttributes(append(c.p[:len(c.p):len(c.p)], "SELECT 1"...))
		if name == "cut" {
			at, ok = parseAttributes(c.p)
		}
		if ok != c.ok || ok && (at.length != len(c.p) || (at.level == nil) != (c.level == nil) ||
			(at.access == nil) != (c.mode == nil) || (at.wrong != nil) != c.wrong) {
			t.Errorf("%s: %+v, %v", name, at, ok)
		}
		if ok && c.level != nil && (*at.level != *c.level || *at.access != *c.mode) {
			t.Errorf("%s: %v %v", name, *at.level, *at.access)
		}
	}
}

func FuzzParseAttributes(f *testing.F) {
	f.Add([]byte{comQuery, 0, 1, 'x'})
	f.Add([]byte{comQuery, 1, 1, 0, 1, 254, 0, 1, 'a', 1, 'b', 'x'})
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 {
			return
		}
		if at, ok := parseAttributes(p); ok && (at.length < 1 || at.length > len(p)) {
			t.Errorf("length %d of %d", at.length, len(p))
		}
	})
}

// The router's own answers follow both forms of the protocol.
func TestAppendRow(t *testing.T) {
	for _, deprecateEOF := range []bool{true, false} {
		a := newAnswer(comQuery, deprecateEOF)
		p := mysqlwire.AppendRow(nil, 1, "@@x", strings.Repeat("v", 300), 2, deprecateEOF)
		if used, err := a.feed(p); err != nil || used != len(p) || !a.done() || a.status != 2 {
			t.Errorf("%v: %d of %d bytes, %v, status %d", deprecateEOF, used, len(p), err, a.status)
		}
	}
}

// The router's own packets announce nothing that they do not have, such as changes of the session, whatever the
// server's last one had.
func TestOwnStatus(t *testing.T) {
	_, _, _, c := rawSession(t, Config{})
	if ok, _ := rawOK(t, c, "TRACK"); ok.Status == mysqlwire.StatusAutocommit {
		t.Fatal("the server announces nothing")
	}
	if ok, _ := rawOK(t, c, "SET @@trireme_consistency = 'EVENTUAL'"); ok.Status != mysqlwire.StatusAutocommit {
		t.Errorf("status %x", ok.Status)
	}
}

// rawOK is the OK packet that answers a statement, as it is.
func rawOK(t *testing.T, c *mysqlwire.Client, q string) (mysqlwire.OK, []byte) {
	t.Helper()
	if err := c.WriteCommand(comQuery, []byte(q)); err != nil {
		t.Fatal(err)
	}
	p, err := c.ReadPacket()
	if err != nil {
		t.Fatal(err)
	}
	ok, err := mysqlwire.ParseOK(p)
	if err != nil {
		t.Fatalf("%s: %q: %v", q, p, err)
	}
	return ok, p
}

// AFTER holds the answer of what commits until all servers show it, and says so if they do not.
func TestAfter(t *testing.T) {
	s := newSplit(t, 1, Config{ConsistencyTimeout: 50 * time.Millisecond})
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 5})
	s.run("SET @@trireme_consistency = 'AFTER'", "SELECT 1")
	s.toldAt(-time.Hour)
	s.run("INSERT 1", "START TRANSACTION", "INSERT 2", "COMMIT", "SHOW TABLES", "START TRANSACTION", "INSERT 3",
		"ROLLBACK")
	if got, want := s.reads.log(), []string{"live", "n-2 5", "live", "n-1 5", "answered n-1", "n-1 5", "n-2 5",
		"answered n-1", "n-1 5", "n-2 5"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	s.leader.take()
	s.reads.set(6, map[string]uint64{"n-1": 6, "n-2": 5})
	for _, statements := range [][]string{{"INSERT 4"}, {"START TRANSACTION", "INSERT 5", "COMMIT"}} {
		last := len(statements) - 1
		s.run(statements[:last]...)
		_, err := s.c.ExecContext(t.Context(), statements[last])
		if wantError(t, err, codeNotEverywhere); !strings.Contains(err.Error(), "Do not repeat") {
			t.Errorf("error %v", err)
		}
	}
	// What was told is that it is committed: the session goes on outside of a transaction.
	s.run("SET @@trireme_consistency = 'BEFORE_AND_AFTER'", "SET a = 1")
	s.reads.set(7, map[string]uint64{"n-1": 7, "n-2": 7})
	s.run("INSERT /* trireme_consistency(EVENTUAL) */ 6", "INSERT 7")
	if got, want := s.reads.log(), []string{"barrier", "n-1 7", "answered n-1", "n-1 7", "n-2 7"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	s.leader.set(func(w *wireServer) { w.fail = map[string]uint16{"INSERT 8": 1062} })
	s.reads.set(8, map[string]uint64{"n-1": 8})
	_, err := s.c.ExecContext(t.Context(), "INSERT 8")
	wantError(t, err, 1062)
	s.got([]string{"INSERT 4", "START TRANSACTION", "INSERT 5", "COMMIT", "SET a = 1",
		"INSERT /* trireme_consistency(EVENTUAL) */ 6", "INSERT 7", "INSERT 8"}, "SELECT 1")
}

// Who is told that a statement was committed, although its server was lost, is told so at AFTER when the others show
// it.
func TestAfterOfTheLost(t *testing.T) {
	for q, want := range map[string]uint16{"COMMIT": 0, "INSERT 1": 3168} {
		for shown, code := range map[bool]uint16{true: want, false: codeNotEverywhere} {
			s := newSplit(t, 0, Config{Sessions: true, Consistency: After,
				ConsistencyTimeout: map[bool]time.Duration{true: limit, false: time.Second}[shown],
				Outcomes:           told(api.Committed)})
			to := newWireServer(t)
			s.c = s.connect(s.r.RWAddr())
			if q == "COMMIT" {
				s.run("START TRANSACTION")
			}
			s.leader.set(func(w *wireServer) { w.hang = q })
			ended := make(chan error, 1)
			go func() { _, err := s.c.ExecContext(t.Context(), q); ended <- err }()
			eventually(t, "it is under way", func() bool { return slices.Contains(s.leader.statements(), q) })
			s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": map[bool]uint64{true: 5, false: 4}[shown]})
			s.r.SetView(View{RW: to.target("2")})
			if err := <-ended; code != 0 || err != nil {
				wantError(t, err, code)
			}
			if got := s.reads.log(); !slices.Contains(got, "barrier") {
				t.Errorf("%s: asked %q", q, got)
			}
		}
	}
}

// toldAt pretends that the router asked who counts as live that long ago.
func (s *split) toldAt(ago time.Duration) {
	s.r.told.mu.Lock()
	defer s.r.told.mu.Unlock()
	s.r.told.asked = boottime() - ago
}

// A read at AFTER is served by a server that counts as live, according to an answer that is young and was asked for
// after the connection began, and is as current as that answer says. On the splitting port the leader takes its place;
// on 6447 the session waits, and is refused in the end.
func TestAfterReads(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true, Levels: map[string]Level{"app": After},
		OwnWritesTimeout: 50 * time.Millisecond, ConsistencyTimeout: 300 * time.Millisecond})
	asked := func(want ...string) {
		t.Helper()
		if got := slices.Compact(s.reads.log()); !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
		s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 5})
	}
	s.reads.set(5, map[string]uint64{"n-1": 5, "n-2": 5})
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 1")
	asked("live", "n-2 5")
	s.toldAt(-time.Hour)
	s.reads.drop("n-2")
	s.run("SELECT 2") // it does not know
	asked()
	s.toldAt(api.LiveFor)
	s.run("SELECT 3", "SELECT /*+ trireme_consistency(EVENTUAL) */ 4")
	asked("live", "n-1 5")
	s.toldAt(-time.Hour)
	s.run("SELECT 3") // it was told lately that the follower does not
	asked()
	s.toldAt(liveAgain)
	s.reads.drop("")
	s.run("SELECT 5")
	asked("live")
	s.toldAt(api.LiveFor)
	s.reads.set(6, map[string]uint64{"n-1": 6, "n-2": 5}) // it counts as live, and this server of its lacks something
	s.run("SELECT 6")
	asked("live", "n-1 6")
	s.got([]string{"SELECT 3", "SELECT 3", "SELECT 6"}, "SELECT 1", "SELECT 2",
		"SELECT /*+ trireme_consistency(EVENTUAL) */ 4", "SELECT 5")

	s.c = s.connect(s.r.SplitAddr())
	s.toldAt(-time.Hour)
	s.reads.set(6, map[string]uint64{"n-1": 6, "n-2": 6})
	s.run("SELECT 7", "SELECT 8")
	if got := s.reads.log(); len(got) == 0 || got[0] != "live" || slices.Contains(got[1:], "live") {
		t.Errorf("over a new connection asked %q", got)
	}
	asked(s.reads.log()...)
	s.c = s.connect(s.r.RWAddr())
	s.toldAt(api.LiveFor)
	s.run("SELECT 9")
	asked("live", "n-1 5")
	s.got([]string{"SELECT 9"}, "SELECT 7", "SELECT 8")

	s.c = s.connect(s.r.ROAddr())
	s.reads.drop("n-2")
	for _, q := range []string{"SELECT 10", "START TRANSACTION"} {
		_, err := s.c.ExecContext(t.Context(), q)
		if wantError(t, err, codeNotCurrent); !strings.Contains(err.Error(), "AFTER could not be kept on n-2") ||
			!strings.Contains(err.Error(), "does not count as live") {
			t.Errorf("error %v", err)
		}
	}
	s.run("SELECT /*+ trireme_consistency(EVENTUAL) */ 11")
	time.AfterFunc(10*time.Millisecond, func() { s.reads.drop("") })
	s.run("SELECT 12")
	s.got(nil, "SELECT /*+ trireme_consistency(EVENTUAL) */ 11", "SELECT 12")
}

// Of a session that cannot be followed, a level is refused and not kept in part.
func TestNoLevel(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true, Consistency: Before, TLS: testTLS(t)})
	s.reads.set(0, nil)
	for _, addr := range []string{s.r.RWAddr(), s.r.SplitAddr()} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		// Its library is not known to seal its password, so it is not asked for it.
		c, err := mysqlwire.Login(t.Context(), nc, mysqlwire.ClientConfig{User: "app", Password: wirePassword})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Exec(t.Context(), "INSERT 1"); !mysqlwire.IsServerCode(err, codeNoLevel) {
			t.Errorf("error %v", err)
		}
	}
	s.got(nil)
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
