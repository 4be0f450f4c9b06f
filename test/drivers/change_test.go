package drivers

import (
	"bufio"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/bench"
	"trireme/lab/testkit"
)

// A client under load has three workers, each with a session of its own. A worker makes rows (n, a) in
// drivers.load_NAME: n is its own number and then every third one after it, a counts the attempts at n from 1. How a
// row is made hangs on n:
//
//	n % 3 = 1   a transaction: BEGIN, the row, UPDATE drivers.count_NAME SET v = v + 1, COMMIT
//	n % 3 = 2   with autocommit
//	n % 3 = 0   with autocommit, as a statement prepared at the server, where the driver has that
//
// It reads each acknowledged row: in the same session, or at BEFORE where it has a pool, or a login for each row, and
// so perhaps another session. An attempt that was answered with SQLSTATE 40001 (1213) is followed by the next one at
// the same n, any other error by the next n. It prints a line for each:
//
//	ack N A                         the row was acknowledged
//	err N A STEP CODE STATE text    STEP failed with a server's error CODE (0: the driver's own) and its SQLSTATE (-: the driver does not tell)
//	late STEP CODE STATE text       a step that has nothing to do with a row failed: a read, giving the session back to its pool
//	miss N A                        it did not find its own acknowledged row
//
// and "done" at its end.
const workers = 3

// attempt is one try to make a row.
type attempt struct{ n, a int64 }

// answer is an error that a client was given.
type answer struct {
	step        string
	code        int
	state, text string
	phase       string // in which it came
}

func (a answer) String() string { return fmt.Sprintf("%s: %d %s %s", a.step, a.code, a.state, a.text) }

// fate is what an answer says of its row.
type fate int

const (
	fateUnknown fate = iota
	fateThere
	fateNotThere
)

// fate is what docs/router.md says of an error, and whether it does. Of a driver that does not tell the SQLSTATE only
// the text says it.
func (a answer) fate() (f fate, documented bool) {
	switch {
	case a.code == 1213 && (a.state == "40001" || a.state == "-"):
		return fateNotThere, true
	case a.code == 1290: // no leader for router.hold_timeout; it was not sent
		return fateNotThere, true
	// a login that is under way ends; mysql-connector's ping before a statement was answered 1213
	case a.step == loginStep || a.step == pingStep:
		return fateNotThere, true
	case a.code == 3168 && a.state == "HY000", a.code == 3168 && a.state == "-" &&
		strings.Contains(a.text, "was committed"):
		return fateThere, true
	case a.code == 3168 && a.state == "08007", a.code == 3168 && a.state == "-" && strings.Contains(a.text, "not known"):
		return fateUnknown, true
	}
	return fateUnknown, false
}

// Steps of a row that was not sent yet: its client was not let in, or has asked whether its server is there.
const (
	loginStep = "connect"
	pingStep  = "ping"
)

// said is what a client has said so far.
type said struct {
	acked    map[attempt]bool
	byWorker [workers]int // acknowledged
	failed   map[attempt]answer
	late     []answer
	wrong    []string // lines that say that a promise was broken, or that are not understood
	// while a leader was changed as planned a hypervisor took so much CPU away that a login may have outlasted its time
	stolen bool
	done   bool
}

func newSaid() said { return said{acked: map[attempt]bool{}, failed: map[attempt]answer{}} }

// hear takes one line.
func (s *said) hear(line, phase string) {
	f := strings.Fields(line)
	number := func(i int) int64 {
		if i < len(f) {
			if n, err := strconv.ParseInt(f[i], 10, 64); err == nil {
				return n
			}
		}
		return -1
	}
	at := attempt{number(1), number(2)}
	told := func(i int) answer { // of the fields from i on
		return answer{step: f[i], code: int(number(i + 1)), state: f[i+2], text: strings.Join(f[i+3:], " "), phase: phase}
	}
	switch {
	case line == "done":
		s.done = true
	case len(f) == 3 && f[0] == "ack" && at.n > 0 && at.a > 0:
		s.acked[at] = true
		s.byWorker[at.n%workers]++
	case len(f) >= 6 && f[0] == "err" && at.n > 0 && at.a > 0 && number(4) >= 0:
		s.failed[at] = told(3)
	case len(f) >= 4 && f[0] == "late" && number(2) >= 0:
		s.late = append(s.late, told(1))
	default:
		s.wrong = append(s.wrong, line)
	}
}

// errors in a phase, those of rows first.
func (s *said) errors(phase string) (list []answer) {
	for _, a := range slices.Concat(slices.Collect(maps.Values(s.failed)), s.late) {
		if a.phase == phase {
			list = append(list, a)
		}
	}
	return list
}

