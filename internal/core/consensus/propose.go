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

// proposal is one entry on its way into the log. Who proposes may take it back until raft has claimed it.
type proposal struct {
	entry   *raftpb.Entry
	change  *raftpb.ConfChangeV2 // nil for data
	want    uint64               // the term it must be proposed in; 0 means any
	bytes   uint64
	counted bool        // in proposals.used
	claimed atomic.Bool // by the first of raft and a caller that gave up
	refused error       // though an entry in its place is in the log
	// done is called on the loop, once, with the outcome. It must not wait; nil: nobody is told.
	done   func(index, term uint64, err error)
	copied func() // see Offer; nil: nobody is told
}

// entryOverhead is what an entry costs besides its data, in every count of bytes.
const entryOverhead = 32

func newProposal(want uint64, data []byte) *proposal {
	return &proposal{entry: &raftpb.Entry{Data: data}, want: want, bytes: uint64(len(data)) + entryOverhead}
}

// proposals follows entries from the caller to the commit index. Those that come beyond the limit of what may be in
// flight wait for room, first come first served, but after what is offered (Offer): that counts at once, and stops by
// itself. One that is larger than the limit goes alone.
type proposals struct {
	limit    uint64
	used     atomic.Uint64 // bytes in flight; changed on the loop only
	crowded  bool          // some wait for room
	room     func()        // see WhenRoom
	waiting  []*proposal   // not yet given to raft
	stepped  []*proposal   // given to raft since the last Ready: they are the last entries of the next one
	inflight []inflight    // in the log, not committed; by index
}

type inflight struct{ index, bytes uint64 }

// count takes what is proposed for in flight.
func (p *proposals) count(pr *proposal) {
	if !pr.counted {
		pr.counted = true
		p.used.Add(pr.bytes)
	}
}

func (p *proposals) finish(pr *proposal, index, term uint64, err error) {
	if err != nil && pr.counted {
		p.used.Add(-pr.bytes)
	}
	if pr.done != nil {
		pr.done(index, term, err)
	}
}

// hasRoom reports whether more may be offered.
func (p *proposals) hasRoom() bool { return p.used.Load() < p.limit && !p.crowded }

// fits reports whether raft may have a proposal now.
func (p *proposals) fits(pr *proposal) bool {
	used := p.used.Load()
	return pr.counted || pr.bytes == 0 || !p.crowded && (used == 0 || used+pr.bytes <= p.limit)
}

// stepProposals gives everything that waits to raft as one message, so that a peer gets one MsgApp for all of it. While
// leadership is being transferred raft takes no proposals: they wait until the transfer succeeds or is given up.
func (c *core) stepProposals() {
	p := &c.props
	if len(p.waiting) == 0 {
		return
	}
	bs := c.rn.BasicStatus()
	if bs.RaftState != raft.StateLeader {
		p.failWaiting(ErrNotLeader)
		return
	}
	p.clean(bs.GetTerm())
	if bs.LeadTransferee != 0 {
		return
	}
	batch, entries := p.claim(c.validateChange)
	if len(batch) == 0 {
		return
	}
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(c.cfg.ID), Entries: entries}
	if err := c.rn.Step(m); err != nil {
		for _, pr := range batch {
			p.finish(pr, 0, 0, ErrNotLeader)
		}
		return
	}
	for i, pr := range batch {
		if pr.change != nil && m.GetEntries()[i].GetType() != raftpb.EntryConfChangeV2 {
			// Raft put an empty entry in its place. That entry is in the log all the same and takes part in the count
			// below.
			pr.refused = ErrConfChangePending
		}
	}
	p.stepped = append(p.stepped, batch...)
}

// clean takes out what its caller has given up, and what was meant for another term.
func (p *proposals) clean(term uint64) {
	p.waiting = slices.DeleteFunc(p.waiting, func(pr *proposal) bool {
		if pr.want == 0 || pr.want == term || mutant.S7 {
			return pr.claimed.Load()
		}
		if pr.claimed.CompareAndSwap(false, true) {
			p.finish(pr, 0, 0, ErrNotLeader)
		}
		return true
	})
	p.crowded = p.crowded && len(p.waiting) > 0
}

// claim takes what waits and has room, except what its caller gives up just now or validate refuses.
func (p *proposals) claim(validate func(*raftpb.ConfChangeV2) error) (batch []*proposal, entries []*raftpb.Entry) {
	kept := p.waiting[:0]
	p.crowded = false
	for i, pr := range p.waiting {
		if !p.fits(pr) {
			p.crowded = true
			kept = append(kept, pr)
			continue
		}
		if !pr.claimed.CompareAndSwap(false, true) {
			continue
		}
		if pr.change != nil {
			if err := validate(pr.change); err != nil {
				p.finish(pr, 0, 0, err)
				continue
			}
		}
		p.count(pr)
		if batch == nil {
			batch, entries = make([]*proposal, 0, len(p.waiting)-i), make([]*raftpb.Entry, 0, len(p.waiting)-i)
		}
		batch = append(batch, pr)
		entries = append(entries, pr.entry)
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
	return batch, entries
}

func (p *proposals) failWaiting(err error) {
	for _, pr := range p.waiting {
		if pr.claimed.CompareAndSwap(false, true) {
			p.finish(pr, 0, 0, err)
		}
	}
	clear(p.waiting)
	p.waiting, p.crowded = p.waiting[:0], false
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
		if pr.refused == nil && len(e.GetData()) != len(pr.entry.GetData()) {
			return fmt.Errorf("%w: entry %d holds %d bytes, %d were proposed", ErrInvariant, e.GetIndex(), len(e.GetData()),
				len(pr.entry.GetData()))
		}
		if pr.bytes > 0 {
			p.inflight = append(p.inflight, inflight{e.GetIndex(), pr.bytes})
		}
		p.finish(pr, e.GetIndex(), e.GetTerm(), pr.refused)
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
		p.used.Add(-bytes)
	}
}

// tellRoom makes WhenRoom's call.
func (p *proposals) tellRoom() {
	if f := p.room; f != nil && p.hasRoom() {
		p.room = nil
		f()
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
	p.used.Add(-bytes)
	p.failWaiting(ErrNotLeader)
}

// validateChange tries a membership change on a copy of the present membership: otherwise raft would panic on every
// member when the change is applied.
func (c *core) validateChange(cc *raftpb.ConfChangeV2) error {
	rs := c.rn.Status()
	ch := confChanger{confchange.Changer{LastIndex: c.lastIndex,
		Tracker: tracker.MakeProgressTracker(c.cfg.MaxInflightMsgs, c.cfg.MaxInflightBytes)}}
	ch.Tracker.Config = rs.Config
	for id, pr := range rs.Progress {
		ch.Tracker.Progress[id] = &pr
	}
	if err := ch.apply(cc); err != nil {
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
	return &proposal{entry: e, change: cc}, nil
}
