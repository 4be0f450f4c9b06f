package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/control/dashboard"
)

// RunOptions are those of `trireme demo`.
type RunOptions struct {
	Nodes    int           // data nodes with a vote, at least 1; 0: 3
	Loggers  int           // on top
	Learners int           // data nodes without a vote, on top
	Dir      string        // empty: a new one in the temporary directory
	PortBase int           // 0: 21000, or where that is taken the next free one
	Duration time.Duration // of the load; 0: 60 s
	NoFaults bool
	Keep     bool   // leave the cluster running after the verdict, until Ctrl-C
	Detach   bool   // leave it running in the background, without load
	MySQL    string // mysqld to use; empty: found
	Binary   string // trireme's own program; empty: this one
	Out      io.Writer
	Tour     bool      // each act waits for a line from In
	In       io.Reader // nil: nothing is waited for
	Hosts    Hosts     // that the nodes stand on; nil: all are on the loopback address
	More     []string  // flags that give the background part of Detach the same hosts
}

// ErrVerdict: the demo ran, and found that a promise was broken.
var ErrVerdict = errors.New("the demo found a broken promise")

const (
	demoWriters   = 8
	rejoinLimit   = 60 * time.Second
	checkLimit    = 2 * time.Minute
	restartPause  = 500 * time.Millisecond
	tourPause     = 3 * time.Second // of load before the next act of a tour
	minimumFaults = 2               // nodes without which faults make no sense: one must survive with a majority
)

func (o RunOptions) withDefaults() (RunOptions, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Nodes < 1 || o.Loggers < 0 || o.Learners < 0 || o.members() > config.MaxMembers {
		return o, fmt.Errorf("%d data nodes, %d loggers and %d learners: at least one data node, at most %d members",
			o.Nodes, o.Loggers, o.Learners, config.MaxMembers)
	}
	if o.PortBase == 0 {
		base, err := FreePortBase(o.members())
		if err != nil {
			return o, err
		}
		o.PortBase = base
	}
	var err error
	if o.Dir == "" {
		o.Dir, err = os.MkdirTemp("", "trireme-demo-")
	} else {
		o.Dir, err = filepath.Abs(o.Dir)
	}
	return o, err
}

func (o RunOptions) members() int { return o.Nodes + o.Loggers + o.Learners }

// Outcome is what came of a demo, for programs.
type Outcome struct {
	Dir     string  `json:"dir"`
	Passed  bool    `json:"passed"`            // the verdict; also false until there is a verdict
	Problem string  `json:"problem,omitempty"` // why there is no verdict, or not a good one
	Faults  []Fault `json:"faults,omitempty"`
	Check   *Report `json:"check,omitempty"`
	Cluster *State  `json:"cluster,omitempty"` // of a detached demo: where it is, with its password and token
}

// Fault is one that the leader was hit by.
type Fault struct {
	What        string  `json:"what"` // mysqld or daemon, killed
	Node        string  `json:"node"`
	Leader      string  `json:"leader"` // the next one
	WriteGapMS  int64   `json:"write_gap_ms"`
	BackSeconds float64 `json:"back_seconds"` // until the node was a healthy member again
}

// Run is `trireme demo`: a cluster, a load, faults, a verdict. It handles SIGINT and SIGTERM itself: whenever they
// come, no process is left (unless Detach). ErrVerdict means that the demo found something wrong; the outcome says
// what.
func Run(ctx context.Context, o RunOptions) (Outcome, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Dir: o.Dir}
	err = run(ctx, o, &out)
	if err != nil {
		out.Problem = err.Error()
	}
	return out, err
}

func run(ctx context.Context, o RunOptions, out *Outcome) error {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if o.Detach {
		if err := detach(ctx, o); err != nil {
			return err
		}
		s, err := ReadState(o.Dir)
		out.Cluster = &s
		return err
	}
	p := &printer{out: o.Out}
	defer p.line("The data is in %s; remove it when you do not need it any more", o.Dir)
	c, err := Create(ctx, o.cluster(p.line, false))
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		p.line("Stopping %d nodes …", len(c.Nodes()))
		c.Close()
	}()
	c.KeepRunning(restartPause,
		func(n *Node, err error) { p.line("  %s: its daemon has ended (%v); started again", n.Name, err) })
	tale := newStory(p, o.Tour, o.In)
	p.connections(ctx, c)
	err = tale.act(ctx, fmt.Sprintf("A cluster of %d nodes", len(c.Nodes())), clusterText)
	if err == nil {
		err = (&show{c: c, o: o, p: p, out: out, tale: tale}).run(ctx)
	}
	if o.Keep && (err == nil || errors.Is(err, ErrVerdict)) && ctx.Err() == nil {
		p.line("The cluster keeps running; Ctrl-C ends it")
		<-ctx.Done()
		return err
	}
	return interrupted(ctx, err)
}

