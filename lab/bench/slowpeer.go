package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/report"
	"trireme/lab/rivals"
	"trireme/lab/wan"
)

// Cases of slow-peer. A rate is that of all links of one replica.
const (
	peerHealthy = "healthy"
	peerFrozen  = "frozen"
	peerRate    = "link "
)

const peerSettles = 2 * time.Second // between a fault and the load, so that buffers are full

var slowPeerSuite = Suite{
	Name: "slow-peer", Title: "One replica is slow or frozen",
	About: "oltp_write_only while one of three hosts, a replica, is `healthy`, has links of little bandwidth, or is frozen (SIGSTOP to all its processes), in alternating blocks on one started system. " +
		"The cost is the mean of the differences between a block and the healthy one before it, with its 95 % interval. Catching up begins when the fault ends.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Threads, s.Systems, s.AllVariants = []int{16, 64}, []string{"semisync", "mgr-eventual", "mgr-after", "trireme"},
			false
		s.Cases, s.Rounds, s.Repeats, s.WarmupSeconds = []string{peerRate + "8Mbit", peerRate + "800kbit", peerFrozen}, 1,
			10, 2
		if quick {
			s.Threads, s.Systems, s.Repeats, s.Seconds = []int{64}, []string{"semisync", "mgr-eventual", "trireme"}, 3, 6
			s.Cases = []string{peerRate + "800kbit", peerFrozen}
		}
		return s
	},
	Check: func(s Settings) error {
		for _, c := range s.Cases {
			if _, err := peerFault(c); err != nil {
				return err
			}
		}
		return nil
	},
	Plan: func(s Settings) ([]Group, error) {
		if err := lookSysbench(); err != nil {
			return nil, err
		}
		cases := s.Cases
		s.Cases = nil
		return s.groups(func(g *Group, base Key) error {
			g.Prepare = prepareTables
			for _, base.Threads = range s.Threads {
				for i := range s.Repeats {
					base.Repeat = i + 1
					for _, base.Case = range append([]string{peerHealthy}, cases...) {
						k := base
						g.Cells = append(g.Cells, Cell{Key: k, Takes: s.takes() + peerSettles,
							Measure: func(ctx context.Context, b *Bed) (Record, error) {
								return slowPeer(ctx, b, k.Case, k.Threads)
							}})
					}
				}
			}
			return nil
		})
	},
	Blocks: func(r *Results) []report.Block {
		all := r.summaries()
		return []report.Block{r.costTable("case", peerHealthy, plainPeer), pivot(all, valTPS, "TPS"),
			pivot(all, valP99, "p99 ms"), pivot(all, valCatchUp, "Seconds until the replica had caught up")}
	},
}

// plainPeer is the case that a case is compared with.
func plainPeer(c string) string {
	if c == peerHealthy {
		return ""
	}
	return peerHealthy
}

// peerFault is the link that a case gives a replica; nil: none.
func peerFault(c string) (*wan.Link, error) {
	text, rated := strings.CutPrefix(c, peerRate)
	if !rated {
		if c == peerHealthy || c == peerFrozen {
			return nil, nil
		}
		return nil, fmt.Errorf("case %q: %s, %s, or %q and a rate such as 8Mbit", c, peerHealthy, peerFrozen, peerRate)
	}
	l := wan.Link{RTT: 100 * time.Microsecond}
	return &l, l.Rate.UnmarshalText([]byte(text))
}

// slowPeer loads the system while one replica is held up.
func slowPeer(ctx context.Context, b *Bed, c string, threads int) (rec Record, err error) {
	if b.Network() == nil && c != peerHealthy && c != peerFrozen {
		return rec, fmt.Errorf("%w: all nodes are on the loopback address, which cannot be slowed down; name a topology",
			rivals.ErrNotHere)
	}
	sys, err := operated(ctx, b)
	if err != nil {
		return rec, err
	}
	if _, err := sys.Settled(ctx); err != nil {
		return rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
		return rec, err
	}
	targets, err := b.Targets(rivals.Direct)
	if err != nil {
		return rec, err
	}
	undo, err := holdUp(ctx, b, sys, c, targets[0].Node)
	if err != nil {
		return rec, err
	}
	r, err := underLoad(ctx, b, targets, threads)
	ended := time.Now()
	if err = errors.Join(err, undo()); err != nil {
		return rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	if _, err := sys.Settled(ctx); err != nil {
		return rec, fmt.Errorf("%w: the replica does not come back: %w", errBroken, err)
	}
	if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
		return rec, err
	}
	rec.Values, rec.Series = r.values(), map[string][]float64{valTPS: r.TPS}
	rec.Values[valCatchUp] = time.Since(ended).Seconds()
	return rec, nil
}

// operated is breakable, for systems too that have a script of their operator's instead of a failover.
func operated(ctx context.Context, b *Bed) (rivals.Breakable, error) {
	if r, ok := b.Running.(rivals.Operated); ok {
		return r.Operate(ctx)
	}
	return breakable(ctx, b)
}

// holdUp makes the fault of a case on the last replica. undo ends it.
func holdUp(ctx context.Context, b *Bed, sys rivals.Breakable, c, leader string) (undo func() error, err error) {
	replicas := slices.DeleteFunc(slices.Clone(sys.Names()), func(name string) bool { return name == leader })
	name := replicas[len(replicas)-1]
	link, err := peerFault(c)
	switch {
	case err != nil:
		return nil, err
	case c == peerFrozen:
		if err := sys.Can(rivals.StopHost); err != nil {
			return nil, err
		}
		return func() error { return sys.Undo(context.WithoutCancel(ctx), rivals.StopHost, name) },
			sys.Do(ctx, rivals.StopHost, name)
	case link == nil:
		return func() error { return nil }, nil
	}
	for _, h := range b.Network().Hosts() {
		if h.Name != name {
			err = errors.Join(err, b.Network().SetLink(name, h.Name, *link))
		}
	}
	return b.Network().RestoreAll, err
}

func underLoad(ctx context.Context, b *Bed, targets []rivals.Target, threads int) (r LoadResult, err error) {
	if err := poll.Pause(ctx, peerSettles); err != nil {
		return r, err
	}
	load := b.Settings.load("")
	if err := warmUp(ctx, b, load, targets, threads); err != nil {
		return r, err
	}
	return load.run(ctx, targets, threads, time.Duration(b.Settings.Seconds)*time.Second)
}
