package node

import (
	"context"
	"errors"
	"fmt"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
)

// promote makes this node's mysqld the one that takes writes in term (S6): barrier committed, everything below it
// applied, settings verified, then writes open. Whatever fails on the way ends in a fence.
func (n *Node) promote(ctx context.Context, l *lifecycle.Life, term uint64) {
	ctx, cancel := context.WithTimeout(ctx, promoteLimit)
	defer cancel()
	t := n.beginTakeover(term, l.Incarnation)
	err := n.promoteLife(ctx, l, term, t)
	if err == nil {
		t.opened = now()
		n.updateVIPSoon()
		n.task(func(ctx context.Context) { n.reportTakeover(ctx, t) })
		n.startEvents(ctx, l)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.lives.Status(); s.Phase() == ha.PhasePromoting && s.Term() == term && s.Life() == l {
		// Still asked for, but it did not work: a mysqld that cannot be promoted must not stay in the way.
		n.lives.Change((*lifecycle.Status).PromotionFailed)
		n.fenceLocked("promotion failed: " + err.Error())
	}
}

// promotion is an attempt to have a mysqld take writes in a term.
type promotion struct {
	n    *Node
	l    *lifecycle.Life
	term uint64
	t    *takeover // for the report

	adopted map[mysqld.XID]bool // prepared XA transactions that are mysqld's own
	src     lifecycle.Stream    // of mysqld's binary log
	start   raftlog.Pos         // where that is read from
	format  []byte              // its FORMAT_DESCRIPTION event
	barrier uint64              // index of the entry with which this leadership begins
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

// promoteLife takes the steps. It notes in t when mysqld had applied everything.
func (n *Node) promoteLife(ctx context.Context, l *lifecycle.Life, term uint64, t *takeover) error {
	p := &promotion{n: n, l: l, term: term, t: t}
	for _, step := range promotionSteps {
		if err := step.do(p, ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (p *promotion) adoptXA(ctx context.Context) (err error) {
	failpoint.Hit("promote.begin")
	p.adopted, err = p.l.AdoptXA(ctx)
	return err
}

func (p *promotion) beginLead(ctx context.Context) error { return p.l.BeginLead(ctx) }

func (p *promotion) attach(ctx context.Context) (err error) {
	failpoint.Hit("promote.semisync-on")
	p.src, p.start = p.l.Stream()
	p.format, err = p.src.Attach(ctx, p.start)
	return err
}

func (p *promotion) propose(ctx context.Context) (err error) {
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: uint16(p.n.id.ID), Incarnation: p.l.Incarnation, Start: p.start,
		End: p.start}
	failpoint.Hit("promote.before-barrier")
	p.barrier, err = p.n.cons.ProposeInTerm(ctx, p.term, append(raftlog.AppendMeta(nil, &m), p.format...))
	return err
}

// commit waits for the barrier. What mysqld logs is carried to Raft from here on.
func (p *promotion) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ended := p.l.CarryStream()
	p.n.Go(func(context.Context) {
		defer ended()
		p.n.pump(p.l, p.src, p.term)
	})
	if err := p.n.led.Await(ctx, p.barrier); err != nil {
		return err
	}
	failpoint.Hit("promote.after-barrier")
	if b := p.n.led.NewestBarrier(); b.Index != p.barrier || b.Term != p.term {
		return fmt.Errorf("%d of term %d was replaced by %d of term %d", p.barrier, p.term, b.Index, b.Term)
	}
	return nil
}

func (p *promotion) apply(ctx context.Context) error {
	err := p.l.ApplyAll(ctx, p.barrier)
	p.t.applied = now()
	return err
}

func (p *promotion) checkAdopted(ctx context.Context) error { return p.l.CheckAdopted(ctx, p.adopted) }

func (p *promotion) prepare(ctx context.Context) error {
	if err := p.l.PrepareWrites(ctx); err != nil {
		return err
	}
	p.n.mu.Lock()
	refuse := p.n.Settings().TransactionRefuse
	p.n.mu.Unlock()
	return p.l.LimitTransactions(ctx, refuse, lifecycle.Always)
}

func (p *promotion) open(ctx context.Context) error {
	if err := failpoint.Err("promote.before-open"); err != nil {
		return err
	}
	return p.n.leader(p.l, p.term).Open(ctx, ha.PhasePromoting)
}

// pump carries what mysqld writes to Raft until the incarnation, the term or the node ends.
func (n *Node) pump(l *lifecycle.Life, src lifecycle.Stream, term uint64) {
	n.load.drop()
	err := n.carry(src, term)
	switch {
	case n.ctx.Err() != nil, errors.Is(err, dump.ErrClosed):
		return
	case errors.Is(err, consensus.ErrNotLeader):
		n.wakeLoop() // the loop fences: what was dropped makes the life undrained
		return
	case errors.Is(err, dump.ErrInvariant):
		err = fmt.Errorf("the stream of its binary log is broken: %w", err)
		n.log.Error("mysqld is killed, to be judged again", whyStopped(err)...) // after a full disk: docs/mysql.md
		n.restartServer(err.Error())
		return
	}
	n.log.Error("the stream of mysqld's binary log ended; fencing", "err", err, "term", term)
	l.Stall("its binary log cannot be read: " + err.Error())
	n.wakeLoop()
}

// carry proposes what mysqld writes, on the engine, and says why it does not go on.
func (n *Node) carry(src lifecycle.Stream, term uint64) error {
	ctx, cancel := context.WithCancelCause(n.ctx)
	defer cancel(nil)
	over := false // what follows a proposal that is in no log must not be in one
	return src.Run(ctx, n.engine, func(p dump.Payload) (more bool) {
		if over {
			return false
		}
		n.load.begin(&p.Meta, p.Data)
		failpoint.Hit("source.before-propose")
		more = n.cons.Offer(term, p.Data, func(err error) {
			over = true
			cancel(err)
		}, p.Release)
		failpoint.Hit("source.after-propose")
		if mutant.S1 {
			n.acks.Acknowledge(term, &p.Meta)
		}
		if !more {
			n.cons.WhenRoom(func() { n.engine.Do(src.Resume) })
		}
		return more
	})
}
