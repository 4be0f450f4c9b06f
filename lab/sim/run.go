package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"trireme/internal/core/consensus"
)

// Options shape a run. The zero value is the usual one: everything is drawn from the seed.
type Options struct {
	// Nodes is how many voters there are to begin with, Duration for how long faults go on (simulated time).
	Nodes    int
	Duration time.Duration
	// Top makes what runs above consensus on a node; nil: random proposals and reads.
	Top func(*Node) Top
	// Trace keeps what happens, for Result.Trace. It costs time.
	Trace bool

	broken broken
	force  bool // every run loses the majority
}

func (o *Options) newTop(n *Node) Top {
	if o.Top == nil {
		return newPlain(n)
	}
	return o.Top(n)
}

// Result is what came of a run.
type Result struct {
	Seed      uint64
	Counts    Counts
	Simulated time.Duration
	// Hash is the same for runs in which the same things happened.
	Hash      uint64
	Violation *Violation // nil: every promise was kept
	Trace     string     // with Options.Trace
}

// Run simulates one cluster. The error is ctx's.
func Run(ctx context.Context, seed uint64, o Options) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	return runPlan(ctx, drawPlan(seed, &o), o)
}

// newWorld makes the world of a schedule: all nodes are started, nothing has happened yet.
func newWorld(p plan, o Options) *World {
	w := &World{opts: o, plan: p, rnd: rand.New(rand.NewPCG(p.seed, 2)), hash: 14695981039346656037}
	w.check.init(w)
	w.net.base, w.net.spread = 100*time.Microsecond, 400*time.Microsecond
	if p.wide {
		w.net.base, w.net.spread = 15*time.Millisecond, 10*time.Millisecond
	}
	for range p.nodes {
		w.addNode(true)
	}
	w.check.commit = uint64(p.nodes) // the first membership is committed from the start
	for _, n := range w.nodes {
		n.start()
	}
	w.load.until = int64(quiet + p.length)
	w.At(quiet/2, w.startLoad)
	if o.broken.gone {
		w.At(quiet, w.slander)
	}
	for _, f := range p.faults {
		w.At(f.at, func() { w.begin(f) })
	}
	return w
}

// runPlan runs a schedule.
func runPlan(ctx context.Context, p plan, o Options) (Result, error) {
	w := newWorld(p, o)
	defer w.end()
	// In pieces, so that ctx can end it.
	for end := int64(quiet + p.length); w.now < end && !w.done; {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		w.runUntil(min(end, w.now+int64(time.Second)))
	}
	w.peace()
	return Result{Seed: p.seed, Counts: w.countsByName(), Simulated: time.Duration(w.now), Hash: w.hash,
		Violation: w.violation, Trace: w.traceText()}, nil
}

// end ends the tasks that still wait: each would keep the whole world.
func (w *World) end() {
	if w.sql == nil {
		return
	}
	for _, g := range w.sql.members {
		g.up = false
		g.stopTasks()
	}
}

// wellAgain is how long a cluster may take to be well again after the last fault: what hangs over from it (a lease
// given up for three election timeouts, a daemon that is started again after a second), a few elections, and what has
// to be sent again.
const wellAgain = 12 * electionTimeout

// patience is how long a cluster may take to be well again. With mysqld there is more to wait for: starts, judgements,
// copies, and the pauses between attempts to move leadership.
func (w *World) patience() time.Duration {
	if w.sql != nil {
		return 4*wellAgain + w.sql.force.patience()
	}
	return wellAgain
}

// peace ends all faults and waits until the cluster is well: a leader with a lease has committed something new, and
// every member has it.
func (w *World) peace() {
	if w.done {
		return
	}
	w.Tracef("all faults end")
	w.runUntil(w.now + int64(4*time.Second)) // those under way end by themselves
	for _, n := range w.nodes {
		n.disk.failing, n.disk.cutIn = "", 0
		n.start()
		n.resume()
	}
	for end := w.now + int64(w.patience()); w.now < end && !w.done; {
		w.runUntil(w.now + int64(electionTimeout/2))
		if w.well() {
			w.runUntil(w.now + int64(electionTimeout)) // members that were sent the last commit apply it
			if w.well() {
				w.finish()
				return
			}
		}
	}
	if !w.done {
		w.Violate("liveness", "%v after the last fault %s", w.patience(), w.illness())
	}
}

// well reports whether the cluster works, and gives it something to do if it seems to.
func (w *World) well() bool { return !w.done && w.illness() == "" }

func (w *World) illness() string {
	l := w.Leader()
	if l == nil {
		return "no node leads"
	}
	if !l.HoldsLease() {
		return "the leader has no lease"
	}
	if l.status.Transferee != 0 {
		return "leadership is being handed over"
	}
	before := w.counts[cAccepted]
	if _, ok := l.top.(*plain); ok {
		l.propose()
		w.runUntil(w.now + int64(electionTimeout/2))
		if w.counts[cAccepted] == before {
			return "a proposal was not accepted"
		}
	}
	if !l.up || l.status.Commit != l.status.LastIndex {
		return "not everything is committed"
	}
	for id := range l.status.Members {
		n := w.Node(id)
		if n.lost {
			continue
		}
		if !n.up || n.status.Applied < l.status.Commit || n.status.Role == consensus.Candidate {
			return "a member lags or is down"
		}
	}
	if w.sql != nil {
		return w.sql.illness()
	}
	return ""
}

func (w *World) finish() {
	l := w.Leader()
	for _, n := range w.nodes {
		if _, member := l.status.Members[n.ID]; member && n.up && !w.done {
			n.top.Finish()
		}
	}
}