// stolenLimit is how much stolen CPU time may have made a login longer than a planned switchover waits for it, 0.5 s.
const stolenLimit = 300 * time.Millisecond

// Phases that end with a change, or follow the last one.
const (
	quietPhase      = "before"
	switchoverPhase = "switchover"
	failoverPhase   = "failover"
)

// verdict compares what a client was told with the rows that are there, how often each, and with the counter of its
// transactions. Each line of it is a promise of docs/router.md that was broken.
func (s *said) verdict(there map[attempt]int, counter int) (broken []string) {
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, line := range s.wrong {
		say("it said: %s", line)
	}
	for _, phase := range []string{quietPhase, switchoverPhase} {
		for _, a := range s.errors(phase) {
			if s.stolen && phase == switchoverPhase && a.step == loginStep {
				continue
			}
			say("an error in the phase %q: %v", phase, a)
		}
	}
	for _, a := range s.errors(failoverPhase) {
		if _, documented := a.fate(); !documented {
			say("an error that docs/router.md does not name: %v", a)
		}
	}
	for at := range s.acked {
		if there[at] != 1 {
			say("row %v was acknowledged and is there %d times", at, there[at])
		}
	}
	for at, a := range s.failed {
		switch f, _ := a.fate(); {
		case s.acked[at]:
			say("row %v was acknowledged and answered with an error: %v", at, a)
		case f == fateThere && there[at] != 1:
			say("row %v is there %d times, and its client was told that it was committed: %v", at, there[at], a)
		case f == fateNotThere && there[at] != 0:
			say("row %v is there %d times, and its client was told that it is not: %v", at, there[at], a)
		}
	}
	transactions := 0
	for at, times := range there {
		if _, failed := s.failed[at]; times > 1 || !failed && !s.acked[at] {
			say("row %v is there %d times; acknowledged: %v", at, times, s.acked[at])
		}
		if at.n%workers == 1 {
			transactions += times
		}
	}
	if counter != transactions {
		say("%d transactions have left a row, and the counter says %d", transactions, counter)
	}
	slices.Sort(broken)
	return broken
}

// summary is a row of the table in docs/router.md: what was acknowledged, and the answers at failovers by step.
func (s *said) summary() string {
	counts := map[string]int{}
	for _, a := range s.errors(failoverPhase) {
		counts[fmt.Sprintf("%s %d/%s", a.step, a.code, a.state)]++
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d× %s", counts[k], k))
	}
	if list == nil {
		list = []string{"no error"}
	}
	return fmt.Sprintf("%d rows acknowledged; errors: %d at switchovers; at failovers %s", len(s.acked),
		len(s.errors(switchoverPhase)), strings.Join(list, ", "))
}

// loader is a client under load.
type loader struct {
	*running
	name string
	done chan struct{}

	mu    sync.Mutex
	phase string
	said  said
}

func (l *loader) read() {
	defer close(l.done)
	for in := bufio.NewScanner(l.out); in.Scan(); {
		l.mu.Lock()
		l.said.hear(in.Text(), l.phase)
		l.mu.Unlock()
	}
}

func (l *loader) enter(phase string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = phase
}

func (l *loader) excuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said.stolen = true
}

func (l *loader) acked() [workers]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.byWorker
}

// last is the client's latest word, for a test that fails.
func (l *loader) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []answer
	for _, phase := range []string{quietPhase, switchoverPhase, failoverPhase} {
		list = append(list, l.said.errors(phase)...)
	}
	return fmt.Sprintf("errors %v, not understood %q", list, l.said.wrong)
}

// TestDriversUnderChange: where sessions are followed every client writes through the read-write port while leadership
// moves as planned and while the leader's mysqld is killed. No client notices a switchover. At a failover each answer
// is one that docs/router.md names, and true: what was acknowledged is there exactly once, what was answered 1213 is
// not there, and no transaction is there in part. Meanwhile sessions of the read-only ports go on.
func TestDriversUnderChange(t *testing.T) {
	testkit.Quiet(t, "logins, which a planned switchover waits for no longer than half a second")
	c := lease(t)
	c.underChange(t, func(n *demo.Node) int { return n.Ports.RW })
}

// TestDriversUnderChangeSplit is the same through the port that sends reads to followers; with three clients, some 20
// s, if it is no soak.
func TestDriversUnderChangeSplit(t *testing.T) {
	testkit.Quiet(t, "logins, which a planned switchover waits for no longer than half a second")
	c := lease(t)
	c.underChange(t, func(n *demo.Node) int { return n.Ports.Split }, "mysql", "go", "pymysql")
}