// interrupted turns whatever a Ctrl-C caused into one plain error.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// cluster names a demo that is not on the usual ports after them: two demos on one machine must not overwrite each
// other's credential.
func (o RunOptions) cluster(say func(string, ...any), survive bool) Options {
	name := "demo"
	if o.PortBase != defaultPortBase {
		name = fmt.Sprintf("demo-%d", o.PortBase)
	}
	return Options{Name: name, Nodes: o.Nodes, Loggers: o.Loggers, Learners: o.Learners, Dir: o.Dir, PortBase: o.PortBase,
		MySQL: o.MySQL,
		Hosts: o.Hosts, Binary: o.Binary, Survive: survive, Say: say}
}

// printer writes whole lines from several goroutines.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// connections prints how to look at the cluster, and how to use it.
func (p *printer) connections(ctx context.Context, c *Cluster) {
	s := c.State()
	at := c.Nodes()[0].addr(c.Nodes()[0].Ports.API)
	p.line("")
	client := c.Client(c.Nodes()[0])
	defer client.Close()
	if code, err := client.LoginCode(ctx); err == nil {
		p.line("  dashboard: %s", dashboard.LoginLink("https://"+at, code))
		p.line("             logs in once, within %d s; another link: %s dashboard --api http://%s", code.Seconds,
			program(), at)
	} else {
		p.line("  dashboard: https://%s/; a link that logs in: %[2]s dashboard --api http://%[1]s", at, program())
	}
	for _, n := range c.Nodes() {
		p.line("  %-4s %-7s  read-write %s   read-only %s   status http://%s/cluster", n.Name, n.Role, n.addr(n.Ports.RW),
			n.addr(n.Ports.RO), n.addr(n.Ports.API))
	}
	first := c.Nodes()[0]
	p.line("  mysql:  MYSQL_PWD=%s mysql -h %s -P %d -u %s", s.Password, first.Host, first.Ports.RW, s.User)
	p.line("  DSN:    %s:%s@tcp(%s)/", s.User, s.Password, first.addr(first.Ports.RW))
	p.line("  status: %s status --api http://%s", program(), at)
}

// program is how this program is started from where its user is: after `make demo` it is not on PATH.
func program() string {
	if _, err := exec.LookPath("trireme"); err != nil && strings.Contains(os.Args[0], "/") {
		return os.Args[0]
	}
	return "trireme"
}

// show is the part of the demo that one watches.
type show struct {
	c   *Cluster
	o   RunOptions
	p   *printer
	w   *load
	out *Outcome

	tale *story
}

func (s *show) run(ctx context.Context) error {
	var err error
	s.w, err = newLoad(s.c.Routed(), demoWriters, filepath.Join(s.o.Dir, "client.log"))
	if err != nil {
		return err
	}
	defer s.w.close()
	prepCtx, cancel := context.WithTimeout(ctx, healthyLimit)
	defer cancel()
	if err := s.w.prepare(prepCtx); err != nil {
		return err
	}
	if err := s.tale.act(ctx, "A load", loadText(demoWriters, s.o.Nodes+s.o.Loggers)); err != nil {
		return err
	}
	loadCtx, stopLines := context.WithCancel(ctx)
	lines := make(chan struct{})
	s.w.start(loadCtx)
	go func() {
		defer close(lines)
		s.everySecond(loadCtx)
	}()
	faultErr := s.schedule(ctx)
	stopLines()
	<-lines
	if err := errors.Join(faultErr, s.w.stop()); err != nil {
		return err
	}
	return s.verdict(ctx)
}

// everySecond prints the load.
func (s *show) everySecond(ctx context.Context) {
	begin := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tps, p95 := s.w.tick()
		if s.tale.waiting.Load() {
			continue
		}
		lead, term := "none", uint64(0)
		if v, err := s.c.View(ctx); err == nil {
			term = v.Term
			if v.Leader != "" {
				lead = v.Leader
			}
		} else if ctx.Err() != nil {
			return
		}
		s.p.line("%4.0fs  %6.0f TPS  p95 %6.1f ms  leader %s  term %d", time.Since(begin).Seconds(), tps,
			float64(p95.Microseconds())/1000, lead, term)
	}
}

