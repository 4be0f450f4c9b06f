package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

var mysqldAccount = mysqld.Account{User: "trireme_restore", Password: "secret"}

// TestFind cuts the log at each transaction, by its GTID and by its time: what is fed then are whole transactions up to
// that one.
func TestFind(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	for range 4 {
		s.some(7)
		s.archive(to)
	}
	c, err := Read(to)
	check(t, err)
	for n := int64(1); n <= s.gno; n++ {
		g := gtid.GTID{SID: s.sid(), GNO: n}
		p, err := c.Find(Target{GTID: g})
		check(t, err)
		fed := feedAll(t, c, p)
		if len(fed) != int(n) || fed[n-1] != g {
			t.Fatalf("up to %s: %d transactions are fed", g, len(fed))
		}
		at := began.Add(time.Duration(n-1) * time.Second)
		if got := p.GTIDs.Count(); got != uint64(n) || !p.Newest.Equal(at) {
			t.Errorf("up to %s: %d transactions up to %v", g, got, p.Newest)
		}
		for _, d := range []time.Duration{0, 999 * time.Millisecond} {
			p, err := c.Find(Target{Time: at.Add(d)})
			check(t, err)
			if fed := feedAll(t, c, p); len(fed) != int(n) || p.GTIDs.Count() != uint64(n) {
				t.Errorf("up to %v: %d transactions are fed, %d counted, want %d", at.Add(d), len(fed), p.GTIDs.Count(), n)
			}
		}
	}
	all, err := c.Find(Target{})
	check(t, err)
	if all.Index != s.last() || !all.GTIDs.Equal(s.log.GTIDSet()) {
		t.Errorf("all: entry %d, %v", all.Index, all.GTIDs)
	}
	for _, wrong := range []Target{{Index: s.last() + 1}, {GTID: gtid.GTID{SID: s.sid(), GNO: s.gno + 1}},
		{Time: time.Now().Add(time.Hour)}, {Time: began.Add(-time.Second)}} {
		if p, err := c.Find(wrong); !errors.Is(err, ErrTarget) && p.GTIDs.Count() != 0 {
			t.Errorf("%+v: %+v, %v", wrong, p, err)
		}
	}
}

// feedAll gives the GTIDs of the transactions that a feed would send, checking them as it does.
func feedAll(t *testing.T, c *Contents, p Point) []gtid.GTID {
	t.Helper()
	l := newFeedLog(c, 0, c.at(p.Index), p)
	next, _, err := l.SeekGTID(gtid.Set{})
	check(t, err)
	var asm binlog.Assembler
	var fed, said []gtid.GTID
	var m raftlog.Meta
	for next <= l.Committed() {
		es, err := l.Read(t.Context(), next, l.Committed(), 3000)
		check(t, err)
		if len(es) == 0 || es[0].Index != next {
			t.Fatalf("%d entries for entry %d", len(es), next)
		}
		for _, e := range es {
			next++
			if len(e.Data) == 0 {
				continue
			}
			events, err := m.Decode(e.Data)
			check(t, err)
			for _, r := range m.GTIDs {
				for n := r.First; n <= r.Last; n++ {
					said = append(said, gtid.GTID{SID: r.SID, GNO: n})
				}
			}
			if m.Kind != raftlog.Trx {
				continue
			}
			for len(events) > 0 {
				h, ev, rest, err := binlog.Cut(events)
				check(t, err)
				b, err := asm.Feed(h, ev)
				check(t, err)
				if b == binlog.End {
					fed = append(fed, asm.Trx().GTID)
				}
				events = rest
			}
			if asm.InTransaction() != (m.Flags&raftlog.FlagUnfinished != 0) {
				t.Fatalf("entry %d says of its end what is not so", e.Index)
			}
		}
	}
	if fmt.Sprint(fed) != fmt.Sprint(said) {
		t.Fatalf("fed %v, the entries say %v", fed, said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.WaitCommitted(ctx, p.Index+1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for more: %v", err)
	}
	return fed
}

// TestBaseFor picks the newest copy that does not hold too much.
func TestBaseFor(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(30)
	s.archive(to)
	testBase(t, s, to, 4, 6)
	newer := testBase(t, s, to, 10, 12)
	c, err := Read(to)
	check(t, err)
	for index, want := range map[uint64]string{5: "", 6: c.Bases[0].Name, 11: c.Bases[0].Name, 12: newer.Name,
		s.last(): newer.Name} {
		p, err := c.Find(Target{Index: index})
		check(t, err)
		b, _, _, err := c.base(&p)
		if want == "" {
			if !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), "which is later") {
				t.Errorf("entry %d: %v", index, err)
			}
			continue
		}
		check(t, err)
		if b.Name != want {
			t.Errorf("entry %d: the copy %s, want %s", index, b.Name, want)
		}
	}
	if b, _, _, err := c.base(&Point{Index: 12, Cut: 5}); err != nil || b.Name == newer.Name {
		t.Errorf("a part of the last entry that a copy holds: %v", err)
	}
	made := c.Reached.Newest.Add(-time.Minute).UTC().Truncate(time.Second)
	c.Bases[0].Made, c.Bases[1].Made = made, made.Add(time.Second)
	if _, _, _, err := c.base(&Point{Index: 5}); err == nil ||
		!strings.Contains(err.Error(), "the earliest moment that can be restored is "+made.Format(time.RFC3339)) {
		t.Errorf("too early: %v", err)
	}
}

