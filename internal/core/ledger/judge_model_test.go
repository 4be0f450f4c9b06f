package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trireme/internal/mysql/gtid"
)

// The model: a cluster's committed log, and the InnoDB of one node (node 1) through several lives, as leader and as
// follower. At each death it forgets what a real one forgets (a shorter prefix; the GTIDs of statements without a
// trace, of a leader; every XA PREPARE of this life and its locks, of a follower). Then it is judged and fed, and must
// end with the log: nothing twice, nothing lost, nothing in another order than its XA locks allow.

// modelTxn is one transaction of the model's log.
type modelTxn struct {
	id    gtid.GTID
	index uint64
	class Class
	xid   string
	data  bool // changes rows or tables, so it must take effect exactly once
}

// effect is something that InnoDB holds, in the order in which it came to hold it.
type effect struct {
	place    int  // in the log
	trace    bool // its GTID is in gtid_executed
	life     int  // in which it ran
	asLeader bool
}

type modelDB struct {
	effects  []effect       // XA COMMIT and ROLLBACK are effects, XA PREPARE is one while it is prepared or ended
	prepared map[string]int // xid -> place of its XA PREPARE
	executed gtid.Set
	local    gtid.Set
}

type model struct {
	t       *rapid.T
	log     []modelTxn
	index   uint64
	gnos    map[gtid.SID]int64
	xids    map[string]bool // prepared in the log and not ended
	db      modelDB
	life    int
	led     map[uint64]bool
	durable uint64
	trace   []string
}

func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.trace {
		m.t.Log(line)
	}
	m.t.Fatalf(format, args...)
}

// write appends one committed transaction of a leader's incarnation.
func (m *model) write(sid gtid.SID) {
	if rapid.IntRange(0, 9).Draw(m.t, "tag") == 0 {
		sid.Tag = "tag"
	}
	if len(m.log) == 0 || rapid.IntRange(0, 2).Draw(m.t, "new entry") > 0 {
		m.index++
	}
	m.gnos[sid]++
	x := modelTxn{id: gtid.GTID{SID: sid, GNO: m.gnos[sid]}, index: m.index, data: true}
	switch rapid.IntRange(0, 9).Draw(m.t, "class") {
	case 0, 1:
		x.class, x.data = Traceless, false
	case 2, 3:
		xid := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(m.t, "xid")
		if x.class, x.xid = XAPrepare, xid; m.xids[xid] {
			x.class = XAEnd
		}
		m.xids[xid] = x.class == XAPrepare
	}
	m.log = append(m.log, x)
}

// execute runs the transaction at a place of the log.
func (m *model) execute(place int, asLeader bool) {
	x := m.log[place]
	if m.db.executed.Contains(x.id) {
		return // skipped by its GTID
	}
	for _, e := range m.db.effects {
		if e.place == place && x.data {
			m.fail("life %d: %v runs a second time", m.life, x.id)
		}
		// A statement that did nothing does nothing again, unless something else happened in between.
		if e.place > place && m.log[e.place].data && x.class != XAPrepare {
			m.fail("life %d: %v runs after %v, which follows it in the log", m.life, x.id, m.log[e.place].id)
		}
	}
	switch x.class {
	case XAPrepare:
		if _, twice := m.db.prepared[x.xid]; twice {
			m.fail("life %d: %v: XAER_DUPID %s", m.life, x.id, x.xid)
		}
		m.db.prepared[x.xid] = place
	case XAEnd:
		if _, there := m.db.prepared[x.xid]; !there {
			m.fail("life %d: %v: XAER_NOTA %s", m.life, x.id, x.xid)
		}
		delete(m.db.prepared, x.xid)
	}
	m.db.effects = append(m.db.effects, effect{place: place, trace: true, life: m.life, asLeader: asLeader})
	m.db.executed.Add(x.id)
}

// lead is a life as leader: all older entries are applied, then new ones come from this node.
func (m *model) lead() {
	for place := range m.log {
		m.execute(place, false)
	}
	m.led[uint64(m.life)] = true
	m.index++ // the barrier
	// What was run locally in this life stands at the beginning of its binary log, and so it comes to be replicated.
	mine := testSID(1, uint64(m.life))
	for g := int64(1); m.db.local.Contains(gtid.GTID{SID: mine, GNO: g}); g++ {
		id := gtid.GTID{SID: mine, GNO: g}
		m.db.local = m.db.local.Subtract(gtid.SetOf(id))
		m.log = append(m.log, modelTxn{id: id, index: m.index, class: Traceless})
		m.gnos[mine] = g
		m.execute(len(m.log)-1, true)
	}
	for range rapid.IntRange(0, 15).Draw(m.t, "writes as leader") {
		m.write(mine)
		m.execute(len(m.log)-1, true)
		m.maybeDurable()
	}
}