// underChange has the clients write, all of them or, in a run that is no soak, those named.
func (c *cluster) underChange(t *testing.T, port func(*demo.Node) int, names ...string) {
	rounds := 1
	if soak() {
		rounds = 3
	}
	c.sql("CREATE DATABASE IF NOT EXISTS drivers")
	readers := c.readers(t)
	var loaders []*loader
	for _, cl := range clients {
		if !soak() && (cl.soakOnly || len(names) > 0 && !slices.Contains(names, cl.name)) {
			continue
		}
		via := c.carriers()[len(loaders)%2]
		if l := c.load(t, cl, door{Name: "load", Host: via.Host, Port: port(via), Writes: true}); l != nil {
			loaders = append(loaders, l)
		}
	}
	if len(loaders) < 2 {
		t.Fatalf("%d clients: the driver's tests need scripts/drivers.sh", len(loaders))
	}
	c.goOn(loaders, "begins")
	readOn(t, readers, "at first")
	for range rounds {
		for _, change := range []struct {
			phase string
			now   func() *demo.Node
		}{{switchoverPhase, c.switchover}, {failoverPhase, c.failover}} {
			c.goOn(loaders, "before the "+change.phase)
			for _, l := range loaders {
				l.enter(change.phase)
			}
			for _, r := range readers {
				r.enter(change.phase)
			}
			lost := bench.StolenCPU()
			change.now()
			c.goOn(loaders, "after the "+change.phase)
			if lost = bench.StolenCPU() - lost; lost >= stolenLimit && change.phase == switchoverPhase {
				t.Logf("logins at the switchover are not judged: the hypervisor took %v of CPU time away", lost)
				for _, l := range loaders {
					l.excuse()
				}
			}
			readOn(t, readers, "after the "+change.phase)
			c.healthy()
		}
	}
	for _, l := range loaders {
		_ = l.input.Close()
	}
	for _, l := range loaders {
		c.judgeLoad(l)
	}
	for _, r := range readers {
		r.judge(t)
	}
}

// carriers are the nodes whose routers follow the sessions of all ports (build).
func (c *cluster) carriers() []*demo.Node { return c.Nodes()[1:] }

// load starts a client under load; nil: it is not installed, and need not be.
func (c *cluster) load(t *testing.T, cl client, d door) *loader {
	t.Helper()
	program, args, err := cl.command()
	if err != nil {
		if required() {
			t.Fatalf("%s is not installed (scripts/drivers.sh): %v", cl.name, err)
		}
		t.Logf("without %s, which is not installed (scripts/drivers.sh): %v", cl.name, err)
		return nil
	}
	table, counter := "drivers.load_"+cl.name, "drivers.count_"+cl.name
	c.sql("DROP TABLE IF EXISTS "+table+", "+counter, "CREATE TABLE "+table+
		" (id BIGINT AUTO_INCREMENT PRIMARY KEY, n BIGINT, a INT, KEY (n))",
		"CREATE TABLE "+counter+" (id INT PRIMARY KEY, v BIGINT)", "INSERT INTO "+counter+" VALUES (1, 0)")
	s := settings{Driver: cl.name, User: c.State().User, Password: c.State().Password, Doors: []door{d}}
	l := &loader{running: cl.start(t, "load", program, args, s), name: cl.name, said: newSaid(), phase: quietPhase,
		done: make(chan struct{})}
	go l.read()
	return l
}

// goOn waits until every worker of every client has had rows acknowledged from now on.
func (c *cluster) goOn(loaders []*loader, when string) {
	c.t.Helper()
	const more = 3
	before := make([][workers]int, len(loaders))
	for i, l := range loaders {
		before[i] = l.acked()
	}
	for i, l := range loaders {
		deadline := time.Now().Add(healLimit)
		for short(l.acked(), before[i], more) {
			select {
			case <-l.done:
				_ = l.cmd.Wait()
				c.t.Fatalf("%s: %s has ended: %s; it printed: %s", when, l.name, l.last(), l.err.String())
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("%s: %s does not go on: rows acknowledged by worker %v, %v at first; %s", when, l.name, l.acked(),
					before[i], l.last())
			}
		}
	}
}

func short(now, before [workers]int, more int) bool {
	for i := range now {
		if now[i] < before[i]+more {
			return true
		}
	}
	return false
}