// schedule lets the load run, with two faults at a quarter and five eighths of the time; in a tour, when its reader
// goes on.
func (s *show) schedule(ctx context.Context) error {
	end := time.Now().Add(s.o.Duration)
	until := func(at time.Time) error {
		if s.tale.enter != nil {
			return poll.Pause(ctx, tourPause)
		}
		return poll.Pause(ctx, time.Until(at))
	}
	if !s.o.NoFaults && s.o.Nodes >= minimumFaults && s.o.Nodes+s.o.Loggers >= 3 {
		start := end.Add(-s.o.Duration)
		for _, f := range []struct {
			at    time.Duration
			what  string
			title string
			text  string
			kill  func(*Node) int
		}{
			{s.o.Duration / 4, "mysqld", "The leader's mysqld is killed", mysqldText, s.c.KillMySQL},
			{s.o.Duration * 5 / 8, "daemon", "The leader's daemon is killed", daemonText, func(n *Node) int {
				pid := n.DaemonPID()
				_ = s.c.Signal(n, syscall.SIGKILL)
				return pid
			}},
		} {
			if err := until(start.Add(f.at)); err != nil {
				return err
			}
			if err := s.tale.act(ctx, f.title, f.text); err != nil {
				return err
			}
			if err := s.fault(ctx, f.what, f.kill); err != nil {
				return err
			}
		}
	}
	if err := until(end); err != nil {
		return err
	}
	return s.tale.act(ctx, "The verdict", verdictText)
}

// fault kills a part of the leader, and tells what came of it.
func (s *show) fault(ctx context.Context, what string, kill func(*Node) int) error {
	ctx, cancel := context.WithTimeout(ctx, rejoinLimit)
	defer cancel()
	before, err := s.c.WaitHealthy(ctx)
	if err != nil {
		return err
	}
	victim := s.c.Node(before.Leader)
	at := time.Now()
	s.w.watch()
	pid := kill(victim)
	s.p.line("  >> SIGKILL to the leader's %s (%s, process %d)", what, victim.Name, pid)
	next, err := s.c.WaitTerm(ctx, before.Term)
	if err == nil {
		open := time.Now()
		err = pollUntil(ctx, 5*time.Millisecond, "an acknowledged write", func() error {
			if !s.w.ackedSince(open) {
				return fmt.Errorf("none since %s leads in term %d", next.Leader, next.Term)
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("after SIGKILL to %s's %s: %w", victim.Name, what, err)
	}
	gap := s.w.gap().Milliseconds()
	s.p.line("  << writes continue, %s leads; write gap %d ms", next.Leader, gap)
	if _, err := s.c.WaitHealthy(ctx); err != nil {
		return fmt.Errorf("%s did not come back after SIGKILL to its %s: %w", victim.Name, what, err)
	}
	back := time.Since(at).Seconds()
	s.p.line("  << %s is back as a healthy member %.1f s after the kill", victim.Name, back)
	s.out.Faults = append(s.out.Faults, Fault{What: what, Node: victim.Name, Leader: next.Leader, WriteGapMS: gap,
		BackSeconds: back})
	s.tell(ctx, at, victim, s.c.Node(next.Leader))
	return nil
}

// tell prints what the histories of some nodes say since the fault: who took over, what was rolled back, how the victim
// rejoined.
func (s *show) tell(ctx context.Context, since time.Time, nodes ...*Node) {
	for _, n := range slices.Compact(nodes) {
		events, err := s.c.History(ctx, n)
		if err != nil {
			s.p.line("     the history of %s cannot be read: %v", n.Name, err)
			continue
		}
		for _, e := range eventsSince(events, since, n.Name) {
			gtids := ""
			if e.GTIDs != "" {
				gtids = " [" + e.GTIDs + "]"
			}
			s.p.line("     %s %s: %s%s", e.Node, e.Kind, e.Message, gtids)
		}
	}
}

func eventsSince(events []api.Event, since time.Time, node string) []api.Event {
	return slices.DeleteFunc(slices.Clone(events),
		func(e api.Event) bool { return !e.Time.After(since) || e.Node != node })
}

// verdict checks everything and says so.
func (s *show) verdict(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if _, err := s.c.WaitHealthy(ctx); err != nil {
		s.p.line("VERDICT: FAILED: %v", err)
		return fmt.Errorf("%w: %w", ErrVerdict, err)
	}
	r, err := s.c.check(ctx, s.w)
	if err != nil {
		s.p.line("VERDICT: FAILED: %v", err)
		return fmt.Errorf("%w: %w", ErrVerdict, err)
	}
	s.out.Check, s.out.Passed = &r, r.OK()
	if !r.OK() {
		s.p.line("VERDICT: FAILED: %s", r)
		return ErrVerdict
	}
	s.p.line("VERDICT: PASSED: %s", r)
	return nil
}
