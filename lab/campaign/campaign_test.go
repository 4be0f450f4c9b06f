package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
	"trireme/lab/rivals"
	"trireme/lab/testkit"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

func TestMain(m *testing.M) {
	child.Main(wan.Forwarder, faultfs.Server)
	os.Exit(testkit.Run(m))
}

// real are options of a campaign on real servers. The test is skipped where there can be none, unless they are
// required.
func real(t *testing.T) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real servers")
	}
	needs.MySQL(t)
	if os.Getuid() != 0 {
		t.Skip("only root can emulate hosts and cut the power of disks")
	}
	return Options{Binary: testkit.Program(t, testkit.Trireme), Dir: t.TempDir(),
		State: filepath.Join(t.TempDir(), StateName), Say: t.Output()}
}

func skipWithout(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, faultfs.ErrUnavailable) {
		needs.Cannot(t, err)
	}
	needs.Netns(t, err)
}

// TestShortCampaign: one fault of each important kind on real servers, and all that a campaign checks. make soak runs
// the long form.
func TestShortCampaign(t *testing.T) {
	o := real(t)
	o.Seed, o.Faults = 20, 6
	o.Kinds = []Kind{KillMySQL, KillHost, Isolate, IsolateIn, Power, Switchover}
	v, err := Run(t.Context(), o)
	skipWithout(t, err)
	t.Log(v)
	if !v.OK() {
		transcript, err := os.ReadFile(filepath.Join(o.Dir, "transcript.txt"))
		t.Errorf("not shown, or violated: %s %v", transcript, err)
	}
	if v.Faults < o.Faults || v.Checks == 0 || v.PowerLosses == 0 || v.Partitions == 0 || v.Writes.Acked == 0 ||
		v.Unread > 0 {
		t.Errorf("%+v", v.Part)
	}
	parts, err := ReadState(o.State)
	if err != nil || len(parts) != 1 || parts[0].Faults != v.Faults || parts[0].Ground.MySQL == "" {
		t.Errorf("the state file has %+v: %v", parts, err)
	}
}

// forgetful is a rival that drops an acknowledged write on all of its servers, and says nothing.
type forgetful struct{ rivals.Running }

func (f forgetful) Testify(ctx context.Context, dir string) error {
	return f.Running.(rivals.Witness).Testify(ctx, dir)
}

func (f forgetful) Break(ctx context.Context) (rivals.Breakable, error) {
	b, err := f.Running.(rivals.Operated).Operate(ctx)
	return forgetfulBroken{b}, err
}

type forgetfulBroken struct{ rivals.Breakable }

// Endpoints are asked for by a check, before it waits for the servers to be equal.
func (f forgetfulBroken) Endpoints() ([]verify.Endpoint, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := f.Leader(ctx)
	if err == nil {
		_, err = f.DB(l.Name).ExecContext(ctx, "DELETE FROM trireme_verify.w0 ORDER BY id LIMIT 1")
	}
	if err != nil {
		return nil, err
	}
	return f.Breakable.Endpoints()
}

// TestLostWritesAreFound: the campaign says so, keeps what tells about it, and how to repeat it. The rival is semi-sync
// replication with its script.
func TestLostWritesAreFound(t *testing.T) {
	o := real(t)
	// a follower is killed
	o.System, o.Faults, o.Kinds, o.Topology, o.Seed = "semisync", 1, []Kind{KillMySQL}, NoTopology, 878455692
	found, err := rivals.Find(o.System)
	if err != nil {
		t.Fatal(err)
	}
	start := found.Start
	found.Start = func(ctx context.Context, l *rivals.Lab, s rivals.Shape) (rivals.Running, error) {
		r, err := start(ctx, l, s)
		return forgetful{r}, err
	}
	v, err := run(t.Context(), o, found)
	skipWithout(t, err)
	t.Log(v)
	if v.OK() || v.Problems[string(verify.Lost)] == 0 {
		t.Errorf("nothing was found: %+v", v.Part)
	}
	if log, err := os.ReadFile(filepath.Join(v.Kept, "violation1", "n2.err")); err != nil ||
		!strings.Contains(string(log), "ready for connections") {
		t.Errorf("of the servers' logs %d bytes were kept: %v", len(log), err)
	}
	transcript, err := os.ReadFile(filepath.Join(v.Kept, "transcript.txt"))
	if err != nil || !strings.Contains(string(transcript), "step 1") ||
		!strings.Contains(v.Repeat, fmt.Sprintf("--seed %d ", v.Seed)) {
		t.Errorf("kept in %q: %v; to repeat: %s", v.Kept, err, v.Repeat)
	}
}

// TestInterrupted: a campaign that is told to end says what was done until then.
func TestInterrupted(t *testing.T) {
	c := campaign{Options: Options{Faults: 5, Time: time.Hour}, began: time.Now(), total: Part{Faults: 4}}
	b := batch{campaign: &c}
	ctx, cancel := context.WithCancel(t.Context())
	if !c.left(ctx) || !b.more(ctx) {
		t.Error("it ends with a fault to go")
	}
	b.counts.Faults = 1
	if b.more(ctx) {
		t.Error("more faults than asked for")
	}
	b.counts.Faults = 0
	c.began = c.began.Add(-2 * time.Hour)
	if c.left(ctx) || b.more(ctx) {
		t.Error("more time than asked for")
	}
	c.began = time.Now()
	cancel()
	if c.left(ctx) || b.more(ctx) {
		t.Error("it goes on after an interruption")
	}
}

// TestErrorsLeaveALine: a campaign that cannot go on has shown nothing, and its line in the state file says so.
func TestErrorsLeaveALine(t *testing.T) {
	script, err := os.Create(filepath.Join(t.TempDir(), "transcript.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	c := campaign{Options: Options{State: filepath.Join(t.TempDir(), StateName), Seed: 7}, lab: &rivals.Lab{},
		script: script}
	c.part, c.total = c.newPart(), c.newPart()
	c.failed(errors.New("no hosts can be emulated"))
	if err := c.note(); err != nil || len(c.total.Errors) != 0 {
		t.Fatal(c.total.Errors, err)
	}
	c.attacked = true
	c.failed(errors.New("end of isolate: no such link"))
	if err := c.note(); err != nil {
		t.Fatal(err)
	}
	parts, err := ReadState(c.State)
	if err != nil || len(parts) != 1 || len(parts[0].Errors) != 1 ||
		!strings.Contains(parts[0].Errors[0], "no such link") {
		t.Errorf("%+v %v", parts, err)
	}
	if v := (Verdict{Part: c.total}); v.OK() || !strings.Contains(v.String(), "NOT SHOWN") ||
		!strings.Contains(v.String(), "no such link") {
		t.Error(v)
	}
}

func TestRights(t *testing.T) {
	all, _ := Kinds(nil)
	for _, c := range []struct {
		o    Options
		uid  int
		want bool
	}{
		{Options{Topology: "lan", Kinds: all}, 0, true},
		{Options{Topology: "lan", Kinds: []Kind{KillMySQL}}, 1000, false},
		{Options{Topology: NoTopology, Kinds: []Kind{KillMySQL, Power}}, 1000, false},
		{Options{Topology: NoTopology, Kinds: []Kind{KillMySQL, StopHost}}, 1000, true},
	} {
		if err := c.o.rights(c.uid); (err == nil) != c.want {
			t.Errorf("user %d, topology %s, %v: %v", c.uid, c.o.Topology, c.o.Kinds, err)
		}
	}
}
