package check

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/gtid"
)

func col(name, kind string) column { return column{name: name, dataType: kind} }

func text(name string) column {
	return column{name: name, dataType: "varchar", charset: "utf8mb4", collation: "utf8mb4_0900_ai_ci"}
}

func TestSpanCondition(t *testing.T) {
	one := &table{schema: "s", name: "t", key: []column{col("id", "bigint")}, keyName: "PRIMARY"}
	two := &table{schema: "s", name: "t", key: []column{text("a`b"), col("day", "date")}, keyName: "PRIMARY"}
	x := "_utf8mb4 X'78' COLLATE utf8mb4_0900_ai_ci"
	for _, c := range []struct {
		s    span
		want string
	}{
		{span{t: one}, ""},
		{span{t: &table{where: "User <> 'root'"}}, " WHERE (User <> 'root')"},
		{span{t: one, from: []string{"-5"}}, " WHERE `id` >= -5 AND ((`id` > -5))"},
		{span{t: one, from: []string{"1"}, to: []string{"9"}},
			" WHERE `id` >= 1 AND ((`id` > 1)) AND `id` <= 9 AND ((`id` <= 9))"},
		{span{t: two, to: []string{"78", "2024-02-29"}}, " WHERE `a``b` <= " + x + " AND ((`a``b` < " + x +
			") OR (`a``b` = " + x + " AND `day` <= '2024-02-29'))"},
	} {
		if got := c.s.condition(); got != c.want {
			t.Errorf("%s, not %s", got, c.want)
		}
	}
	if got := two.exactly([]string{"78", "2024-02-29"}); got != " WHERE `a``b` = "+x+" AND `day` = '2024-02-29'" {
		t.Error(got)
	}
}

func TestShown(t *testing.T) {
	latin := column{name: "c", dataType: "char", charset: "latin1"}
	utf16 := column{name: "c", dataType: "char", charset: "utf16"}
	for _, c := range []struct {
		c       column
		v, want string
	}{
		{text("a"), "53C39F", "'Sß'"}, {text("a"), "FF", "0xFF"}, {text("a"), "00", "0x00"}, {latin, "61", "'a'"},
		{latin, "DF", "0xDF"}, {utf16, "0061", "0x0061"}, {col("b", "varbinary"), "61", "0x61"},
		{col("b", "int"), "-7", "-7"}, {col("b", "date"), "2024-02-29", "'2024-02-29'"},
	} {
		if got := c.c.shown(c.v); got != c.want {
			t.Errorf("%s %s: %s, not %s", c.c.charset, c.v, got, c.want)
		}
	}
}

// TestTakeKey: a table is walked along a key in which every row has one place, and no other.
func TestTakeKey(t *testing.T) {
	part := func(name string) map[string]string {
		return map[string]string{"i": "k", "name": name, "visible": "YES"}
	}
	prefix, hidden := part("a"), part("a")
	prefix["part"], hidden["visible"] = "10", "NO"
	nullable := col("n", "int")
	nullable.nullable = true
	for name, c := range map[string]struct {
		parts []map[string]string
		key   int
	}{
		"two columns":    {[]map[string]string{part("a"), part("id")}, 2},
		"with NULL":      {[]map[string]string{part("id"), part("n")}, 0},
		"floats":         {[]map[string]string{part("f")}, 0},
		"prefix":         {[]map[string]string{prefix}, 0},
		"invisible":      {[]map[string]string{hidden}, 0},
		"of expressions": {[]map[string]string{part("")}, 0},
	} {
		table := &table{columns: []column{text("a"), col("id", "int"), nullable, col("f", "float")}}
		if table.takeKey(c.parts); len(table.key) != c.key {
			t.Errorf("%s: %d columns", name, len(table.key))
		}
	}
}

