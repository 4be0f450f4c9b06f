package campaign

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/lab/rivals"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

// NoTopology stands all nodes on the loopback address: there is no network to be cut then.
const NoTopology = "none"

const (
	// batchSteps is how many steps lie between two checks of everything.
	batchSteps = 40
	// partTime is how often a line of the state file is written at least.
	partTime = 10 * time.Minute
	// startLimit is for a system to be made.
	startLimit = 5 * time.Minute
	// fruitless violations before a check could be made end the campaign against a rival, which is started again after
	// each one otherwise.
	fruitless = 5
	// of each workload: enough that commits are under way at all times, few enough that servers start quickly meanwhile
	clients = 4
)

// Options of a campaign. It ends after so many faults, after so much time, or with its context, whatever comes first.
type Options struct {
	System     string // of rivals.Systems; empty: trireme
	Nodes      int    // 0: three
	Loggers    int    // of them; Trireme only
	Learners   int    // besides; Trireme only
	Swarm      bool   // all that is not named comes from the seed; Trireme only
	Durability string // of Trireme: log or double; empty: log
	Topology   string // of emulated hosts; empty: lan; NoTopology: none
	Kinds      []Kind // empty: all that can be made
	Seed       uint64 // 0: one is chosen
	Faults     int    // 0: no bound
	Time       time.Duration
	Clients    int    // of each workload; 0: a few
	Dir        string // scratch; empty: a new one, removed unless a promise is broken
	State      string // file to which counts are appended; empty: none
	MySQL      string // mysqld to use; empty: found as `trireme node` finds it
	Binary     string // trireme's own program; empty: found (rivals.FindTrireme)
	Build      Build
	Say        io.Writer

	drawn *swarm // nil without Swarm
}

// ErrUsage marks options that make no sense.
var ErrUsage = errors.New("usage")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, args...))
}

