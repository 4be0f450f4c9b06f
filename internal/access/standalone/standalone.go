package standalone

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/coalesce"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/base/systemd"
)

const (
	confirmPatience = time.Second // for the leader's answer whether it still leads
	confirmAtOnce   = 2           // questions to leaders that are under way
	leastPause      = 50 * time.Millisecond
	mostPause       = 2 * time.Second // between two attempts to follow a node
	checkInterval   = 100 * time.Millisecond
)

// Run routes until ctx ends. It returns at once when it cannot listen.
func Run(ctx context.Context, cfg config.Standalone, log *slog.Logger) error {
	files, err := readFiles(cfg)
	if err != nil {
		return err
	}
	rc, err := router.FromSettings(cfg.Router)
	if err != nil {
		return err
	}
	rc.TLS = files.own
	f := newFollower(ctx, files.trust, log)
	f.token = files.token
	f.patience = everywherePatience(rc.ConsistencyTimeout)
	rc.Logger, rc.Confirm, rc.Outcomes, rc.Cluster, rc.Reads, rc.OnQuiet = log, f.confirm, f, f, f, f.wakeLoop
	f.router = router.New(rc)
	if err := f.router.Start(); err != nil {
		return err
	}
	log.Info("router listens", "read_write", rc.RWListen, "read_only", rc.ROListen, "splitting", rc.SplitListen)
	manager := systemd.FromEnvironment()
	manager.Ready("listens on " + rc.RWListen + " and " + rc.ROListen)
	f.run(cfg.Nodes)
	manager.Stopping("ends its connections")
	err = f.router.Close()
	f.points.Wait() // sessions have ended: there are no more questions
	f.questions.Wait()
	return err
}

// follower keeps the router at the view that counts.
type follower struct {
	ctx      context.Context // ends with the router
	trust    *tls.Config
	token    string // shown to nodes; empty: none
	name     string // this process's
	log      *slog.Logger
	router   *router.Router
	quiet    chan struct{} // something may have come to rest
	asking   chan struct{}
	outcomes chan struct{}
	patience time.Duration // of one question whether all servers have applied something
	// answerWait is for one node's answer to what is asked for all sessions, besides the time that it is asked to wait;
	// another one is asked then.
	answerWait time.Duration
	wg         sync.WaitGroup
	questions  sync.WaitGroup                                        // waits, for all sessions; and what is told
	points     coalesce.Group[api.ReadIndexQuery, api.ReadIndexView] // what is committed; who counts as live

	applied coalesce.Waits[string] // by a server, or allNodes

	mu      sync.Mutex
	sources map[string]*source // by API address
	holding bool
	held    held
	last    api.RouteView   // the last view that counted
	nodes   []api.RouteNode // of it
	logName string          // of the same: of what cluster and generation
	apply   sync.Mutex      // SetView in the order of decisions
}

func newFollower(ctx context.Context, trust *tls.Config, log *slog.Logger) *follower {
	f := &follower{ctx: ctx, trust: trust, name: rand.Text(), log: log, quiet: make(chan struct{}, 1),
		patience: mostPatience, answerWait: time.Second, sources: map[string]*source{},
		asking: make(chan struct{}, confirmAtOnce), outcomes: make(chan struct{}, outcomesAtOnce)}
	f.applied.Ask = f.askApplied
	f.applied.Go = func(run func(context.Context)) { f.questions.Go(func() { run(f.ctx) }) }
	return f
}

// source is a node that is followed.
type source struct {
	client *api.Client
	heard  heard // a zero time: nothing that may be used
}

func (f *follower) run(nodes []string) {
	for _, addr := range nodes {
		f.follow(addr)
	}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.decide()
		case <-f.quiet:
			f.tellQuiet()
		case <-f.ctx.Done():
			f.wg.Wait()
			return
		}
	}
}

