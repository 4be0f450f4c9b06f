package router

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
)

// fakeReads has each server apply what the test says.
type fakeReads struct {
	mu      sync.Mutex
	commit  uint64
	applied map[string]uint64
	down    error // of Barrier
	dropped string
	asked   []string
	waits   int // calls of Applied
	silent  int // the next of these fail
}

func (f *fakeReads) Log() string { return "main/0" }

func (f *fakeReads) Barrier(context.Context) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "barrier")
	return f.commit, f.down
}

func (f *fakeReads) Answered(ctx context.Context, node string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "answered "+node)
	return f.commit, f.down
}

func (f *fakeReads) Everywhere(ctx context.Context, index uint64) error {
	var errs []error
	for _, node := range []string{"n-1", "n-2"} {
		errs = append(errs, f.Applied(ctx, node, index))
	}
	return errors.Join(errs...)
}

func (f *fakeReads) Live(context.Context) (l api.ReadIndexView, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "live")
	l.Index = f.commit
	for _, node := range []string{"n-1", "n-2"} {
		if node != f.dropped {
			l.Live = append(l.Live, node)
		}
	}
	return l, f.down
}

func (f *fakeReads) drop(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = node
}

func (f *fakeReads) Applied(ctx context.Context, node string, index uint64) error {
	f.mu.Lock()
	f.waits++
	silent := f.silent > 0
	f.silent--
	f.mu.Unlock()
	if silent {
		return errors.New("no answer")
	}
	for {
		f.mu.Lock()
		at := f.applied[node]
		f.mu.Unlock()
		if at >= index {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.asked = append(f.asked, fmt.Sprintf("%s %d", node, index))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("entry %d is not applied: %w", index, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

func (f *fakeReads) set(commit uint64, applied map[string]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit, f.applied, f.asked = commit, applied, nil
}

func (f *fakeReads) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// split is one session on the splitting port of a router with a leader, n-1, and followers.
type split struct {
	*testing.T
	r         *Router
	leader    *wireServer
	followers []*wireServer
	reads     *fakeReads
	c         *sql.Conn
}

func newSplit(t *testing.T, followers int, cfg Config) *split {
	t.Helper()
	reads := &fakeReads{commit: 1, applied: map[string]uint64{"n-1": 1, "n-2": 1, "n-3": 1}}
	cfg.Reads = reads
	s := splitOf(t, followers, cfg)
	s.reads = reads
	return s
}

func splitOf(t *testing.T, followers int, cfg Config) *split {
	t.Helper()
	s := &split{T: t, leader: newWireServer(t)}
	v := View{RW: s.leader.target("1")}
	for i := range followers {
		f := newWireServer(t)
		s.followers = append(s.followers, f)
		v.RO = append(v.RO, *f.target(fmt.Sprint(i + 2)))
	}
	cfg.SplitListen = "127.0.0.1:0"
	if cfg.HoldTimeout == 0 {
		cfg.HoldTimeout = limit
	}
	if cfg.OwnWritesTimeout == 0 {
		cfg.OwnWritesTimeout = limit
	}
	s.r = start(t, cfg)
	s.r.SetView(v)
	s.c = s.connect(s.r.SplitAddr())
	return s
}

func (s *split) connect(addr string) *sql.Conn {
	s.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("app:%s@tcp(%s)/", wirePassword, addr))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = db.Close() })
	c, err := db.Conn(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *split) run(statements ...string) {
	s.Helper()
	run(s.T, s.c, statements...)
}

// got checks what the leader and the followers together were sent, and forgets it. It waits for what is wanted: the
// close of a prepared statement has no answer that says it has arrived.
func (s *split) got(leader []string, followers ...string) {
	s.Helper()
	s.sent("the leader", leader, s.leader)
	s.sent("the followers", followers, s.followers...)
}

func (s *split) sent(who string, want []string, servers ...*wireServer) {
	s.Helper()
	count := func() (n int) {
		for _, w := range servers {
			n += len(w.statements())
		}
		return n
	}
	for began := time.Now(); count() < len(want) && time.Since(began) < limit; {
		time.Sleep(time.Millisecond)
	}
	var got []string
	for _, w := range servers {
		got = append(got, w.take()...)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: sent %q, want %q", who, got, want)
	}
}

func (w *wireServer) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

func (w *wireServer) set(f func(*wireServer)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

// Reads go to the follower, all else to the leader, and what is set is set at both before the next statement there.
func TestSplit(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("SET a = 1", "SELECT 1", "USE d", "SELECT 2", "INSERT 1", "SET a = 2", "SET a = 1", "SELECT 3",
		"SELECT 4 FOR UPDATE", "SELECT f(5)", "SHOW TABLES", "SELECT 6")
	s.got([]string{"SET a = 1", "USE d", "INSERT 1", "SET a = 2", "SET a = 1", "SELECT 4 FOR UPDATE", "SELECT f(5)",
		"SHOW TABLES"},
		"SET a = 1", "SELECT 1", "USE d", "SELECT 2", "SET a = 2", "SET a = 1", "SELECT 3", "SELECT 6")
	s.run("USE `performance_schema`", "SELECT 7", "USE d", "SELECT 8")
	s.got([]string{"USE `performance_schema`", "SELECT 7", "USE d"}, "SELECT 8")
	// What the statement before has left is asked for where it ran.
	s.run("SHOW WARNINGS", "SHOW WARNINGS", "INSERT 2", "SHOW WARNINGS")
	s.got([]string{"INSERT 2", "SHOW WARNINGS"}, "SHOW WARNINGS", "SHOW WARNINGS")
	// What ties a session keeps its reads at the leader, where it is.
	s.run("SET @x = 1", "SELECT 9")
	s.got([]string{"SET @x = 1", "SELECT 9"})
	if n := s.r.Stats().Split.FollowerReads; n != 7 {
		t.Errorf("%d reads of followers counted", n)
	}
}

// A transaction stays where it began: at the leader, or READ ONLY at the follower.
func TestSplitTransactions(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("START TRANSACTION", "SELECT 1", "COMMIT", "START TRANSACTION READ ONLY", "SELECT 2", "SELECT 2 FOR SHARE",
		"SHOW TABLES", "COMMIT", "INSERT 3")
	s.got([]string{"START TRANSACTION", "SELECT 1", "COMMIT", "INSERT 3"}, "START TRANSACTION READ ONLY", "SELECT 2",
		"SELECT 2 FOR SHARE", "SHOW TABLES", "COMMIT")
	// What would stay on the follower alone is refused; what is set there, the leader gets.
	s.run("START TRANSACTION READ ONLY", "SET a = 1")
	_, err := s.c.ExecContext(t.Context(), "SET @x = 1")
	wantError(t, err, codeNotSupported)
	s.run("COMMIT", "INSERT 4")
	s.got([]string{"SET a = 1", "INSERT 4"}, "START TRANSACTION READ ONLY", "SET a = 1", "COMMIT")
	// A follower that is lost takes its transaction along.
	s.run("START TRANSACTION READ ONLY")
	s.r.SetView(View{RW: s.leader.target("1")})
	_, err = s.c.ExecContext(t.Context(), "SELECT 5")
	wantError(t, err, 1213)
	s.run("SELECT 6")
	s.got([]string{"SELECT 6"}, "START TRANSACTION READ ONLY")
}

// A session reads what it has written: the follower is waited for once, and the leader is read when it does not come.
func TestOwnWrites(t *testing.T) {
	s := newSplit(t, 1, Config{OwnWritesTimeout: 50 * time.Millisecond})
	s.reads.set(7, map[string]uint64{"n-2": 7})
	s.run("SELECT 1", "INSERT 1", "SELECT 2", "SELECT 3")
	s.got([]string{"INSERT 1"}, "SELECT 1", "SELECT 2", "SELECT 3")
	if got, want := s.reads.log(), []string{"answered n-1", "n-2 7"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	s.reads.set(9, map[string]uint64{"n-2": 8})
	s.run("INSERT 2", "SELECT 4")
	s.got([]string{"INSERT 2", "SELECT 4"})
	s.reads.set(9, map[string]uint64{"n-2": 9})
	s.run("SELECT 5")
	s.got(nil, "SELECT 5")
	s.reads.set(12, nil)
	s.run("ROUTER SET wait_for_my_writes = 0", "INSERT 3", "SELECT 6")
	s.got([]string{"INSERT 3"}, "SELECT 6")
	s.run("ROUTER SET wait_for_my_writes = 1", "ROUTER SET wait_for_my_writes_timeout = 0", "SELECT 7",
		"START TRANSACTION READ ONLY", "COMMIT")
	s.got([]string{"SELECT 7", "START TRANSACTION READ ONLY", "COMMIT"})
	// A write in a transaction counts when it is committed.
	s.reads.set(12, map[string]uint64{"n-2": 12})
	s.run("SELECT 8", "START TRANSACTION", "INSERT 4", "ROLLBACK", "SELECT 9")
	s.got([]string{"START TRANSACTION", "INSERT 4", "ROLLBACK"}, "SELECT 8", "SELECT 9")
	if got := s.reads.log(); len(got) != 2 {
		t.Errorf("a transaction that was rolled back was waited for: %q", got)
	}
	s.reads.mu.Lock()
	s.reads.down = errors.New("no leader")
	s.reads.mu.Unlock()
	s.run("SELECT 10", "INSERT 5", "SELECT 11")
	s.got([]string{"INSERT 5", "SELECT 11"}, "SELECT 10")
}

func TestAccessMode(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("ROUTER SET access_mode = 'read_write'", "SELECT 1", "ROUTER SET access_mode='read_only'", "INSERT 1",
		"SET a = 1", "SELECT 2", "START TRANSACTION", "SELECT 3", "COMMIT",
		"router set access_mode=auto", "INSERT 2", "SELECT 4")
	s.got([]string{"SELECT 1", "SET a = 1", "INSERT 2"}, "INSERT 1", "SET a = 1", "SELECT 2", "START TRANSACTION",
		"SELECT 3", "COMMIT", "SELECT 4")
	for q, code := range map[string]uint16{
		"ROUTER SET access_mode = 'x'": codeParse, "ROUTER SET wait_for_my_writes = 2": codeParse,
		"ROUTER SET wait_for_my_writes_timeout = 3601": codeParse, "ROUTER SET trace = 1": codeParse,
	} {
		_, err := s.c.ExecContext(t.Context(), q)
		wantError(t, err, code)
	}
	s.run("START TRANSACTION")
	_, err := s.c.ExecContext(t.Context(), "ROUTER SET access_mode = 'read_only'")
	wantError(t, err, codeWithin)
	s.run("COMMIT", "ROUTER SET access_mode = 'read_only'")
	s.r.SetView(View{RW: s.leader.target("1")})
	_, err = s.c.ExecContext(t.Context(), "INSERT 3")
	wantError(t, err, erOptionPreventsStatement)
	s.run("SELECT 5")
	s.got([]string{"START TRANSACTION", "COMMIT", "SELECT 5"})
}

// A read that its follower does not answer, or refuses because something in it writes, is the leader's.
func TestReadIsRepeated(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.followers[0].set(func(w *wireServer) {
		w.hang, w.fail = "SELECT 2", map[string]uint16{"SELECT 1": 1290, "SELECT 3": 1146}
	})
	s.run("SELECT 1")
	_, err := s.c.ExecContext(t.Context(), "SELECT 3")
	wantError(t, err, 1146)
	s.got([]string{"SELECT 1"}, "SELECT 1", "SELECT 3")
	done := make(chan error, 1)
	go func() { _, err := s.c.ExecContext(t.Context(), "SELECT 2"); done <- err }()
	eventually(t, "it is under way", func() bool { return slices.Contains(s.followers[0].statements(), "SELECT 2") })
	s.r.SetView(View{RW: s.leader.target("1")})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.got([]string{"SELECT 2"}, "SELECT 2")
}

// Reads continue while there is no leader, and at a new leader; a switchover's hold does not concern them.
func TestReadsWithoutLeader(t *testing.T) {
	s := newSplit(t, 2, Config{HoldTimeout: 100 * time.Millisecond})
	s.run("SELECT 1")
	follower := s.followers[0]
	if len(follower.statements()) == 0 {
		follower = s.followers[1]
	}
	ro := []Target{*s.followers[0].target("2"), *s.followers[1].target("3")}
	s.r.SetView(View{RO: ro, KeepRW: true})
	s.run("SELECT 2")
	s.r.SetView(View{RO: ro})
	s.run("SELECT 3")
	_, err := s.c.ExecContext(t.Context(), "INSERT 1")
	wantError(t, err, erOptionPreventsStatement)
	s.run("SELECT 4")
	if got, want := follower.take(), []string{"SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4"}; !slices.Equal(got, want) {
		t.Errorf("the follower was sent %q", got)
	}
	s.r.SetView(View{RW: s.followers[0].target("5"), RO: ro[1:]})
	s.run("INSERT 2", "SELECT 5")
	s.got(nil, "INSERT 2", "SELECT 5")
}

// The follower with the fewest connections is read, and none that lags too far.
func TestFollowerIsChosen(t *testing.T) {
	s := newSplit(t, 2, Config{MaxLag: time.Second})
	s.run("SELECT 1")
	other := s.connect(s.r.SplitAddr())
	run(t, other, "SELECT 2")
	first, second := s.followers[0].take(), s.followers[1].take()
	if len(first) != 1 || len(second) != 1 {
		t.Fatalf("sent %q and %q", first, second)
	}
	s.r.SetLags(map[string]time.Duration{"n-2": 2 * time.Second})
	s.run("SELECT 3")
	run(t, other, "SELECT 4")
	s.got(nil, "SELECT 3", "SELECT 4")
	s.r.SetLags(map[string]time.Duration{"n-2": 2 * time.Second, "n-3": 2 * time.Second})
	s.run("SELECT 5")
	s.got([]string{"SELECT 5"})
}

// A closed session leaves nothing.
func TestSplitEnds(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("SELECT 1", "INSERT 1")
	if st := s.r.Stats(); st.Split.Open != 1 || st.SplitReads.Open != 1 || st.Split.Followed != 1 {
		t.Errorf("%+v", st)
	}
	_ = s.c.Close()
	s.r.SetView(View{})
	eventually(t, "no connection is left",
		func() bool { st := s.r.Stats(); return st.Split.Open == 0 && st.SplitReads.Open == 0 })
}

// A prepared statement is prepared where it is first used, and again at the other server when it is used there, or lost
// with one.
func TestSplitPrepared(t *testing.T) {
	s := newSplit(t, 1, Config{})
	read, err := s.c.PrepareContext(t.Context(), "SELECT ?")
	if err != nil {
		t.Fatal(err)
	}
	exec := func() {
		t.Helper()
		if _, err := read.ExecContext(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	exec()
	s.got(nil, "prepare SELECT ?", "execute SELECT ?")
	s.run("START TRANSACTION")
	exec()
	s.run("COMMIT")
	s.got([]string{"START TRANSACTION", "prepare SELECT ?", "execute SELECT ?", "COMMIT"})
	exec()
	s.got(nil, "execute SELECT ?")
	s.r.SetView(View{RW: s.leader.target("1"), RO: []Target{*s.followers[0].target("4")}})
	s.reads.set(1, map[string]uint64{"n-4": 1})
	exec()
	s.got(nil, "prepare SELECT ?", "execute SELECT ?")
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	s.run("INSERT 1")
	s.got([]string{"close", "INSERT 1"}, "close")

	// Before its text would come to mean something else it is prepared at the leader too.
	if read, err = s.c.PrepareContext(t.Context(), "SELECT ? + 1"); err != nil {
		t.Fatal(err)
	}
	s.run("SET sql_mode = 'ANSI_QUOTES'")
	exec()
	s.run("START TRANSACTION")
	exec()
	s.run("COMMIT")
	s.got([]string{"prepare SELECT ? + 1", "SET sql_mode = 'ANSI_QUOTES'", "START TRANSACTION", "execute SELECT ? + 1",
		"COMMIT"}, "prepare SELECT ? + 1", "SET sql_mode = 'ANSI_QUOTES'", "execute SELECT ? + 1")
}

// Beyond what is kept of a session, a statement is prepared where the session stays.
func TestSplitPreparedBeyondLimit(t *testing.T) {
	s := newSplit(t, 1, Config{})
	var last *sql.Stmt
	for range maxPrepared + 1 {
		var err error
		if last, err = s.c.PrepareContext(t.Context(), "SELECT ?"); err != nil {
			t.Fatal(err)
		}
		defer last.Close()
	}
	if _, err := last.ExecContext(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if got := s.leader.statements(); !slices.Equal(got, []string{"prepare SELECT ?", "execute SELECT ?"}) {
		t.Errorf("the leader was sent %q", got)
	}
}
