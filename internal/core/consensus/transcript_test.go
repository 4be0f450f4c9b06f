package consensus

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestTranscripts runs testdata/*.txt. Commands:
//
//	start voters=(1,2,3) [joining=4]   members on empty logs; joining ones know of no membership
//	bootstrap id=1                     the first node of a new cluster
//	campaign id=1
//	delay id=1 [ticks=n]               campaigns so much later than the first, once the leader is lost
//	propose id=1 [bytes=n] [term=n]    data is the input lines, one proposal each
//	tick [ids=(1,2)] [n=1] [until=candidate|leader|leaderless]
//	settle | loud | quiet
//	isolate id=1 | heal                cut from, and back to, the network
//	hold-disk id=1 | release-disk id=1 fsync does not return meanwhile
//	crash id=1 | restart id=1          power loss: what was not synced is gone
//	gone id=2 peer=1                   member 2 learns that the process of 1 is dead
//	depose id=2 leader=1 term=1 [campaign] member 2 is deaf to 1
//	transfer id=1 to=2 | change id=1 [add=(..)] [learner=(..)] [remove=(..)] [explicit] | leave-joint id=1
//	read id=2 | lease id=1 | status | purge id=1 index=n
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		e := newEnv(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			e.t = t
			e.out.Reset()
			e.run(d)
			if e.out.Len() == 0 {
				return "ok\n"
			}
			return e.out.String()
		})
	})
}

func (e *env) run(d *datadriven.TestData) {
	var id uint64
	d.MaybeScanArgs(e.t.(*testing.T), "id", &id)
	m := e.members[id]
	switch d.Cmd {
	case "start":
		e.cmdStart(d)
	case "bootstrap":
		if err := e.start(id, newMemStore(), []raft.Peer{{ID: id}}); err != nil {
			e.printf("%v", err)
			return
		}
		e.settle()
	case "campaign":
		m.core.campaign()
		e.settle()
	case "delay":
		var ticks int
		d.ScanArgs(e.t.(*testing.T), "ticks", &ticks)
		m.cfg.CampaignDelay = func(uint64) time.Duration { return time.Duration(ticks) * m.cfg.TickInterval }
	case "propose":
		e.cmdPropose(d, m)
	case "tick":
		e.cmdTick(d)
	case "settle":
		e.settle()
	case "loud", "quiet":
		e.loud = d.Cmd == "loud"
	case "isolate":
		e.cut[id] = true
	case "heal":
		clear(e.cut)
	case "hold-disk", "release-disk":
		m.diskHeld = d.Cmd == "hold-disk"
		e.settle()
	case "crash":
		m.down = true
	case "restart":
		if err := e.start(id, m.store.crash(), nil); err != nil {
			e.printf("%v", err)
			return
		}
		e.settle()
	case "gone":
		var peer uint64
		d.ScanArgs(e.t.(*testing.T), "peer", &peer)
		m.core.peerGone(peer)
		e.settle()
	case "depose":
		var leader, term uint64
		d.ScanArgs(e.t.(*testing.T), "leader", &leader)
		d.ScanArgs(e.t.(*testing.T), "term", &term)
		m.core.depose(leader, term, d.HasArg("campaign"))
	case "transfer":
		var to uint64
		d.ScanArgs(e.t.(*testing.T), "to", &to)
		m.transfer(to)
		e.settle()
	case "change", "leave-joint":
		e.cmdChange(d, m)
	case "read":
		m.core.reads.waiting = append(m.core.reads.waiting, &readRequest{done: func(index uint64) {
			m.note("read index %d", index)
		}})
		e.settle()
	case "lease":
		if until := m.pub.lease.Load(); until != 0 {
			e.printf("%d: %v left", id, time.Duration(until-e.now))
		} else {
			e.printf("%d: none", id)
		}
	case "status":
		e.cmdStatus()
	case "purge":
		var index uint64
		d.ScanArgs(e.t.(*testing.T), "index", &index)
		m.store.purge(index)
	default:
		d.Fatalf(e.t.(*testing.T), "unknown command %q", d.Cmd)
	}
}

func (e *env) cmdStart(d *datadriven.TestData) {
	var voters, joining []uint64
	d.MaybeScanArgs(e.t.(*testing.T), "voters", &voters)
	d.MaybeScanArgs(e.t.(*testing.T), "joining", &joining)
	for _, id := range voters {
		if err := e.start(id, newMemStore(voters...), nil); err != nil {
			e.t.Fatal(err)
		}
	}
	for _, id := range joining {
		if err := e.start(id, newMemStore(), nil); err != nil {
			e.t.Fatal(err)
		}
	}
	e.settle()
}

func (e *env) cmdPropose(d *datadriven.TestData, m *member) {
	size, want := 0, uint64(0)
	d.MaybeScanArgs(e.t.(*testing.T), "bytes", &size)
	d.MaybeScanArgs(e.t.(*testing.T), "term", &want)
	for _, line := range strings.Fields(d.Input) {
		m.propose(&proposal{entry: &raftpb.Entry{Data: []byte(line + strings.Repeat(".", size))}, want: want,
			bytes: uint64(len(line) + size)})
	}
	e.settle()
}

func (e *env) cmdTick(d *datadriven.TestData) {
	ids, n, until := e.ids(), 1, ""
	t := e.t.(*testing.T)
	d.MaybeScanArgs(t, "ids", &ids)
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "until", &until)
	if until == "" {
		e.tick(ids, n)
		return
	}
	for range 200 {
		for _, id := range ids {
			st := e.members[id].core.state
			if until == "candidate" && st.Role == Candidate || until == "leader" && st.Role == Leader || until == "leaderless" &&
				st.Leader == 0 {
				return
			}
		}
		e.tick(ids, 1)
	}
	e.t.Fatalf("no member became %s", until)
}

func (e *env) cmdChange(d *datadriven.TestData, m *member) {
	t := e.t.(*testing.T)
	cc := &raftpb.ConfChangeV2{}
	for arg, typ := range map[string]raftpb.ConfChangeType{"add": raftpb.ConfChangeAddNode,
		"learner": raftpb.ConfChangeAddLearnerNode, "remove": raftpb.ConfChangeRemoveNode} {
		var ids []uint64
		d.MaybeScanArgs(t, arg, &ids)
		for _, id := range ids {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: typ.Enum(), NodeId: new(id)})
		}
	}
	if d.HasArg("explicit") {
		cc.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	}
	p, err := newChangeProposal(cc)
	if err != nil {
		t.Fatal(err)
	}
	m.propose(p)
	e.settle()
}

func (e *env) cmdStatus() {
	for _, id := range e.ids() {
		m := e.members[id]
		if m.down {
			e.printf("%d: down", id)
			continue
		}
		m.core.publish()
		s := m.pub.state.Load()
		line := fmt.Sprintf("%d: %s term=%d leader=%d last=%d durable=%d commit=%d applied=%d voters=%v", id, s.Role, s.Term,
			s.Leader,
			m.pub.last.Load(), m.pub.durable.Load(), m.pub.commit.Load(), m.pub.applied.Load(), s.Voters)
		if len(s.Outgoing) > 0 {
			line += fmt.Sprintf(" outgoing=%v", s.Outgoing)
		}
		if len(s.Learners) > 0 {
			line += fmt.Sprintf(" learners=%v", s.Learners)
		}
		for _, peer := range e.ids() {
			if pr, ok := s.Members[peer]; ok {
				line += fmt.Sprintf(" %d:%d", peer, pr.Match)
			}
		}
		e.printf("%s", line)
	}
}

// The start-up checks: each pair of log and state that a lost log can leave.
func TestRecoverStateRefusesALostLog(t *testing.T) {
	entries := func(n int) *memStore {
		s := newMemStore(1)
		for i := range n {
			if err := s.Append([]*raftpb.Entry{{Term: new(uint64(3)), Index: new(uint64(i + 1))}}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	hard := func(s *memStore, term, commit uint64) *memStore {
		s.hard = &raftpb.HardState{Term: new(term), Vote: new(uint64(1)), Commit: new(commit)}
		return s
	}
	for name, c := range map[string]struct {
		store   *memStore
		applied uint64
		bad     bool
	}{
		"empty":                 {newMemStore(), 0, false},
		"as it should be":       {hard(entries(5), 3, 4), 4, false},
		"applied is ahead":      {hard(entries(5), 3, 2), 5, false}, // the commit index is written lazily
		"commit beyond log":     {hard(entries(5), 3, 6), 0, true},
		"applied beyond log":    {hard(entries(5), 3, 5), 6, true},
		"vote file is older":    {hard(entries(5), 2, 5), 0, true},
		"vote file is lost":     {entries(5), 0, true},
		"log is lost, vote not": {hard(newMemStore(1), 3, 4), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := recoverState(c.store, c.applied)
			if errors.Is(err, ErrStorageInconsistent) != c.bad {
				t.Fatalf("%+v, %v", st, err)
			}
			if err == nil && st.commit < c.applied {
				t.Fatalf("commit %d is below applied %d", st.commit, c.applied)
			}
		})
	}
}