// follow is a life as follower: another node writes, this one is fed, perhaps not to the end.
func (m *model) follow() {
	m.index++
	for range rapid.IntRange(0, 15).Draw(m.t, "writes of another leader") {
		m.write(testSID(2, uint64(m.life)))
	}
	if !m.led[uint64(m.life)] && rapid.IntRange(0, 3).Draw(m.t, "local statement") == 0 {
		m.db.local.Add(gtid.GTID{SID: testSID(1, uint64(m.life)), GNO: 1})
	}
	for place := range rapid.IntRange(0, len(m.log)).Draw(m.t, "fed up to") {
		m.execute(place, false)
		m.maybeDurable()
	}
}

// maybeDurable is the flush barrier of S8: everything up to an index has its GTID, then InnoDB is flushed.
func (m *model) maybeDurable() {
	if rapid.IntRange(0, 9).Draw(m.t, "flush") > 0 {
		return
	}
	applied := m.index
	for _, x := range m.log {
		if !m.db.executed.Contains(x.id) {
			applied = x.index - 1
			break
		}
	}
	m.durable = max(m.durable, applied)
}

// die is SIGKILL or a power loss, and the start that follows, with the binary log deleted.
func (m *model) die() {
	db := &m.db
	// A shorter prefix: the last effects of this life are undone, as far as they are not known to be durable.
	for range rapid.IntRange(0, 4).Draw(m.t, "rolled back") {
		n := len(db.effects)
		if n == 0 || db.effects[n-1].life != m.life || m.log[db.effects[n-1].place].index <= m.durable {
			break
		}
		m.undo(db.effects[n-1])
		db.effects = db.effects[:n-1]
	}
	// A rotation of the binary log had saved the GTIDs of what came before it.
	rotated := rapid.IntRange(0, len(m.log)).Draw(m.t, "rotated at")
	kept := db.effects[:0]
	for _, e := range db.effects {
		x := m.log[e.place]
		switch {
		case e.life != m.life:
		case x.class == Traceless && e.asLeader && e.place >= rotated && rapid.IntRange(0, 3).Draw(m.t, "saved") > 0:
			e.trace = false
			db.executed = db.executed.Subtract(gtid.SetOf(x.id))
		case x.class == XAPrepare && !e.asLeader:
			e.trace = false
			db.executed = db.executed.Subtract(gtid.SetOf(x.id))
			if at, open := db.prepared[x.xid]; open && at == e.place {
				delete(db.prepared, x.xid)
				m.note("life %d: XA %s of %v is gone", m.life, x.xid, x.id)
				continue // its changes are gone too
			}
		}
		kept = append(kept, e)
	}
	db.effects = kept
	m.note("life %d ends: executed %s, prepared %v, durable %d", m.life, db.executed.String(), db.prepared, m.durable)
}

func (m *model) undo(e effect) {
	x := m.log[e.place]
	m.db.executed = m.db.executed.Subtract(gtid.SetOf(x.id))
	switch x.class {
	case XAPrepare:
		delete(m.db.prepared, x.xid)
	case XAEnd:
		// The XA transaction is prepared again: find its XA PREPARE.
		for place := e.place - 1; place >= 0; place-- {
			if p := m.log[place]; p.class == XAPrepare && p.xid == x.xid {
				m.db.prepared[x.xid] = place
				break
			}
		}
	}
}

// judgeAndFeed is what the node does then.
func (m *model) judgeAndFeed() {
	in := JudgeInput{Executed: m.db.executed.Union(m.db.local), Durable: m.durable, XARecover: map[string]bool{},
		Local: func(s gtid.Range) bool {
			_, node, inc, _ := gtid.ParseIncarnation(s.UUID)
			return node == 1 && !m.led[inc]
		}}
	for xid := range m.db.prepared {
		in.XARecover[xid] = true
	}
	for _, x := range m.log {
		in.Committed.Add(x.id)
	}
	// The log is purged below the durable index, and below every XA PREPARE whose end is not durable too (S8).
	safe := m.durable
	open := map[string]uint64{}
	for _, x := range m.log {
		switch {
		case x.index > m.durable:
		case x.class == XAPrepare:
			open[x.xid] = x.index
		case x.class == XAEnd:
			delete(open, x.xid)
		}
	}
	for _, index := range open {
		safe = min(safe, index-1)
	}
	in.PurgedTo = rapid.Uint64Range(0, safe).Draw(m.t, "purged to")
	for _, x := range m.log {
		if x.index <= in.PurgedTo {
			in.Purged.Add(x.id)
		}
	}
	j, err := Judge(in, func(known gtid.Set, f func(Txn) error) error { return m.scan(in.PurgedTo, known, f) })
	if err != nil {
		m.fail("%v", err)
	}
	m.note("judged: plug %s, refeed %s, local %s", j.Plug.String(), j.Refeed.String(), j.Local.String())
	if !j.Consistent() {
		m.fail("life %d: a good database is called inconsistent: %v", m.life, j.Problems)
	}
	if !j.Local.Equal(m.db.local) {
		m.fail("life %d: local statements are %v, not %v", m.life, m.db.local, j.Local)
	}
	m.db.executed.AddSet(j.Plug)
	m.life++
}

