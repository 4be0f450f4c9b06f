package model

import (
	"fmt"
	"strings"
)

var (
	firstLabels = [maxNodes]string{"db1", "db2", "db3"}
	phaseNames  = []string{"off", "not judged yet", "fed", "being promoted", "open", "broken", "lost"}
)

// name of a transaction, as a trace shows it.
func (m *model) name(t int) string {
	switch m.Script[t] {
	case 'Q':
		return fmt.Sprintf("t%d (DROP TABLE IF EXISTS)", t+1)
	case 'P':
		return fmt.Sprintf("t%d (XA PREPARE)", t+1)
	case 'C':
		return fmt.Sprintf("t%d (XA COMMIT)", t+1)
	}
	return fmt.Sprintf("t%d", t+1)
}

func (m *model) names(set uint8) string {
	var of []string
	for t := range m.Script {
		if set&(1<<t) != 0 {
			of = append(of, m.name(t))
		}
	}
	if of == nil {
		return "nothing"
	}
	return strings.Join(of, ", ")
}

// log shows entries: [barrier/1 t1/1 raft/2], each with its term.
func (m *model) log(es []entry) string {
	of := make([]string, len(es))
	for k, e := range es {
		what := fmt.Sprintf("t%d", e.kind()+1)
		switch e.kind() {
		case kindBarrier:
			what = "barrier"
		case kindEmpty:
			what = "raft"
		}
		of[k] = fmt.Sprintf("%s/%d", what, e.term())
	}
	return "[" + strings.Join(of, " ") + "]"
}

// verb is a kind of move.
type verb uint8

const (
	doWrite verb = iota
	doPump
	doLose
	doReplicate
	doFsync
	doAck
	doApply
	doSecond
	doCrash
	doHost
	doStart
	doElect
	doDeaf
	doJudge
	doPromote
	doOpen
	doFence
	doFlush
	doPurge
	doSeed
	doDisk
	doReplace

	verbs = int(doReplace) + 1
)

// move is one step of the cluster: arg is the other node, or how much is kept.
type move struct {
	verb    verb
	at, arg int8
}

// text says what a move did, from a state to another.
func (m *model) text(v move, a, b *state) string {
	at := m.label[v.at]
	n, after := &a.nodes[v.at], &b.nodes[v.at]
	switch v.verb {
	case doWrite:
		return fmt.Sprintf("a client sends %s to %s: prepared, in the binary log, waits", m.names(b.sent&^a.sent), at)
	case doPump:
		return fmt.Sprintf("the daemon of %s reads %s and proposes it: entry %d of term %d", at,
			m.name(int(n.bin[n.proposed])), after.n, after.lead)
	case doLose:
		return fmt.Sprintf("the daemon of %s loses its connection and continues after %s", at, m.name(int(n.bin[n.proposed])))
	case doReplicate:
		text := fmt.Sprintf("%s gets the log of %s: %s", m.label[v.arg], at, m.log(after.entries()))
		if m.Fsync {
			text += ", not on its disk yet"
		}
		return text + m.commitText(a, b)
	case doFsync:
		return fmt.Sprintf("%s has its log on disk up to entry %d", at, after.fsynced) + m.commitText(a, b)
	case doAck:
		return fmt.Sprintf("%s acknowledges %s: committed in InnoDB, visible, clients are answered OK", at,
			m.names(txSet(n.bin[n.acked:after.acked])))
	case doApply, doSecond:
		if after.phase == unjudged {
			return fmt.Sprintf("the feed of %s lacks what mysqld needs: the log was purged", at)
		}
		text := fmt.Sprintf("%s is fed %s and executes it", at, m.names(after.executed()&^n.executed()))
		if v.verb == doSecond {
			text += ", out of order"
		}
		return text
	case doCrash:
		return fmt.Sprintf("mysqld of %s is killed%s", at, m.keptText(n, after))
	case doHost:
		text := fmt.Sprintf("the host of %s loses power%s", at, m.keptText(n, after))
		if after.n < n.n {
			text += fmt.Sprintf("; its log ends at entry %d now", after.n)
		}
		return text
	case doStart:
		text := "mysqld of %s starts: a new incarnation, read-only"
		if gained := after.effects() &^ n.effects(); gained != 0 {
			text += "; recovery from the old binary log commits " + m.names(gained)
		}
		return fmt.Sprintf(text, at)
	case doElect, doDeaf:
		text := fmt.Sprintf("%s is elected in term %d", at, b.term)
		if v.verb == doDeaf {
			text += "; the leader before is cut off and does not know"
		}
		return text + m.commitText(a, b)
	case doJudge:
		return fmt.Sprintf("%s is judged: %s", at, m.judgeText(n, after))
	case doPromote:
		return fmt.Sprintf("%s proposes its barrier: entry %d of term %d", at, after.n, after.serve) + m.commitText(a, b)
	case doOpen:
		return fmt.Sprintf("%s opens writes", at)
	case doFence:
		switch {
		case after.phase == off:
			return fmt.Sprintf("%s is fenced: mysqld is killed%s", at, m.keptText(n, after))
		case b.acked != a.acked:
			return fmt.Sprintf("%s is fenced with semi-sync off: who waited for %s is answered OK, mysqld goes on as a follower",
				at, m.names(b.acked&^a.acked))
		}
		return fmt.Sprintf("%s is fenced: no session waits, mysqld continues as a follower", at)
	case doFlush:
		return fmt.Sprintf("InnoDB's log of %s is flushed: durable index %d", at, after.durable)
	case doDisk:
		return fmt.Sprintf("the disk of %s is lost for good", at)
	case doReplace:
		return fmt.Sprintf("an empty node takes the place of %s, gets the log from entry %d on, and waits for its data", at,
			a.purged+1)
	case doPurge:
		return fmt.Sprintf("the raft logs are purged up to entry %d", b.purged)
	default:
		return fmt.Sprintf("%s is seeded from %s: %s", at, m.label[v.arg], m.names(after.effects()))
	}
}

func txSet(of []uint8) (set uint8) {
	for _, t := range of {
		set |= 1 << t
	}
	return set
}

func (m *model) commitText(a, b *state) string {
	if b.n <= a.n {
		return ""
	}
	return fmt.Sprintf("; committed up to entry %d", b.n)
}

func (m *model) keptText(n, after *node) string {
	text := ""
	if lost := n.effects() &^ after.effects(); lost != 0 {
		text = "; InnoDB had not flushed " + m.names(lost)
	}
	if gone := (n.executed() &^ after.executed()) & after.effects(); gone != 0 {
		text += "; no trace is left of " + m.names(gone)
	}
	if after.phase == off && len(n.waiters()) > 0 {
		if what := m.names(txSet(n.waiters())); m.broken(S5) {
			text += "; " + what + " stays in the binary log"
		} else {
			text += "; " + what + " goes with the binary log"
		}
	}
	return text
}

func (m *model) judgeText(n, after *node) string {
	switch {
	case after.phase == broken:
		return "its data does not belong, it is not used"
	case after.executed() != n.executed():
		return "good, and " + m.names(after.executed()&^n.executed()) + " is marked as executed"
	}
	return "good, it is fed"
}