func (o Options) withDefaults() (Options, error) {
	if o.System == "" {
		o.System = "trireme"
	}
	if o.Seed == 0 {
		var b [4]byte // short enough to be typed
		if _, err := rand.Read(b[:]); err != nil {
			return o, err
		}
		o.Seed = uint64(binary.LittleEndian.Uint32(b[:])) + 1
	}
	if o.Swarm && !o.ours() {
		return o, usagef("only Trireme's shape comes from the seed")
	}
	if o.Swarm && o.drawn == nil {
		o.drawSwarm()
	}
	if o.Topology == "" {
		o.Topology = "lan"
	}
	if o.Durability == "" {
		o.Durability = config.DurabilityLog
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Clients == 0 {
		o.Clients = clients
	}
	switch {
	case o.State != "" && o.Build.mutant():
		return o,
			usagef("this program breaks a rule on purpose (built with %s): what it does is not counted; run it where there is no docs/safety", o.Build.Tags)
	case o.Faults < 0 || o.Time < 0:
		return o, usagef("a number of faults or a time below zero")
	case o.Nodes < 3 || o.Nodes > 9:
		return o, usagef("%d nodes: from 3 to 9, so that there is a majority without one of them", o.Nodes)
	case o.Loggers < 0 || o.Loggers > o.Nodes-2:
		return o, usagef("%d loggers among %d nodes: at least two nodes must have data, or no node could take over",
			o.Loggers, o.Nodes)
	case o.Durability != config.DurabilityLog && o.Durability != config.DurabilityDouble:
		return o, usagef("durability %q: it is %s or %s", o.Durability, config.DurabilityLog, config.DurabilityDouble)
	case o.Learners < 0 || o.Learners > 2:
		return o, usagef("%d learners: at most 2", o.Learners)
	case !o.ours() && (o.Loggers > 0 || o.Learners > 0 || o.Durability != config.DurabilityLog):
		return o, usagef("only Trireme has loggers and durability modes")
	}
	return o, o.chooseKinds()
}

// chooseKinds leaves out what cannot be made without hosts, unless it was asked for by name.
func (o *Options) chooseKinds() error {
	named := len(o.Kinds) > 0
	if !named {
		o.Kinds, _ = Kinds(nil)
	}
	possible := slices.DeleteFunc(slices.Clone(o.Kinds), func(k Kind) bool { return o.lacks(k) != nil })
	if named {
		for _, k := range o.Kinds {
			if err := o.lacks(k); err != nil {
				return err
			}
		}
	}
	o.Kinds = possible
	return nil
}

// lacks says what is missing for a kind of faults.
func (o *Options) lacks(k Kind) error {
	if kindOf(k).needs == needsNetwork && o.Topology == NoTopology {
		return usagef("%s needs emulated hosts: name a topology, such as --topology lan", k)
	}
	return nil
}

// ours reports whether it is Trireme, which must stand everything.
func (o Options) ours() bool { return strings.HasPrefix(o.System, "trireme") }

func (o Options) needs(n need) bool {
	return slices.ContainsFunc(o.Kinds, func(k Kind) bool { return kindOf(k).needs == n })
}

// Command repeats a campaign.
func (o Options) Command() string {
	out := []string{"trireme-lab verify cluster", fmt.Sprintf("--seed %d", o.Seed)}
	if o.drawn != nil {
		return strings.Join(append(append(out, "--swarm"), o.drawn.given...), " ")
	}
	return strings.Join(append(append(out, "--system "+o.System), o.shapeArgs()...), " ")
}

// shapeArgs are the options that name a shape.
func (o Options) shapeArgs() (out []string) {
	if o.Nodes > 0 {
		out = append(out, fmt.Sprintf("--nodes %d", o.Nodes))
	}
	if o.Topology != "" {
		out = append(out, "--topology "+o.Topology)
	}
	if o.Loggers > 0 {
		out = append(out, fmt.Sprintf("--loggers %d", o.Loggers))
	}
	if o.Learners > 0 {
		out = append(out, fmt.Sprintf("--learners %d", o.Learners))
	}
	if o.ours() && o.Durability != "" {
		out = append(out, "--durability "+o.Durability)
	}
	if all, _ := Kinds(nil); len(o.Kinds) > 0 && len(o.Kinds) < len(all) {
		var names []string
		for _, k := range o.Kinds {
			names = append(names, string(k))
		}
		out = append(out, "--faults-of "+strings.Join(names, ","))
	}
	return out
}

// Verdict over a campaign.
type Verdict struct {
	Part
	Interrupted bool `json:"interrupted,omitempty"`
	// directory with logs and histories, after a violation or a long stall that was not judged
	Kept   string `json:"kept,omitempty"`
	Repeat string `json:"repeat"` // the command
}

// OK: something was shown, and no promise was broken.
func (v Verdict) OK() bool { return len(v.Violations) == 0 && len(v.gaps()) == 0 }

// gaps say why a part without violations shows nothing.
func (p Part) gaps() (out []string) {
	if p.Faults == 0 {
		out = append(out, "no fault was made")
	}
	if p.Checks == 0 {
		out = append(out, "nothing was compared")
	}
	if p.Undecided > 0 {
		out = append(out, fmt.Sprintf("%d histories were not decided", p.Undecided))
	}
	for _, e := range p.Errors {
		out = append(out, "the campaign itself failed: "+e)
	}
	return out
}

// Run a campaign. A broken promise is in the verdict; an error means that the campaign could not be made or could not
// go on. What was done and checked is in the verdict in any case.
func Run(ctx context.Context, o Options) (v Verdict, err error) {
	if o, err = o.withDefaults(); err != nil {
		return v, err
	}
	sys, err := o.system()
	if err != nil {
		return v, err
	}
	return run(ctx, o, sys)
}

// run is Run on a system that need not be one of the lab's.
func run(ctx context.Context, o Options, sys rivals.System) (v Verdict, err error) {
	if o, err = o.withDefaults(); err != nil {
		return v, err
	}
	looking, stop := context.WithCancel(context.WithoutCancel(ctx)) // what was begun is judged in any case
	defer stop()
	c := &campaign{Options: o, system: sys, load: watchLoad(looking)}
	if err := c.prepare(ctx); err != nil {
		return v, err
	}
	v.Repeat = o.Command()
	if w := o.Build.toNobody(o.State); w != "" {
		c.say("%s", w)
	}
	defer func() {
		v.Part, v.Kept = c.total, c.kept
		v.Interrupted = ctx.Err() != nil
		if err == nil && v.Kept == "" && o.Dir == "" {
			err = os.RemoveAll(c.dir)
		}
	}()
	for c.left(ctx) {
		err := c.onFreshSystem(ctx)
		switch {
		case err == nil:
		case !errors.Is(err, errViolated):
			c.failed(err)
			return v, errors.Join(err, c.note())
		default:
			c.violated(err)
			if o.ours() || len(c.total.Violations)-c.total.Checks >= fruitless {
				return v, c.note()
			}
		}
	}
	return v, c.note()
}

// campaign is what Run works with.
type campaign struct {
	Options
	system   rivals.System
	lab      *rivals.Lab
	dir      string
	kept     string
	schedule *Schedule
	load     *loads
	owned    verify.Owned // what nodes were seen to hold of their own
	script   *os.File
	forgiven map[string][]*strike // by host: faults that explain what its processes do

	began, noted time.Time
	starts       int
	attacked     bool // a system has been started
	long         int  // stalls that were not judged and kept
	part, total  Part
}

func (o Options) system() (rivals.System, error) {
	s, err := rivals.Find(o.System)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if o.System == "trireme" {
		s = rivals.TriremeOf(o.Loggers, o.Durability)
	}
	return s, nil
}

func (c *campaign) prepare(ctx context.Context) (err error) {
	if c.Topology != NoTopology {
		if _, err := wan.Load(c.Topology); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	if err := c.rights(os.Getuid()); err != nil {
		return err
	}
	if c.dir = c.Dir; c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "trireme-verify-"); err != nil {
			return err
		}
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	c.lab, err = rivals.New(ctx, rivals.Options{MySQL: c.MySQL, Binary: c.Binary, Dir: c.dir})
	if err == nil && c.system.Missing != nil {
		err = c.system.Missing(c.lab)
	}
	if err != nil {
		return err
	}
	c.schedule = c.newSchedule(c.Kinds)
	c.began, c.noted = time.Now(), time.Now()
	c.part, c.total = c.newPart(), c.newPart()
	c.script, err = os.Create(filepath.Join(c.dir, "transcript.txt"))
	return err
}

// rights says what a user lacks for a campaign, before anything is started.
func (o Options) rights(uid int) error {
	if uid == 0 || o.Topology == NoTopology && !o.needs(needsDisks) {
		return nil
	}
	return errors.New("only root can emulate hosts and cut the power of disks; without it: --topology none, and --faults-of kinds that need no disks of their own, such as kill-mysqld,kill-host")
}

// left reports whether there is more to do.
func (c *campaign) left(ctx context.Context) bool {
	return ctx.Err() == nil && (c.Faults == 0 || c.total.Faults < c.Faults) &&
		(c.Time == 0 || time.Since(c.began) < c.Time)
}

// serverOptions: quick starts and recoveries are worth more here than room. Trireme's nodes are instrumented as they
// are by default, since their daemons look at that.
func (c *campaign) serverOptions() map[string]string {
	o := map[string]string{"innodb_buffer_pool_size": "64M", "innodb_redo_log_capacity": "64M", "max_connections": "200"}
	if c.ours() {
		o["performance_schema"], o["performance_schema_digests_size"] = "ON", "500"
	}
	if c.drawn != nil {
		o["performance_schema"] = c.drawn.settings["instrumented"]
	}
	return o
}

// smallLog is purged all the time, so that purges meet every fault.
func smallLog(n *config.Node) { n.Raft.LogSegment, n.Raft.LogMax = config.MiB, 2*config.MiB }

// onFreshSystem starts the system and runs batches until the campaign is over, or something breaks.
func (c *campaign) onFreshSystem(ctx context.Context) (err error) {
	c.starts++
	c.forgiven = map[string][]*strike{}
	shape := rivals.Shape{Nodes: c.Nodes, Learners: c.Learners, Variant: c.system.Variants[0], Options: c.serverOptions(),
		Tune: smallLog, Disks: c.needs(needsDisks), DiskSeed: c.Seed,
		Dir: filepath.Join(c.dir, fmt.Sprintf("start%d", c.starts))}
	if c.drawn != nil {
		shape.Tune = func(n *config.Node) { smallLog(n); c.drawn.tune(n) }
	}
	if c.Topology != NoTopology {
		t, err := wan.Load(c.Topology)
		if err != nil {
			return err
		}
		shape.Topology = &t
	}
	c.say("Starting %s: %d nodes, topology %s, seed %d", c.system.Title, c.Nodes, c.Topology, c.Seed)
	if err := os.MkdirAll(shape.Dir, 0o755); err != nil {
		return err
	}
	if c.drawn != nil {
		c.say("The seed has chosen: %v; faults: %v", c.drawn, c.Kinds)
		if err := writeKeys(shape.Dir); err != nil {
			return err
		}
	}
	sctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	running, err := c.system.Start(sctx, c.lab, shape)
	if err != nil {
		return fmt.Errorf("the system does not start: %w", err)
	}
	defer func() {
		if serr := running.Stop(); err == nil {
			err = serr
		}
		if !errors.Is(err, errViolated) {
			err = errors.Join(err, os.RemoveAll(shape.Dir))
		}
	}()
	sys, err := c.attack(ctx, running)
	if err != nil {
		return err
	}
	c.attacked = true
	for c.left(ctx) {
		if err := c.batch(ctx, sys); err != nil {
			c.keep(sys, fmt.Sprintf("violation%d", len(c.total.Violations)+1))
			return err
		}
		c.progress()
		if time.Since(c.noted) >= partTime {
			if err := c.note(); err != nil {
				return err
			}
		}
	}
	return nil
}

// attack makes a system breakable, and refuses faults that it does not know.
func (c *campaign) attack(ctx context.Context, running rivals.Running) (sys system, err error) {
	sys.grips = newGrips()
	sys.witness, _ = running.(rivals.Witness)
	switch r := running.(type) {
	case rivals.Breaker:
		sys.Breakable, err = r.Break(ctx)
	case rivals.Operated:
		sys.Breakable, err = r.Operate(ctx)
	default:
		err = usagef("no server takes over in %s: there is nothing to hit again and again", c.system.Title)
	}
	if err != nil {
		return sys, err
	}
	for _, h := range running.Hosts() {
		sys.all = append(sys.all, h.Name)
	}
	slices.Sort(sys.all)
	if l, ok := running.(interface{ Learners() []string }); ok {
		sys.learners = l.Learners()
	}
	if s, ok := sys.Breakable.(rivals.Streaming); ok {
		if sys.stream, err = s.Stream(ctx); err != nil {
			return sys, err
		}
	}
	possible, err := sys.possible(c.Kinds)
	if len(possible) == 0 {
		return sys, err
	}
	if len(possible) < len(c.schedule.kinds) {
		c.schedule = c.newSchedule(possible)
	}
	return sys, nil
}

// possible kinds on a system; the error says why others are not.
func (s system) possible(of []Kind) (out []Kind, err error) {
	_, dark := s.Breakable.(rivals.Dark)
	for _, k := range of {
		var no error
		if kindOf(k).class == classPower && !dark {
			no = fmt.Errorf("%w: %s", rivals.ErrNotHere, k)
		}
		if f, ok := faultsOfLab[k]; ok {
			no = s.Can(f)
		}
		if no != nil {
			err = errors.Join(err, no)
			continue
		}
		out = append(out, k)
	}
	return out, err
}

// newSchedule of some kinds. In a swarm each kind is as frequent as the others.
func (c *campaign) newSchedule(of []Kind) *Schedule {
	s := NewSchedule(c.Seed, of)
	if c.drawn != nil {
		s.pairs = c.drawn.pairs
		for i := range s.kinds {
			s.kinds[i].deck = 1
		}
	}
	return s
}

func (c *campaign) say(format string, args ...any) {
	if c.Say != nil {
		fmt.Fprintf(c.Say, format+"\n", args...)
	}
}

// progress is one line after each batch.
func (c *campaign) progress() {
	t, d := c.total, time.Since(c.began)
	c.say("%8v  %d faults, %.1f a minute: %d leader kills, %d partitions, %d power losses; %d writes acknowledged; %d checks, %d violations", d.Round(time.Second), t.Faults,
		float64(t.Faults)/d.Minutes(), t.LeaderKills, t.Partitions, t.PowerLosses, t.Writes.Acked, t.Checks,
		len(t.Violations))
}

func (c *campaign) clock() string { return time.Since(c.began).Round(time.Millisecond).String() }

// violated takes a broken promise down.
func (c *campaign) violated(err error) {
	text := fmt.Sprintf("seed %d, after %d faults: %v", c.Seed, c.total.Faults, err)
	text = strings.ReplaceAll(text, c.dir+"/", "") // where it ran does not belong into a report
	c.part.Violations, c.total.Violations = append(c.part.Violations, text), append(c.total.Violations, text)
	fmt.Fprintf(c.script, "%s %s\n", c.clock(), text)
	c.say("VIOLATION %s", text)
}

// failed records an error of the campaign itself, whose outcome is unknown. A fault that could not even be started is
// not an error.
func (c *campaign) failed(err error) {
	if !c.attacked {
		return
	}
	text := fmt.Sprintf("seed %d, after %d faults: %v", c.Seed, c.total.Faults, err)
	c.part.Errors, c.total.Errors = append(c.part.Errors, text), append(c.total.Errors, text)
	fmt.Fprintf(c.script, "%s %s\n", c.clock(), text)
}

// keep the files that explain what happened: logs, histories, the clients' log, the transcript.
func (c *campaign) keep(sys system, name string) {
	to := filepath.Join(c.dir, name)
	err := os.MkdirAll(to, 0o755)
	if sys.witness != nil && err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = sys.witness.Testify(ctx, to)
	}
	if err != nil {
		c.say("Not all of the evidence could be kept: %v", err)
	}
	c.kept = c.dir
}

// note appends what was counted since the last time to the state file.
func (c *campaign) note() error {
	c.part.Minutes = time.Since(c.noted).Minutes()
	c.noted = time.Now()
	c.total.Minutes = c.noted.Sub(c.began).Minutes()
	part := c.part
	c.part = c.newPart()
	if c.State == "" || part.empty() {
		return nil
	}
	return AppendState(c.State, part)
}