// scan gives the log as scanLog does: from the entry with the first transaction that is not executed, or from further
// up, and plain neighbours of an entry that holds nothing else as one run.
func (m *model) scan(purgedTo uint64, known gtid.Set, f func(Txn) error) error {
	from := slices.IndexFunc(m.log, func(x modelTxn) bool { return !known.Contains(x.id) })
	if from < 0 {
		return nil
	}
	first := slices.IndexFunc(m.log, func(x modelTxn) bool { return x.index > purgedTo })
	if from < first {
		m.fail("%v is purged and asked for", m.log[from].id)
	}
	from = rapid.IntRange(first, from).Draw(m.t, "scan from")
	for from > 0 && m.log[from-1].index == m.log[from].index {
		from--
	}
	for from < len(m.log) {
		to := from
		for to < len(m.log) && m.log[to].index == m.log[from].index {
			to++
		}
		entry := m.log[from:to]
		from = to
		special := slices.ContainsFunc(entry, func(x modelTxn) bool { return x.class != Plain })
		var runs []Txn
		for _, x := range entry {
			n := len(runs)
			if !special && n > 0 && runs[n-1].GTIDs.SID == x.id.SID && runs[n-1].GTIDs.Last+1 == x.id.GNO {
				runs[n-1].GTIDs.Last++
				continue
			}
			runs = append(runs, Txn{Index: x.index, GTIDs: gtid.Range{SID: x.id.SID, First: x.id.GNO, Last: x.id.GNO},
				Class: x.class, XID: x.xid})
		}
		for _, r := range runs {
			if err := f(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish feeds everything and compares.
func (m *model) finish() {
	for place := range m.log {
		m.execute(place, false)
	}
	times := map[int]int{}
	for _, e := range m.db.effects {
		times[e.place]++
	}
	for place, x := range m.log {
		if !m.db.executed.Contains(x.id) {
			m.fail("%v is not executed", x.id)
		}
		if x.data && times[place] != 1 {
			m.fail("%v took effect %d times", x.id, times[place])
		}
		if times[place] == 0 {
			m.fail("%v never ran", x.id)
		}
	}
	for xid, open := range m.xids {
		if _, prepared := m.db.prepared[xid]; prepared != open {
			m.fail("XA %s: prepared here %t, in the log %t", xid, prepared, open)
		}
	}
}

func newModel(t *rapid.T) *model {
	return &model{t: t, index: 10, gnos: map[gtid.SID]int64{}, xids: map[string]bool{}, led: map[uint64]bool{}, life: 1,
		db: modelDB{prepared: map[string]int{}}}
}

func (m *model) live() {
	// A drained leader goes on as a follower in the same life, and a follower is promoted without a restart.
	for range rapid.IntRange(1, 3).Draw(m.t, "roles") {
		if rapid.Bool().Draw(m.t, "leads") {
			m.lead()
		} else {
			m.follow()
		}
	}
}

func (m *model) describe() {
	var b strings.Builder
	for _, x := range m.log {
		_, node, inc, _ := gtid.ParseIncarnation(x.id.UUID)
		fmt.Fprintf(&b, "%d: %d.%d%s:%d class %d %s\n", x.index, node, inc, x.id.Tag, x.id.GNO, x.class, x.xid)
	}
	m.note("log:\n%s", b.String())
}

// TestJudgeModel: through any number of lives, what is judged and fed becomes the log again.
func TestJudgeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(1, 5).Draw(t, "lives") {
			m.live()
			m.die()
			m.judgeAndFeed()
		}
		m.describe()
		m.finish()
	})
}

// TestJudgeModelFindsDamage: a lost row transaction below something executed, and one that was never committed, are
// found, whatever else was lost.
func TestJudgeModelFindsDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.live()
		m.die()
		executed := m.db.executed.Clone()
		var holes []modelTxn
		top := uint64(0)
		for _, e := range m.db.effects {
			if x := m.log[e.place]; e.trace && x.class != Traceless {
				top = max(top, x.index)
			}
		}
		for _, e := range m.db.effects {
			if x := m.log[e.place]; e.trace && (x.class == Plain || x.class == XAEnd) && x.index < top && x.index > m.durable {
				holes = append(holes, x)
			}
		}
		in := JudgeInput{Durable: m.durable, XARecover: map[string]bool{}, Local: func(gtid.Range) bool { return false }}
		for _, x := range m.log {
			in.Committed.Add(x.id)
		}
		bogus := gtid.GTID{SID: testSID(3, 1), GNO: 1}
		var hole modelTxn
		if len(holes) > 0 {
			hole = rapid.SampledFrom(holes).Draw(t, "hole")
			executed = executed.Subtract(gtid.SetOf(hole.id))
		} else {
			executed.Add(bogus)
		}
		in.Executed = executed
		j, err := Judge(in, func(known gtid.Set, f func(Txn) error) error { return m.scan(0, known, f) })
		if err != nil {
			t.Fatal(err)
		}
		if j.Consistent() {
			m.describe()
			m.fail("executed %v without %v: nothing found", executed, hole.id)
		}
		if len(holes) == 0 && !j.Errant.Equal(gtid.SetOf(bogus)) {
			t.Fatalf("errant: %v", j.Errant)
		}
	})
}
