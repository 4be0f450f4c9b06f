package lifecycle

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
)

// promoteLimit: a long backlog is applied before writes open, however long that takes.
const promoteLimit = 24 * time.Hour

// promotion is an attempt to have a mysqld take writes in a term.
type promotion struct {
	*Leader
	adopted map[mysqld.XID]bool // prepared XA transactions that are mysqld's own
	src     Stream              // of mysqld's binary log
	start   raftlog.Pos         // where that is read from
	format  []byte              // its FORMAT_DESCRIPTION event
	barrier uint64              // index of the entry with which this leadership begins
	applied time.Duration
}

// promotionSteps in this order keep S6.
var promotionSteps = []struct {
	name string // as an error of it is told
	do   func(*promotion, context.Context) error
}{
	{"adopting prepared XA transactions", (*promotion).adoptXA},
	{"making commits wait", (*promotion).beginLead},
	{"attaching to mysqld's binary log", (*promotion).attach},
	{"proposing the barrier", (*promotion).propose},
	{"committing the barrier", (*promotion).commit},
	{"reaching the barrier", (*promotion).apply},
	{"checking prepared XA transactions", (*promotion).checkAdopted},
	{"preparing mysqld for writes", (*promotion).prepare},
	{"opening writes", (*promotion).open},
}

// Promote makes mysqld the one that takes writes (S6): barrier committed, everything below it applied, which it was at
// the moment that is returned, settings verified, then writes open. Whatever fails on the way ends in a fence.
func (l *Leader) Promote(ctx context.Context) (applied time.Duration, err error) {
	ctx, cancel := l.lives.exec.WithTimeout(ctx, promoteLimit)
	defer cancel()
	p := &promotion{Leader: l}
	for _, step := range promotionSteps {
		if err := step.do(p, ctx); err != nil {
			err = fmt.Errorf("%s: %w", step.name, err)
			l.host.Fence("promotion failed: "+err.Error(), func(s *Status) bool { return s.promotionFailed(l) })
			return 0, err
		}
	}
	return p.applied, nil
}

func (p *promotion) adoptXA(ctx context.Context) (err error) {
	failpoint.Hit("promote.begin")
	p.adopted, err = p.life.AdoptXA(ctx)
	return err
}

func (p *promotion) beginLead(ctx context.Context) error { return p.life.BeginLead(ctx) }

func (p *promotion) attach(ctx context.Context) (err error) {
	failpoint.Hit("promote.semisync-on")
	p.src, p.start = p.life.Stream()
	p.format, err = p.src.Attach(ctx, p.start)
	return err
}

func (p *promotion) propose(ctx context.Context) (err error) {
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: p.lives.Node, Incarnation: p.life.Incarnation, Start: p.start,
		End: p.start}
	failpoint.Hit("promote.before-barrier")
	p.barrier, err = p.lives.Host.Raft().ProposeInTerm(ctx, p.term, append(raftlog.AppendMeta(nil, &m), p.format...))
	return err
}

// commit waits for the barrier. What mysqld logs is carried to Raft from here on.
func (p *promotion) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.host.Carry(p.life, p.src, p.term, p.life.CarryStream())
	if err := p.lives.awaitCommitted(ctx, p.barrier); err != nil {
		return err
	}
	failpoint.Hit("promote.after-barrier")
	if b := p.lives.Ledger.NewestBarrier(); b.Index != p.barrier || b.Term != p.term {
		return fmt.Errorf("%d of term %d was replaced by %d of term %d", p.barrier, p.term, b.Index, b.Term)
	}
	return nil
}

func (p *promotion) apply(ctx context.Context) error {
	err := p.life.ApplyAll(ctx, p.barrier)
	p.applied = p.lives.exec.Now()
	return err
}

func (p *promotion) checkAdopted(ctx context.Context) error {
	return p.life.CheckAdopted(ctx, p.adopted)
}

func (p *promotion) prepare(ctx context.Context) error {
	if err := p.life.PrepareWrites(ctx); err != nil {
		return err
	}
	return p.life.LimitTransactions(ctx, p.host.TransactionRefuse(), Always)
}

func (p *promotion) open(ctx context.Context) error {
	if err := failpoint.Err("promote.before-open"); err != nil {
		return err
	}
	return p.Open(ctx, ha.PhasePromoting)
}

// promotionFailed notes that a promotion did not work, and says whether it is still asked for: then its mysqld must not
// stay in the way.
func (s *Status) promotionFailed(l *Leader) bool {
	if s.phase != ha.PhasePromoting || s.term != l.term || s.life != l.life {
		return false
	}
	s.PromotionFailed()
	return true
}