func TestMajority(t *testing.T) {
	for _, c := range []struct {
		values map[string]string
		wrong  []string
		ok     bool
	}{
		{map[string]string{"a": "1", "b": "1", "c": "2"}, []string{"c"}, true},
		{map[string]string{"a": "2", "b": "1", "c": "1", "d": "1", "e": "3"}, []string{"a", "e"}, true},
		{map[string]string{"a": "1", "b": "2"}, nil, false},
		{map[string]string{"a": "1", "b": "2", "c": "3"}, nil, false},
		{map[string]string{"a": "1", "b": "1", "c": "2", "d": "2"}, nil, false},
	} {
		if _, wrong, ok := majority(c.values); ok != c.ok || !reflect.DeepEqual(wrong, c.wrong) {
			t.Errorf("%v: %v %v", c.values, wrong, ok)
		}
	}
}

func TestDiffering(t *testing.T) {
	one := keyed{map[string]string{"1": "x", "2": "x"}, map[string][]string{"1": {"1"}, "2": {"2"}}}
	other := keyed{map[string]string{"1": "x", "3": "y"}, map[string][]string{"1": {"1"}, "3": {"3"}}}
	if seen := differing(map[string]keyed{"a": one, "b": one}); seen != nil {
		t.Errorf("%+v", seen)
	}
	seen := differing(map[string]keyed{"a": one, "b": other})
	want := map[string]map[string]string{"2": {"a": "x", "b": Absent}, "3": {"a": Absent, "b": "y"}}
	if seen == nil || !reflect.DeepEqual(seen.rows, want) {
		t.Errorf("%+v", seen)
	}
}

const leaderUUID = "00000000-0001-8001-8001-000000000001"

