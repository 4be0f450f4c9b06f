package alone

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/nbio"
	"trireme/internal/pki"
	"trireme/internal/router"
	"trireme/internal/systemd"
)

const (
	confirmPatience = time.Second // for the leader's answer whether it still leads
	confirmAtOnce   = 2           // questions to leaders that are under way
	leastPause      = 50 * time.Millisecond
	mostPause       = 2 * time.Second // between two attempts to follow a node
	checkInterval   = 100 * time.Millisecond
)

// Run routes until ctx ends. It returns at once when it cannot listen.
func Run(ctx context.Context, cfg config.Alone, log *slog.Logger) error {
	nbio.LimitProcs()
	ca, err := os.ReadFile(cfg.CA)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ca: %s does not exist; copy tls/ca.pem of any node there", cfg.CA)
	}
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	trust, err := pki.ClientTLS(ca)
	if err != nil {
		return fmt.Errorf("ca: %s: %w", cfg.CA, err)
	}
	f := &follower{trust: trust, log: log, sources: map[string]*source{}, asking: make(chan struct{}, confirmAtOnce),
		outcomes: make(chan struct{}, outcomesAtOnce)}
	address := func(port int) string { return net.JoinHostPort(cfg.Bind, strconv.Itoa(port)) }
	rc := router.Config{RWListen: address(cfg.RWPort), ROListen: address(cfg.ROPort), HoldTimeout: cfg.HoldTimeout.Std(),
		MaxConns: cfg.MaxConns, Confirm: f.confirm, Logger: log}
	if rc.Limits.Balancers, err = cfg.BalancerNets(); err != nil {
		return fmt.Errorf("router.balancers: %w", err)
	}
	rc.ReplayReads = cfg.Replay == config.ReplayReads
	rc.RWSocket, rc.ROSocket = cfg.RWSocket, cfg.ROSocket
	rc.Limits.Conns, rc.Limits.Rate = cfg.MaxConnsPerAddress, cfg.MaxConnRate
	if cfg.Sessions == config.SessionsCarry {
		rc.Sessions, rc.Outcomes, rc.Cluster = true, f, f
		if rc.TLS, err = certificate(cfg.TLSCert, cfg.TLSKey); err != nil {
			return err
		}
	}
	f.router = router.New(rc)
	if err := f.router.Start(); err != nil {
		return err
	}
	log.Info("router listens", "read_write", f.router.RWAddr(), "read_only", f.router.ROAddr())
	manager := systemd.FromEnvironment()
	manager.Ready("listens on " + f.router.RWAddr() + " and " + f.router.ROAddr())
	f.run(ctx, cfg.Nodes)
	manager.Stopping("ends its connections")
	return f.router.Close()
}

// follower keeps the router at the view that counts.
type follower struct {
	trust    *tls.Config
	log      *slog.Logger
	router   *router.Router
	asking   chan struct{}
	outcomes chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex
	sources map[string]*source // by API address
	holding bool
	nodes   []api.RouteNode // of the last view that counted
	apply   sync.Mutex      // SetView in the order of decisions
}

// source is a node that is followed.
type source struct {
	client *api.Client
	heard  heard // a zero time: nothing that may be used
}

func (f *follower) run(ctx context.Context, nodes []string) {
	for _, addr := range nodes {
		f.follow(ctx, addr)
	}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.decide()
		case <-ctx.Done():
			f.wg.Wait()
			return
		}
	}
}

// follow begins to follow a node unless it is followed already.
func (f *follower) follow(ctx context.Context, addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sources[addr] != nil {
		return
	}
	s := &source{client: api.NewClient("https://"+addr, "", f.trust)}
	f.sources[addr] = s
	f.wg.Go(func() {
		defer s.client.Close()
		f.watch(ctx, addr, s)
	})
}

// watch follows one node until ctx ends.
func (f *follower) watch(ctx context.Context, addr string, s *source) {
	pause, told := leastPause, false
	for ctx.Err() == nil {
		err := s.client.WatchRoute(ctx, func(v api.RouteView) {
			if told {
				f.log.Info("a node answers", "node", v.Node, "api", addr)
			}
			pause, told = leastPause, false
			f.hear(ctx, s, v)
		})
		f.mu.Lock()
		s.heard = heard{} // its daemon has ended or hangs: what it said last is nobody's word any more
		f.mu.Unlock()
		f.decide()
		if ctx.Err() == nil && !told {
			f.log.Warn("a node does not answer", "api", addr, "error", err)
			told = true
		}
		wait(ctx, pause)
		pause = min(2*pause, mostPause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// hear takes a node's view, and follows nodes that it tells of.
func (f *follower) hear(ctx context.Context, s *source, v api.RouteView) {
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
			f.follow(ctx, n.API)
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
	best, found := choose(all, time.Now())
	was := f.holding
	f.holding = !found
	if found {
		f.nodes = best.Nodes
	}
	f.mu.Unlock()
	if !found {
		if !was {
			f.log.Warn("no node answers: new connections wait", "nodes", len(all))
		}
		f.router.SetView(holding())
		return
	}
	if was {
		f.log.Info("nodes answer", "cluster", best.Cluster, "term", best.Term)
	}
	f.router.SetView(routes(best))
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

// clientOfLocked finds a node by what it says its name is, and else by the address that others know.
func (f *follower) clientOfLocked(name string) *api.Client {
	for _, s := range f.sources {
		if s.heard.view.Node == name {
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