// follow begins to follow a node unless it is followed already.
func (f *follower) follow(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sources[addr] != nil {
		return
	}
	s := &source{client: api.NewClient("https://"+addr, f.token, f.trust).ForRouter(f.name)}
	f.sources[addr] = s
	f.wg.Go(func() {
		defer s.client.Close()
		f.watch(addr, s)
	})
}

// watch follows one node as long as the router runs.
func (f *follower) watch(addr string, s *source) {
	pause, told := leastPause, false
	for f.ctx.Err() == nil {
		began := time.Now()
		err := s.client.WatchRoute(f.ctx, func(v api.RouteView) {
			if told {
				f.log.Info("a node answers", "node", v.Node, "api", addr)
			}
			told = false
			f.hear(s, v)
		})
		if time.Since(began) > mostPause { // one that answers and hangs up each time is not asked without a pause
			pause = leastPause
		}
		f.mu.Lock()
		s.heard = heard{} // its daemon has ended or hangs: what it said last no longer counts
		f.mu.Unlock()
		f.decide()
		if f.ctx.Err() == nil && !told {
			f.log.Warn("a node does not answer", "api", addr, "error", err)
			told = true
		}
		_ = poll.Pause(f.ctx, pause)
		pause = min(2*pause, mostPause)
	}
}

// hear takes a node's view, and follows nodes that it tells of.
func (f *follower) hear(s *source, v api.RouteView) {
	f.mu.Lock()
	s.heard = heard{v, time.Now()}
	reached := map[string]bool{} // names of nodes that are followed, by whatever address
	for _, other := range f.sources {
		if !other.heard.at.IsZero() {
			reached[other.heard.view.Node] = true
		}
	}
	f.mu.Unlock()
	for _, n := range v.Nodes {
		if !reached[n.Name] && n.API != "" {
			f.follow(n.API)
		}
	}
	f.decide()
}

// decide brings the router to the view that counts now.
func (f *follower) decide() {
	f.apply.Lock()
	defer f.apply.Unlock()
	f.mu.Lock()
	all := make([]heard, 0, len(f.sources))
	for _, s := range f.sources {
		all = append(all, s.heard)
	}
	best, found := choose(all, f.last, time.Now())
	was := f.holding
	f.holding = !found
	if found {
		f.last, f.nodes, f.logName = best.view, best.view.Nodes, logOf(best.view)
	}
	f.holdForLocked(best.view)
	f.mu.Unlock()
	if !found {
		if !was {
			f.log.Warn("no node answers: new connections wait", "nodes", len(all))
		}
		f.router.SetView(holding())
		return
	}
	if was {
		f.log.Info("nodes answer", "cluster", best.view.Cluster, "term", best.view.Term)
	}
	f.router.SetLags(lags(best, time.Now()))
	f.router.SetProofs(best.view.Proofs)
	f.router.SetView(routes(best.view))
	f.tellQuiet()
}

// confirm asks a leader whether it takes writes in the epoch meant.
func (f *follower) confirm(ctx context.Context, t router.Target) error {
	_, err := f.serves(ctx, t)
	return err
}

func (f *follower) serves(ctx context.Context, t router.Target) (index uint64, err error) {
	f.mu.Lock()
	client := f.clientOfLocked(t.Name)
	f.mu.Unlock()
	if client == nil {
		return 0, fmt.Errorf("%s is not followed", t.Name)
	}
	select {
	case f.asking <- struct{}{}:
		defer func() { <-f.asking }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	return client.Serves(ctx, t.Epoch)
}

// clientOfLocked finds a node by the name that it reports; if no name matches, by the address that other nodes know. It
// skips a node of the same name that a force-quorum has removed.
func (f *follower) clientOfLocked(name string) *api.Client {
	for _, s := range f.sources {
		if v := s.heard.view; v.Node == name && logOf(v) == f.logName && !f.last.Disowns(v) {
			return s.client
		}
	}
	for _, n := range f.nodes {
		if s := f.sources[n.API]; n.Name == name && s != nil {
			return s.client
		}
	}
	return nil
}