// TestMoments: between two moments that are told a copy can be restored, so they are rounded inwards.
func TestMoments(t *testing.T) {
	made := time.Date(2026, 3, 4, 12, 0, 0, 5e8, time.UTC)
	after := func(s float64) time.Time { return made.Add(time.Duration(s * float64(time.Second))) }
	c := &Contents{Segments: []Segment{{First: 1, Last: 10, Newest: after(10)}, {First: 11, Last: 20, Newest: after(20)}},
		Reached: Reached{Index: 20, At: after(30.2)}}
	b := &Base{Last: 5, Made: made}
	for to, want := range map[uint64]time.Time{10: after(9.5), 20: after(29.5)} {
		if first, last := c.Moments(b, Stretch{5, to}); !first.Equal(after(0.5)) || !last.Equal(want) {
			t.Errorf("up to entry %d: %v to %v", to, first, last)
		}
	}
	for _, b := range []*Base{{Last: 5}, {Last: 5, Made: after(60)}} {
		if first, last := c.Moments(b, Stretch{5, 20}); !first.IsZero() || !last.IsZero() {
			t.Errorf("a copy of %v: %v to %v", b.Made, first, last)
		}
	}
}

// fakeMysqld is a program that says its version and then does what the shell text says.
func fakeMysqld(t *testing.T, then string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mysqld")
	check(t,
		os.WriteFile(path,
			[]byte("#!/bin/sh\ncase \"$*\" in *--version*) echo 'mysqld  Ver 9.7.4 for Linux on x86_64'; exit;; esac\n"+then+
				"\n"), 0o755))
	return path
}

// TestRestoreRefuses: what cannot be restored leaves the directory as it was, and no server.
func TestRestoreRefuses(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	for range 2 {
		s.some(10)
		s.archive(to)
	}
	b := testBase(t, s, to, 5, 5)
	seen := filepath.Join(t.TempDir(), "started")
	program := fakeMysqld(t, "touch "+seen+"; echo 'this server does not start' >&2; exit 1")
	into := func(dir string, target Target) error {
		_, err := Restore(t.Context(), RestoreOptions{From: to, To: target, Dir: dir, Mysqld: program, Port: 3306,
			Logger: slog.New(slog.DiscardHandler),
			Say:    func(string, ...any) {}, Done: func(string, uint64, uint64) {}})
		return err
	}
	empty := func(dir, when string) {
		t.Helper()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", when, left, err)
		}
	}
	dir := t.TempDir()

	full := t.TempDir()
	keep := filepath.Join(full, "mine")
	check(t, os.WriteFile(keep, []byte("mine"), 0o600))
	if err := into(full, Target{}); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("into a directory that is not empty: %v", err)
	}
	if text, err := os.ReadFile(keep); err != nil || string(text) != "mine" {
		t.Error("what was there is gone")
	}
	check(t, os.Rename(keep, filepath.Join(full, unfinishedName)))
	if err := into(full, Target{}); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("into what a killed restoration left: %v", err)
	}
	if err := into(dir, Target{Index: 4}); !errors.Is(err, ErrTarget) {
		t.Errorf("before the copy: %v", err)
	}
	if err := into(dir, Target{Index: 1000}); !errors.Is(err, ErrTarget) {
		t.Errorf("beyond the archive: %v", err)
	}
	empty(dir, "a wrong moment")

	// A server that does not start: its words are shown, what was unpacked goes.
	if err := into(dir, Target{}); !errors.Is(err, mysqld.ErrExited) || !strings.Contains(err.Error(), "does not start") {
		t.Errorf("a server that does not start: %v", err)
	}
	if _, err := os.Stat(seen); err != nil {
		t.Fatal("the server was never started: the test shows nothing")
	}
	empty(dir, "a server that does not start")
	check(t, os.Remove(seen))
	gone := filepath.Join(t.TempDir(), "new", "place")
	if err := into(gone, Target{}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("a directory that was made is left")
	}
	_ = os.Remove(seen)

	// Damage is found before a server is started.
	names, err := segmentNames(to)
	check(t, err)
	damaged := []string{names[1], b.object(&b.Files[1])}
	for _, name := range damaged {
		good, err := os.ReadFile(to.path(name))
		check(t, err)
		bad := append([]byte(nil), good...)
		bad[len(bad)-3] ^= 1
		check(t, os.WriteFile(to.path(name), bad, 0o600))
		if err := into(dir, Target{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is damaged: %v", name, err)
		}
		check(t, to.Remove(name))
		if err := into(dir, Target{}); !errors.Is(err, ErrMissing) && !errors.Is(err, ErrTarget) {
			t.Errorf("%s is missing: %v", name, err)
		}
		check(t, os.WriteFile(to.path(name), good, 0o600))
		empty(dir, name)
	}
	if _, err := os.Stat(seen); err == nil {
		t.Error("a server was started on damaged data")
	}
}
