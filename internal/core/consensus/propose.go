package consensus

import (
	"fmt"
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"trireme/internal/base/mutant"
)

// proposal is one entry on its way into the log. The caller waits on done, and may take it back until raft has claimed
// it; or it is told by refused.
type proposal struct {
	entry   *raftpb.Entry
	change  *raftpb.ConfChangeV2 // nil for data
	want    uint64               // the term it must be proposed in; 0 means any
	bytes   uint64               // held in the quota
	claimed atomic.Bool          // by the first of raft and a caller that gave up
	done    chan struct{}        // nil: nobody waits
	refused func(error)          // nil: nobody is told
	copied  func()               // see Offer; nil: nobody is told

	index, term uint64
	err         error
}

func (p *proposal) finish(index, term uint64, err error) {
	p.index, p.term, p.err = index, term, err
	if p.done != nil {
		close(p.done)
	}
	if err != nil && p.refused != nil {
		p.refused(err)
	}
}

// proposals follows entries from the caller to the commit index.
type proposals struct {
	quota    *quota
	waiting  []*proposal // not yet given to raft
	stepped  []*proposal // given to raft since the last Ready: they are the last entries of the next one
	inflight []inflight  // in the log, not committed; by index
}

type inflight struct{ index, bytes uint64 }

// stepProposals gives everything that waits to raft as one message, so that a peer gets one MsgApp for all of it. While
// leadership is being transferred raft takes no proposals: they wait until the transfer succeeds or is given up.
func (c *core) stepProposals() {
	p := &c.props
	if len(p.waiting) == 0 {
		return
	}
	if c.rn.BasicStatus().RaftState != raft.StateLeader {
		p.failWaiting(ErrNotLeader)
		return
	}
	batch, entries := p.claim(c.rn.BasicStatus().GetTerm(), c.validateChange)
	if len(batch) == 0 {
		return
	}
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(c.cfg.ID), Entries: entries}
	if err := c.rn.Step(m); err != nil {
		if bs := c.rn.BasicStatus(); bs.RaftState == raft.StateLeader && bs.LeadTransferee != 0 {
			for _, pr := range batch {
				pr.claimed.Store(false)
			}
			p.waiting = append(batch, p.waiting...)
			return
		}
		for _, pr := range batch {
			p.quota.release(pr.bytes)
			pr.finish(0, 0, ErrNotLeader)
		}
		return
	}
	for i, pr := range batch {
		if pr.change != nil && m.GetEntries()[i].GetType() != raftpb.EntryConfChangeV2 {
			// Raft put an empty entry in its place. That entry is in the log all the same and takes part in the count
			// below.
			pr.err = ErrConfChangePending
		}
	}
	p.stepped = append(p.stepped, batch...)
}

// claim takes what waits, except what its caller has given up or validate refuses.
func (p *proposals) claim(term uint64, validate func(*raftpb.ConfChangeV2) error) ([]*proposal, []*raftpb.Entry) {
	batch := make([]*proposal, 0, len(p.waiting))
	entries := make([]*raftpb.Entry, 0, len(p.waiting))
	for _, pr := range p.waiting {
		if !pr.claimed.CompareAndSwap(false, true) {
			continue // given up; the caller has released its bytes
		}
		if pr.want != 0 && pr.want != term && !mutant.S7 {
			p.quota.release(pr.bytes)
			pr.finish(0, 0, ErrNotLeader)
			continue
		}
		if pr.change != nil {
			if err := validate(pr.change); err != nil {
				pr.finish(0, 0, err)
				continue
			}
		}
		batch = append(batch, pr)
		entries = append(entries, pr.entry)
	}
	clear(p.waiting)
	p.waiting = p.waiting[:0]
	return batch, entries
}

func (p *proposals) failWaiting(err error) {
	for _, pr := range p.waiting {
		if pr.claimed.CompareAndSwap(false, true) {
			p.quota.release(pr.bytes)
			pr.finish(0, 0, err)
		}
	}
	clear(p.waiting)
	p.waiting = p.waiting[:0]
}