// judgeLoad waits for a client's end and compares what it was told with what is there.
func (c *cluster) judgeLoad(l *loader) {
	c.t.Helper()
	select {
	case <-l.done:
	case <-time.After(healLimit):
		c.t.Fatalf("%s does not end: %s", l.name, l.last())
	}
	if !l.said.done {
		c.t.Errorf("%s did not come to its end", l.name)
	}
	db := c.admin()
	defer db.Close()
	there := map[attempt]int{}
	rows, err := db.QueryContext(c.t.Context(), "SELECT n, a, COUNT(*) FROM drivers.load_"+l.name+" GROUP BY n, a")
	must(c.t, err)
	defer rows.Close()
	for rows.Next() {
		var at attempt
		var times int
		must(c.t, rows.Scan(&at.n, &at.a, &times))
		there[at] = times
	}
	must(c.t, rows.Err())
	var counter int
	must(c.t, db.QueryRowContext(c.t.Context(), "SELECT v FROM drivers.count_"+l.name).Scan(&counter))
	for _, line := range l.said.verdict(there, counter) {
		c.t.Errorf("%s: %s", l.name, line)
	}
	c.t.Logf("%s: %s", l.name, l.said.summary())
}

// TestVerdict: what a client says is judged by the rows, and each kind of lie is found.
func TestVerdict(t *testing.T) {
	const (
		repeat  = "1213 40001 Trireme: the server changed and the transaction was rolled back, repeat it"
		was     = "3168 - OperationalError Trireme: this statement was committed, its result was lost with the server"
		unknown = "3168 08007 Trireme: the outcome of this statement is not known: look before you repeat it"
	)
	for name, tc := range map[string]struct {
		lines   string // those after "|" are said at a failover, those after a second one at a switchover
		there   map[attempt]int
		counter int
		want    string // a part of the one complaint; empty: none
	}{
		"all is well": {"ack 1 1;ack 2 1;ack 3 1|err 4 1 commit " + repeat + ";ack 4 2;err 2 2 insert " + was +
			";err 6 1 insert " + unknown + ";err 9 1 insert " + unknown,
			map[attempt]int{{1, 1}: 1, {2, 1}: 1, {3, 1}: 1, {4, 2}: 1, {2, 2}: 1, {9, 1}: 1}, 2, ""},
		"lost":                     {"ack 2 1", nil, 0, "there 0 times"},
		"twice":                    {"ack 2 1", map[attempt]int{{2, 1}: 2}, 0, "there 2 times"},
		"there in spite of 1213":   {"|err 2 1 insert " + repeat, map[attempt]int{{2, 1}: 1}, 0, "told that it is not"},
		"not there, and said so":   {"|err 2 1 insert " + was, nil, 0, "told that it was committed"},
		"from nowhere":             {"ack 2 1", map[attempt]int{{2, 1}: 1, {5, 1}: 1}, 0, "row {5 1}"},
		"half a transaction":       {"ack 1 1", map[attempt]int{{1, 1}: 1}, 0, "the counter says 0"},
		"an error for nothing":     {"err 2 1 insert " + repeat, nil, 0, `the phase "before"`},
		"a read fails for nothing": {"late read " + repeat, nil, 0, `the phase "before"`},
		"the connection ends":      {"|err 2 1 insert 0 - PROTOCOL_CONNECTION_LOST", nil, 0, "does not name"},
		"another SQLSTATE":         {"|err 2 1 insert 1213 HY000 text", nil, 0, "does not name"},
		"not let in":               {"|err 2 1 connect 2013 HY000 Lost connection", nil, 0, ""},
		"not let in as planned":    {"||err 2 1 connect 2013 HY000 Lost connection", nil, 0, `the phase "switchover"`},
		"not let in, CPU stolen":   {"||stolen;err 2 1 connect 2013 HY000 Lost connection", nil, 0, ""},
		"CPU stolen, but let in":   {"||stolen;err 2 1 insert " + repeat, nil, 0, `the phase "switchover"`},
		"own row not seen":         {"ack 2 1;miss 2 1", map[attempt]int{{2, 1}: 1}, 0, "miss 2 1"},
		"gibberish":                {"Traceback (most recent call last):", nil, 0, "Traceback"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaid()
			quiet, loud, _ := strings.Cut(tc.lines, "|")
			loud, planned, _ := strings.Cut(loud, "|")
			for phase, lines := range map[string]string{quietPhase: quiet, failoverPhase: loud, switchoverPhase: planned} {
				for line := range strings.SplitSeq(lines, ";") {
					switch line {
					case "":
					case "stolen":
						s.stolen = true
					default:
						s.hear(line, phase)
					}
				}
			}
			broken := s.verdict(tc.there, tc.counter)
			switch {
			case tc.want == "" && len(broken) > 0:
				t.Errorf("complaints: %q", broken)
			case tc.want != "" && (len(broken) == 0 || !strings.Contains(strings.Join(broken, "\n"), tc.want)):
				t.Errorf("complaints: %q, want %q", broken, tc.want)
			}
		})
	}
}