func set(t *testing.T, s string) gtid.Set {
	t.Helper()
	out, err := gtid.ParseSet(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestParseOwned(t *testing.T) {
	for owned, want := range map[string]string{
		"": "", leaderUUID + ":7#31": leaderUUID + ":7", leaderUUID + ":7#31#32:9#40": leaderUUID + ":7:9",
		leaderUUID + ":7#31,\n3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:5#9": leaderUUID +
			":7,3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:5",
	} {
		if got, err := parseOwned(owned); err != nil || !got.Equal(set(t, want)) {
			t.Errorf("%q: %s %v", owned, got, err)
		}
	}
}

// TestFollows: what voids a comparison under the lock.
func TestFollows(t *testing.T) {
	n2 := gtid.IncarnationUUID(1, 2, 5)
	f := &node{name: "n2", uuid: n2, never: set(t, leaderUUID+":1")}
	leader := set(t, leaderUUID+":1-100")
	for text, want := range map[string]error{
		leaderUUID + ":2-90":                       nil,
		leaderUUID + ":2-90," + n2.String() + ":1": nil, // a statement of its own
		// of a leader that the one with the lock does not know
		leaderUUID + ":2-101":                                                errMoved,
		gtid.IncarnationUUID(1, 3, 1).String() + ":1":                        errMoved,
		leaderUUID + ":1-90":                                                 errMoved, // it came after all
		"3e11fa47-71ca-11e1-9e33-c80aa9429562:1":                             errMoved,
		leaderUUID + ":2," + gtid.IncarnationUUID(1, 2, 4).String() + ":1-3": nil,
	} {
		if err := f.follows(set(t, text), leader); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestPassed: what a follower still lacks of the leader's is not in the log once it has executed something later.
func TestPassed(t *testing.T) {
	had, now := set(t, leaderUUID+":1-50"), set(t, leaderUUID+":1-90")
	for has, want := range map[string]bool{"": false, leaderUUID + ":2-49": false, leaderUUID + ":2-50": false,
		leaderUUID + ":2-51": true} {
		if got := passed(had, set(t, has), now); got != want {
			t.Errorf("%s: %v", has, got)
		}
	}
}

// TestPlan: which nodes are copied again, and when none is.
func TestPlan(t *testing.T) {
	d := func(table string, wrong ...string) Difference { return Difference{Table: table, Wrong: wrong} }
	for name, c := range map[string]struct {
		differences []Difference
		wrong       string
		err         string
	}{
		"one":         {[]Difference{d("a", "n3"), d("b", "n3"), d("a", "n3")}, "n3", ""},
		"two":         {[]Difference{d("a", "n3"), d("b", "n2")}, "n2 n3", ""},
		"leader":      {[]Difference{d("a", "n1")}, "", "trireme switchover --to n2"},
		"no majority": {[]Difference{d("a", "n3"), d("b")}, "", "no majority"},
		"all":         {[]Difference{d("a", "n1"), d("b", "n2"), d("c", "n3")}, "", "restore a backup"},
		"none":        {},
	} {
		wrong, _, err := plan(Result{Leader: "n1", Nodes: []string{"n1", "n2", "n3"}, Differences: c.differences})
		if strings.Join(wrong, " ") != c.wrong || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v %v", name, wrong, err)
		}
	}
}

func TestDataNodes(t *testing.T) {
	member := func(name, state, epoch string) api.MemberView {
		return api.MemberView{Name: name, State: state, Reason: "why", MySQL: &api.MySQLView{Epoch: epoch,
			ReadOnly: epoch == ""}}
	}
	logger := api.MemberView{Name: "l1", State: api.StateHealthy}
	v := api.ClusterView{Leader: "n1", Members: []api.MemberView{member("n1", api.StateHealthy, "4/7"),
		member("n2", api.StateHealthy, ""), member("n3", api.StateSeeding, ""), logger}}
	late := member("late1", api.StateHealthy, "")
	late.Delay = &api.DelayView{Seconds: 3600}
	v.Members = append(v.Members, late)
	members, away, delayed, err := dataNodes(v)
	if err != nil || len(members) != 2 || len(away) != 1 || away["n3"] != "it is seeding: why" ||
		fmt.Sprint(delayed) != "[late1]" {
		t.Errorf("%v %v %v %v", members, away, delayed, err)
	}
	if r := (Result{LeftOut: delayed}); !r.OK() {
		t.Error("what lags on purpose is no reason to look at")
	}
	alone := v
	alone.Members = []api.MemberView{v.Members[0], logger}
	if _, _, _, err := dataNodes(alone); !errors.Is(err, ErrAlone) {
		t.Error(err)
	}
	v.Members[0].MySQL.Epoch = "4"
	v.Members[0].MySQL.ReadOnly = true
	if _, _, _, err := dataNodes(v); !errors.Is(err, ErrNoLeader) {
		t.Error(err)
	}
}

// TestRest: all that was done on the node that has worked most counts, once.
func TestRest(t *testing.T) {
	follower := &node{worked: 60 * time.Millisecond}
	c := &checker{o: Options{Share: 0.2}, leader: &node{worked: 50 * time.Millisecond}, followers: []*node{follower, {}}}
	follower.works(time.Now().Add(-40 * time.Millisecond))
	if got := c.rest(); got < 400*time.Millisecond {
		t.Errorf("%v of rest after at least 100 ms of work", got)
	}
	if got := c.rest(); got != 0 {
		t.Errorf("%v for nothing", got)
	}
	c.o.Share, follower.worked = 1, time.Second
	if got := c.rest(); got != 0 {
		t.Errorf("%v at full speed", got)
	}
}

// TestAdapt: ranges grow fast until one takes a quarter of a second. After a range that was written to meanwhile they
// start again at half the size, and grow slowly.
func TestAdapt(t *testing.T) {
	c := &checker{chunk: firstChunk, growth: fast}
	for i, step := range []struct {
		took time.Duration
		cut  bool
		want int
	}{
		{time.Millisecond, false, 4000}, {125 * time.Millisecond, false, 8000}, {time.Second, false, 2000}, {0, false, 2000},
		{time.Millisecond, true, 1000}, {time.Millisecond, false, 1250}, {time.Millisecond, true, 625},
		{time.Hour, false, leastChunk},
	} {
		c.slowest, c.cut = step.took, step.cut
		if c.adapt(); c.chunk != step.want || c.slowest != 0 || c.cut {
			t.Errorf("%d: ranges of %d rows, not %d", i, c.chunk, step.want)
		}
	}
}

// TestState: an interrupted run goes on with its key and what it found; with another definition the table begins again.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	run := func(only ...string) (*checker, *state, error) {
		c := &checker{o: Options{State: path, Only: only, Say: t.Logf}, res: &Result{Cluster: "shop"}}
		st, err := c.resume(nil)
		return c, st, err
	}
	a := &table{schema: "s", name: "a", key: []column{col("id", "int")}, definition: "1"}
	b := &table{schema: "s", name: "b", key: []column{col("id", "int")}, definition: "1"}
	c, st, err := run()
	if err != nil || st.has(a) || st.at(a) != nil {
		t.Fatalf("%+v %v", st, err)
	}
	c.res.Rows = 10
	c.res.Differences = []Difference{{Table: "s.a", Kind: KindRows}, {Table: "s.z", Kind: KindMissing}}
	for _, err := range []error{st.finished(a, c.res), st.reached(b, []string{"77"}, c.res), st.save(c.res)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c, st, err = run()
	if err != nil || !st.has(a) || st.has(b) || fmt.Sprint(st.at(b)) != "[77]" || c.res.Rows != 10 ||
		len(c.res.Differences) != 1 {
		t.Fatalf("%+v %+v %v", st, c.res, err)
	}
	changed := *b
	changed.definition = "2"
	if st.at(&changed) != nil {
		t.Error("a key of another definition is used")
	}
	if _, _, err := run("other"); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Error(err)
	}
	if err := st.remove(); err != nil {
		t.Fatal(err)
	}
	if _, st, err = run("other"); err != nil || st.has(a) {
		t.Errorf("%+v %v", st, err)
	}
}

func TestDifferenceText(t *testing.T) {
	d := Difference{Table: "shop.orders", Kind: KindRows, Key: "id", From: "5", Count: 2, Wrong: []string{"n3"},
		Rows: []Row{{Key: "7", Hash: map[string]string{"n1": "62EB138F77061111", "n3": Absent}, Columns: []string{"note"}}}}
	want :=
		"shop.orders: rows differ on n3: 2 rows, (id) after (5) up to (the end)\n  (7): n1 62EB138F7706 n3 absent; columns note\n  … and 1 more"
	if got := d.String(); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}

// TestFinal: what no other session would answer differently is not tried again. The checker would open sessions again,
// which this one cannot.
func TestFinal(t *testing.T) {
	for _, end := range []error{ErrNoTable, ErrNoAccount, ErrAlone} {
		c := &checker{leader: &node{}, o: Options{Say: func(string, ...any) { t.Errorf("%v: tried again", end) }}}
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		err := c.again(ctx, func() error {
			if asked++; asked > 1 {
				cancel()
			}
			return fmt.Errorf("%w %q", end, "shop.nope")
		})
		cancel()
		if !errors.Is(err, end) || asked != 1 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	}
}

// copying is a cluster whose node n2 has not begun, copies, and is healthy with another mysqld, one after the other.
type copying struct{ looks int }

func (c *copying) Reinit(context.Context, api.MemberRequest) (api.MemberResult, error) {
	return api.MemberResult{}, nil
}

func (c *copying) Cluster(context.Context) (api.ClusterView, error) {
	m := api.MemberView{Name: "n2", State: api.StateHealthy, MySQL: &api.MySQLView{PID: 7}}
	switch c.looks++; c.looks {
	case 1, 2: // before, and right after the order
	case 3:
		m.State = api.StateSeeding
	default:
		m.MySQL.PID = 8
	}
	return api.ClusterView{Members: []api.MemberView{m}}, nil
}

// TestReinitTellsWhatChanges: a node that has not begun to copy is not told to be healthy.
func TestReinitTellsWhatChanges(t *testing.T) {
	var said []string
	o := Options{Cluster: &copying{}, Say: func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	}}
	if err := reinit(t.Context(), o, "n2"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(said[1:], "; "); got != "n2 is seeding; n2 is healthy again" {
		t.Error(got)
	}
}
