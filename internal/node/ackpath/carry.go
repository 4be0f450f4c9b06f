package ackpath

import (
	"context"
	"errors"
	"sync/atomic"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/dump"
)

// Stream is what mysqld writes: the dump of its binary log, dump.Source.
type Stream interface {
	Run(ctx context.Context, take func(dump.Payload) (more bool)) error
	Resume()
}

// Carry proposes what mysqld writes, in one term. It returns the error of the first proposal that is in no log
// (consensus.ErrNotLeader), or the stream's (Stream.Run). cancel ends ctx. Proposals are not waited for: as many are on
// their way as raft has room for. The stream and raft call back on the engine, and nothing there waits.
func (p *Path) Carry(ctx context.Context, cancel func(), src Stream, term uint64) error {
	p.host.CarryBegins()
	var refused atomic.Pointer[error] // what follows such a proposal must not be in a log
	done := func(_, _ uint64, err error) {
		if err != nil {
			refused.CompareAndSwap(nil, &err)
			cancel()
		}
	}
	raft := p.host.Raft()
	err := src.Run(ctx, func(x dump.Payload) (more bool) {
		if refused.Load() != nil {
			return false
		}
		p.host.Proposing(&x.Meta, x.Data)
		failpoint.Hit("source.before-propose")
		more = raft.Offer(term, x.Data, done, x.Release)
		failpoint.Hit("source.after-propose")
		if mutant.S1 {
			p.Acknowledge(term, &x.Meta)
		}
		if !more {
			p.host.WhenRoom(src.Resume)
		}
		return more
	})
	if why := refused.Load(); why != nil && errors.Is(err, context.Canceled) {
		return *why
	}
	return err
}