// accepted matches the proposals stepped since the last Ready with the new entries: they are the last of them.
func (p *proposals) accepted(entries []*raftpb.Entry) error {
	if len(p.stepped) == 0 {
		return nil
	}
	if len(entries) < len(p.stepped) {
		return fmt.Errorf("%w: %d proposals accepted, %d entries appended", ErrInvariant, len(p.stepped), len(entries))
	}
	for i, e := range entries[len(entries)-len(p.stepped):] {
		pr := p.stepped[i]
		if pr.err == nil && len(e.GetData()) != len(pr.entry.GetData()) {
			return fmt.Errorf("%w: entry %d holds %d bytes, %d were proposed", ErrInvariant, e.GetIndex(), len(e.GetData()),
				len(pr.entry.GetData()))
		}
		if pr.bytes > 0 {
			p.inflight = append(p.inflight, inflight{e.GetIndex(), pr.bytes})
		}
		pr.finish(e.GetIndex(), e.GetTerm(), pr.err)
		if own, taken := pr.entry.GetData(), e.GetData(); pr.copied != nil && len(own) > 0 && len(taken) > 0 &&
			&own[0] != &taken[0] {
			pr.copied()
		}
	}
	clear(p.stepped)
	p.stepped = p.stepped[:0]
	return nil
}

// committed gives back the bytes of what is committed.
func (p *proposals) committed(commit uint64) {
	n, bytes := 0, uint64(0)
	for n < len(p.inflight) && p.inflight[n].index <= commit {
		bytes += p.inflight[n].bytes
		n++
	}
	if n > 0 {
		p.inflight = slices.Delete(p.inflight, 0, n)
		p.quota.release(bytes)
	}
}

// lost is called when leadership is gone: another leader may or may not commit what is in flight, and it does not count
// any more.
func (p *proposals) lost() {
	bytes := uint64(0)
	for _, f := range p.inflight {
		bytes += f.bytes
	}
	p.inflight = p.inflight[:0]
	p.quota.release(bytes)
	p.failWaiting(ErrNotLeader)
}

// validateChange tries a membership change on a copy of the present membership: otherwise raft would panic on every
// member when the change is applied.
func (c *core) validateChange(cc *raftpb.ConfChangeV2) error {
	rs := c.rn.Status()
	ch := confchange.Changer{
		Tracker:   tracker.MakeProgressTracker(c.cfg.MaxInflightMsgs, c.cfg.MaxInflightBytes),
		LastIndex: c.lastIndex,
	}
	ch.Tracker.Config = rs.Config
	for id, pr := range rs.Progress {
		ch.Tracker.Progress[id] = &pr
	}
	var err error
	if cc.LeaveJoint() {
		_, _, err = ch.LeaveJoint()
	} else if autoLeave, joint := cc.EnterJoint(); joint {
		_, _, err = ch.EnterJoint(autoLeave, cc.GetChanges()...)
	} else {
		_, _, err = ch.Simple(cc.GetChanges()...)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidConfChange, err)
	}
	return nil
}

func newChangeProposal(cc *raftpb.ConfChangeV2) (*proposal, error) {
	data, err := proto.Marshal(cc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfChange, err)
	}
	e := &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}
	return &proposal{entry: e, change: cc, done: make(chan struct{})}, nil
}

// confStateOf is the membership of a raft status.
func confStateOf(rs raft.Status) *raftpb.ConfState {
	tr := tracker.ProgressTracker{Config: rs.Config}
	return tr.ConfState()
}

func progressOf(pr tracker.Progress) Progress {
	return Progress{
		Match:    pr.Match,
		Next:     pr.Next,
		Learner:  pr.IsLearner,
		Snapshot: pr.State == tracker.StateSnapshot,
		Paused:   pr.IsPaused(),
	}
}
