package history

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/gtid"
)

func TestPhases(t *testing.T) {
	at := func(ms int) time.Duration {
		if ms == 0 {
			return 0
		}
		return time.Hour + time.Duration(ms)*time.Millisecond
	}
	for _, c := range []struct {
		name                                                         string
		sign, left, noticed, asked, elected, applied, opened, routed int
		want                                                         api.Phases
	}{
		{"daemon killed", 10, 0, 60, 0, 100, 120, 150, 160, api.Phases{DetectMS: 50, VoteMS: 40, ApplyMS: 20, OpenMS: 30,
			RouteMS: 10}},
		{"mysqld killed: the leader itself says so", 10, 20, 90, 80, 100, 120, 150, 160,
			api.Phases{CloseMS: 60, VoteMS: 20, ApplyMS: 20, OpenMS: 30, RouteMS: 10}},
		{"it says so and does not hand over", 10, 20, 90, 0, 100, 120, 150, 160,
			api.Phases{VoteMS: 80, ApplyMS: 20, OpenMS: 30, RouteMS: 10}},
		{"nothing known", 0, 0, 0, 0, 100, 120, 150, 160, api.Phases{ApplyMS: 20, OpenMS: 30, RouteMS: 10}},
		{"no sign of life was noted", 0, 0, 60, 0, 100, 120, 150, 160, api.Phases{VoteMS: 40, ApplyMS: 20, OpenMS: 30,
			RouteMS: 10}},
		{"noticed after the election, by the clock of another goroutine", 10, 0, 130, 0, 100, 120, 150, 160,
			api.Phases{DetectMS: 90, ApplyMS: 20, OpenMS: 30, RouteMS: 10}},
	} {
		to := Takeover{sign: at(c.sign), left: at(c.left), noticed: at(c.noticed), asked: at(c.asked),
			Elected: at(c.elected), applied: at(c.applied),
			opened: at(c.opened), routed: at(c.routed)}
		if got := to.phases(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// open reads what a directory has; it has no host.
func open(dir string) *History {
	return New(dir, config.Identity{}, nil, nil, slog.New(slog.DiscardHandler))
}

func lacking(h *History, known []byte) []api.Event {
	list, _ := h.EventsForPeer(context.Background(), 1, known)
	return list
}

func testEvent(i int) api.Event {
	return api.Event{Time: time.Unix(int64(1000+i), 5), Kind: "test", Node: fmt.Sprint("n", i%3), Term: uint64(1 + i/100),
		Message: fmt.Sprint("event ", i)}
}

// TestHistoryConverges: nodes that know different parts of the history know the same after they have asked each other,
// whatever the order, and keep the newest of each sort.
func TestHistoryConverges(t *testing.T) {
	a, b := open(t.TempDir()), open(t.TempDir())
	const all = 2*maxOthers + 300
	old := api.Event{Time: time.Unix(1, 0), Kind: "failover", Node: "n1", Term: 1, To: "n1"}
	b.Add(old)
	var toA, toB []api.Event
	for i := range 3 * maxWriters { // a night of large transactions
		large := testEvent(i)
		large.Kind, large.Time = EventLarge, time.Unix(1, int64(i))
		toA = append(toA, large)
		large.Kind, large.Term = EventRefused, 1000
		toB = append(toB, large)
	}
	for i := range all {
		if i%2 == 0 || i > all-50 {
			toA = append(toA, testEvent(i))
		}
		if i%3 == 0 || i%2 == 1 {
			toB = append(toB, testEvent(all-1-i), testEvent(i))
		}
	}
	for h, list := range map[*History][]api.Event{a: toA, b: toB} {
		for some := range slices.Chunk(list, 50) { // each sorts all that is known
			h.merge(some)
		}
	}
	for range 3 * all / historyBatch {
		a.merge(lacking(b, a.known()))
		b.merge(lacking(a, b.known()))
	}
	if a.Sum() != b.Sum() || !reflect.DeepEqual(a.All(), b.All()) {
		t.Fatal("they differ")
	}
	writers := 0
	got := slices.DeleteFunc(a.All(), func(e api.Event) bool {
		if e.Kind == EventLarge || e.Kind == EventRefused {
			writers++
			return true
		}
		return false
	})
	if writers != maxWriters {
		t.Errorf("%d events of writers are kept", writers)
	}
	if len(got) != maxOthers+1 || got[0].Kind != "failover" || got[1].Message != fmt.Sprint("event ", all-maxOthers) ||
		got[maxOthers].Message != fmt.Sprint("event ", all-1) {
		t.Fatalf("%d events: %+v, from %q to %q", len(got), got[0], got[1].Message, got[len(got)-1].Message)
	}
}

// TestHistoryFile: what was saved is there again and the same; a damaged line costs that line only.
func TestHistoryFile(t *testing.T) {
	dir := t.TempDir()
	a := open(dir)
	a.Add(api.Event{Time: time.Now(), Kind: "failover", Node: "n1", Term: 7, GTIDs: strings.Repeat("x", 2*maxEventText),
		Phases: &api.Phases{VoteMS: 1.5}})
	a.Add(testEvent(1))
	a.save()
	b := open(dir)
	if a.Sum() != b.Sum() || !reflect.DeepEqual(a.All(), b.All()) {
		t.Fatalf("%+v\n%+v", a.All(), b.All())
	}
	path := filepath.Join(dir, "history.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("{torn\n"), text[:len(text)-9]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := open(dir).All(); len(got) != 1 || got[0].Message != "event 1" {
		t.Fatalf("%+v", got)
	}
}

// Whatever bytes a text holds, an event is the same one on the node that it was sent to.
func TestHistoryTexts(t *testing.T) {
	a, b := open(t.TempDir()), open(t.TempDir())
	for i, text := range []string{"x" + strings.Repeat("é", maxEventText), "Duplicate entry '\xff\xfe' for key",
		strings.Repeat("\xff", maxEventText)} {
		e := testEvent(i)
		e.Message = text
		a.Add(e)
	}
	body, err := json.Marshal(lacking(a, b.known()))
	if err != nil {
		t.Fatal(err)
	}
	var list []api.Event
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	if b.merge(list); a.Sum() != b.Sum() {
		t.Fatalf("the histories differ: %d %d", len(a.All()), len(b.All()))
	}
	if more := lacking(a, b.known()); len(more) != 0 {
		t.Fatalf("%d events are sent for ever", len(more))
	}
}

func TestExplainRollbacks(t *testing.T) {
	uuid := func(inc uint64) string { return gtid.IncarnationUUID(77, 1, inc).String() }
	lost := api.Event{Kind: EventFailover, Node: "n2", Term: 6, From: "n1", FromTerm: 5, FromIncarnation: 4}
	for _, c := range []struct {
		name  string
		first api.Event
		later []api.Event
		want  api.RolledBack
	}{
		{"not back yet", lost, []api.Event{{Kind: "rejoin", Node: "n3", Incarnation: 9}}, api.RolledBack{}},
		{"back with nothing to roll back", lost, []api.Event{{Kind: "rejoin", Node: "n1", Incarnation: 6}},
			api.RolledBack{Known: true}},
		{"its own GTIDs only, at the first rejoin", lost, []api.Event{
			{Kind: "rejoin", Node: "n1", Incarnation: 4, GTIDs: uuid(3) + ":1"},
			{Kind: "rejoin", Node: "n1", Incarnation: 5, GTIDs: uuid(4) + ":7-9," + uuid(3) + ":2"},
			{Kind: "rejoin", Node: "n1", Incarnation: 6, GTIDs: uuid(4) + ":1-100"}},
			api.RolledBack{Known: true, Count: 3, GTIDs: uuid(4) + ":7-9"}},
		{"drained by its fence: it went on", lost, []api.Event{{Kind: "fence", Node: "n1", Term: 5, Drained: true},
			{Kind: "rejoin", Node: "n1", Incarnation: 5, GTIDs: uuid(4) + ":7-9"}}, api.RolledBack{Known: true}},
		{"more than an event holds", lost, []api.Event{
			{Kind: "rejoin", Node: "n1", Incarnation: 6, GTIDs: uuid(4) + ":7-9:12-13:150-1…"}},
			api.RolledBack{Known: true, Count: 5, GTIDs: uuid(4) + ":7-9:12-13", More: true}},
		{"cut in a UUID", lost,
			[]api.Event{{Kind: "rejoin", Node: "n1", Incarnation: 6, GTIDs: uuid(4) + ":7-9," + uuid(5)[:20] + "…"}},
			api.RolledBack{Known: true, Count: 3, GTIDs: uuid(4) + ":7-9", More: true}},
		{"cut in the first number", lost, []api.Event{{Kind: "rejoin", Node: "n1", Incarnation: 6, GTIDs: uuid(4) + ":7…"}},
			api.RolledBack{Known: true, More: true}},
		{"a switchover", api.Event{Kind: EventSwitchover, From: "n1", FromTerm: 5, FromIncarnation: 4}, nil,
			api.RolledBack{Known: true}},
		{"a switchover whose leader had to be fenced", api.Event{Kind: EventSwitchover, From: "n1", FromTerm: 5,
			FromIncarnation: 4},
			[]api.Event{{Kind: "fence", Node: "n1", Term: 5}, {Kind: "rejoin", Node: "n1", Incarnation: 5,
				GTIDs: uuid(4) + ":7"}},
			api.RolledBack{Known: true, Count: 1, GTIDs: uuid(4) + ":7"}},
	} {
		events := append([]api.Event{c.first}, c.later...)
		if got := *explainRollbacks(events)[0].RolledBack; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestCopiesAreKept: what else happens does not push the newest copy out of the history.
func TestCopiesAreKept(t *testing.T) {
	h := open(t.TempDir())
	for i := range maxCopies + 5 {
		made := time.Unix(int64(i), 0)
		h.Add(api.Event{Kind: api.EventBackup, Time: made, Backup: &api.BackupCopy{Made: made}})
	}
	for i := range maxOthers + 1 {
		h.Add(api.Event{Kind: "fence", Time: time.Unix(1e6, int64(i))})
	}
	copies := 0
	for _, e := range h.All() {
		if e.Kind == api.EventBackup {
			copies++
		}
	}
	if c := api.BackupOf(h.All(), nil, time.Now()).Copy; c == nil || c.Made.Unix() != maxCopies+4 || copies != maxCopies {
		t.Errorf("%d copies, the newest %+v", copies, c)
	}
}
