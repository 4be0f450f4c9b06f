package ledger

import (
	"fmt"

	"trireme/internal/base/mutant"
	"trireme/internal/mysql/gtid"
)

// Class is what S5 needs to know of a transaction in the log.
type Class uint8

const (
	Plain     Class = iota // leaves its GTID in InnoDB with its commit
	Traceless              // a single QUERY without XID, or an account statement: may have run and left no GTID
	XAPrepare              // XA PREPARE of Txn.XID
	XAEnd                  // XA COMMIT or XA ROLLBACK of Txn.XID
)

// Txn is one transaction of the committed log, or a run of plain ones of one entry.
type Txn struct {
	Index uint64     // raft index of the entry in which it ends
	GTIDs gtid.Range // one GTID, or for classPlain a run of them, in log order
	Class Class
	XID   string // of classXAPrepare and classXAEnd
	Bytes int64
	Heavy Heavy // part of it
}

// Judgement is the outcome of S5 for one start of a mysqld.
type Judgement struct {
	Plug     gtid.Set // to be marked as executed, by gtid_purged: they ran and left no trace
	Refeed   gtid.Set // missing XA PREPAREs which the feed brings first
	Local    gtid.Set // executed here, not in the log, harmless statements of this node's dead incarnations
	Errant   gtid.Set // executed here, never committed by Raft: the node must be seeded again
	Missing  gtid.Set // missing below something executed, and not explainable: the node must be seeded again
	Behind   bool     // Missing is the only defect, and the log no longer has it
	High     uint64   // index of the highest executed entry, 0 when none
	Problems []string
}

// Consistent reports whether mysqld may be plugged, fed and promoted.
func (j *Judgement) Consistent() bool {
	return mutant.S5Judge || j.Errant.Empty() && j.Missing.Empty()
}

// JudgeInput is what is known when a mysqld has started.
type JudgeInput struct {
	Executed  gtid.Set // gtid_executed
	Committed gtid.Set // every GTID of the log up to the read index, what was purged included
	Purged    gtid.Set // the part of Committed that is no longer in the log
	Base      gtid.Set // the part of Purged that never was in the log: an adopted cluster began with it
	PurgedTo  uint64   // index of the last entry that is no longer in the log
	Durable   uint64   // S8: everything at or below it is durably in InnoDB
	XARecover map[string]bool
	Inherited gtid.Set              // not meant for Raft, like Local: they came with another node's data
	Local     func(gtid.Range) bool // statements of this node's own that were never meant for Raft
}

// ScanFunc calls f for the transactions of the log in log order, at least from the first one that is not in known up to
// the read index.
type ScanFunc func(known gtid.Set, f func(Txn) error) error

// Judge compares what InnoDB holds with the committed log (S5).
func Judge(in JudgeInput, scan ScanFunc) (*Judgement, error) {
	j := &Judgement{}
	foreign := in.Executed.Subtract(in.Committed)
	j.Local.AddSet(foreign.Intersect(in.Inherited))
	for _, r := range foreign.Subtract(in.Inherited).Ranges() {
		if in.Local(r) {
			j.Local.AddRange(r)
		} else {
			j.Errant.AddRange(r)
		}
	}
	if lost := in.Committed.Subtract(in.Executed); !lost.Empty() {
		if err := j.explain(in, lost, scan); err != nil {
			return nil, err
		}
	}
	// All that is here is known to Raft, so it can be thrown away. Either nothing that the log still has ran here, or
	// this node was given up when a log came to its bound (BoundPoint): of what lies between its durable index and
	// where the log begins now, nothing tells a trace that a restart took, as of a finished XA PREPARE, from a hole.
	ran := in.Executed.Intersect(in.Committed)
	j.Behind = j.Errant.Empty() && !j.Missing.Empty() && in.Purged.ContainsSet(j.Missing) &&
		(in.PurgedTo > in.Durable || in.Purged.ContainsSet(ran))
	if !j.Errant.Empty() {
		j.Problems = append(j.Problems, fmt.Sprintf("executed here but never committed: %s", j.Errant.String()))
	}
	if !j.Missing.Empty() {
		j.Problems = append(j.Problems, fmt.Sprintf("missing below what is executed (entry %d), or no longer in the log: %s",
			j.High, j.Missing.String()))
	}
	return j, nil
}

// explain finds out of every lost transaction whether it ran, comes again with the feed, or cannot be had any more.
// What lies above the highest executed transaction is simply what the feed brings.
func (j *Judgement) explain(in JudgeInput, lost gtid.Set, scan ScanFunc) error {
	b := bench{in: in, open: map[string]int{}, claimed: map[string]bool{}}
	if err := scan(in.Executed.Union(in.Purged), b.take); err != nil {
		return err
	}
	j.High = b.highIndex
	for _, h := range b.held {
		below := h.seq < b.high || h.inside || h.Index <= in.Durable
		switch {
		case h.Class == XAPrepare:
			// Its trace is lost by any restart of a follower. Finished here, or alive here: plug. Otherwise it comes again,
			// wherever it lies: its locks still protect what it touches.
			if h.ended || h.alive {
				j.Plug.AddRange(h.GTIDs)
			} else if below {
				j.Refeed.AddRange(h.GTIDs)
			}
		case !below:
		case h.Class == Traceless, h.Index <= in.Durable:
			j.Plug.AddRange(h.GTIDs)
		default:
			j.Missing.AddRange(h.GTIDs)
		}
	}
	// What is purged cannot be fed. The log is purged below every data node's durable index and below unfinished XA, so
	// that it ran here: a follower that restarts has lost the GTIDs of finished XA PREPAREs, a leader those of
	// traceless statements.
	gone := lost.Subtract(b.seen)
	// What the cluster began with was stopped cleanly, so that it left every GTID: what is not there never was.
	base := gone.Intersect(in.Base)
	j.Missing.AddSet(base)
	gone = gone.Subtract(base)
	if in.PurgedTo <= in.Durable {
		j.Plug.AddSet(gone.Intersect(in.Purged))
		gone = gone.Subtract(in.Purged)
	}
	j.Missing.AddSet(gone)
	return nil
}

// bench is what the pass over the log collects: each lost transaction with its place in the log.
type bench struct {
	in        JudgeInput
	seq       int // place in the log, in scan order
	high      int // of the highest executed transaction
	highIndex uint64
	held      []heldTxn
	seen      gtid.Set
	open      map[string]int  // xid -> place in held of its lost XA PREPARE, not yet ended
	claimed   map[string]bool // xid: an end of it is not executed, so one in XA RECOVER is not of a later XA PREPARE
}

// heldTxn is a transaction of the log, or a part of a run, that is not executed here.
type heldTxn struct {
	Txn
	seq    int
	inside bool // a later transaction of the same run is executed
	ended  bool // XA PREPARE: its end is executed here
	alive  bool // XA PREPARE: it is in XA RECOVER
}

func (b *bench) take(t Txn) error {
	b.seq++
	if t.Class == XAEnd {
		// What is durable ran, whether it left its GTID or not (S8).
		executed := t.Index <= b.in.Durable || b.in.Executed.Contains(first(t.GTIDs))
		if at, ok := b.open[t.XID]; ok {
			b.held[at].ended = executed
			delete(b.open, t.XID)
		}
		if !executed {
			b.claimed[t.XID] = true
		}
	}
	_, ran := b.in.Executed.FirstOf(t.GTIDs)
	if ran {
		b.high, b.highIndex = b.seq, t.Index
	}
	for _, r := range splitMissing(b.in.Executed, t.GTIDs) {
		b.seen.AddRange(r)
		h := heldTxn{Txn: t, seq: b.seq}
		h.GTIDs = r
		// In a run of which a part is executed, what precedes an executed one is a hole, what follows all is the tail.
		h.inside = ran && !tailOf(b.in.Executed, t.GTIDs, r)
		if b.repeats(&h) {
			continue
		}
		if t.Class == XAPrepare {
			b.open[t.XID] = len(b.held)
			h.alive = b.in.XARecover[t.XID] && !b.claimed[t.XID]
		}
		b.held = append(b.held, h)
	}
	return nil
}

// repeats says that the held transaction before h stands for h too: both are plain, neither is durable, and nothing
// between them is executed. A long backlog then takes no room, and if something above is executed after all, one hole
// is enough to know it.
func (b *bench) repeats(h *heldTxn) bool {
	if len(b.held) == 0 || h.Class != Plain || h.inside || h.Index <= b.in.Durable {
		return false
	}
	last := &b.held[len(b.held)-1]
	return last.Class == Plain && !last.inside && last.Index > b.in.Durable && last.seq > b.high
}

func first(r gtid.Range) gtid.GTID { return gtid.GTID{SID: r.SID, GNO: r.First} }

// splitMissing returns the parts of r that are not in executed, in order.
func splitMissing(executed gtid.Set, r gtid.Range) []gtid.Range {
	if executed.ContainsRange(r) {
		return nil
	}
	if r.First == r.Last {
		return []gtid.Range{r}
	}
	var s gtid.Set
	s.AddRange(r)
	return s.Subtract(executed).Ranges()
}

// tailOf reports whether nothing of run after part is executed.
func tailOf(executed gtid.Set, run, part gtid.Range) bool {
	_, some := executed.FirstOf(gtid.Range{SID: run.SID, First: part.Last + 1, Last: run.Last})
	return !some
}
