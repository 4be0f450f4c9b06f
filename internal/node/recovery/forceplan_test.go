package recovery

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// forceCluster has voters db1 to db3, a logger db4 that votes, a learner db5, and db6, which never started.
func forceCluster() *config.Cluster {
	c := &config.Cluster{Version: 1, Name: "prod", ClusterID: 1, NextID: 7}
	for i, role := range []string{config.RoleVoter, config.RoleVoter, config.RoleVoter, config.RoleLogger,
		config.RoleLearner, config.RoleVoter} {
		name := "db" + string(rune('1'+i))
		c.Members = append(c.Members, config.Member{ID: uint64(i + 1), Name: name, Role: role, API: name + ":8008",
			Pending: i == 5})
	}
	return c
}

var forceConf = &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}, Learners: []uint64{5}}

// said is a survivor's answer: its log ends at an entry of a term, in a later term.
func said(id, lastTerm, last uint64) Survey {
	return Survey{ID: id, Term: 9, First: 1, Last: last, LastTerm: lastTerm, Commit: 90, Conf: forceConf, Final: forceConf}
}

func TestPlanForce(t *testing.T) {
	with := func(s Survey, change func(*Survey)) Survey { change(&s); return s }
	joint := &raftpb.ConfState{Voters: []uint64{1, 5, 6}, VotersOutgoing: []uint64{1, 2, 3, 4}}
	for name, c := range map[string]struct {
		answers  []Survey
		want     []string
		problem  string // part of it
		source   string
		voters   string
		learners string
		certain  bool
	}{
		"half of four":          {[]Survey{said(1, 7, 100), said(2, 7, 99)}, nil, "", "db1", "db1 db2", "", true},
		"one of four":           {[]Survey{said(2, 7, 100)}, nil, "", "db2", "db2", "", false},
		"the later term counts": {[]Survey{said(1, 7, 200), said(2, 8, 100)}, nil, "", "db2", "db1 db2", "", true},
		"a learner stays one":   {[]Survey{said(2, 7, 100), said(5, 7, 100)}, nil, "", "db2", "db2", "db5", false},
		"equal logs: a voter's counts": {[]Survey{said(4, 7, 100), said(3, 7, 100), said(5, 7, 100)}, nil, "", "db3",
			"db3 db4", "db5", true},
		"equal logs: a chosen one's": {[]Survey{said(4, 7, 100), said(5, 7, 100)}, []string{"db4", "db5"}, "", "db5",
			"db4 db5", "", false},
		"a learner is chosen": {[]Survey{said(2, 7, 100), said(5, 7, 101)}, []string{"db2", "db5"}, "", "db5",
			"db2 db5", "", false},
		"a learner has more": {[]Survey{said(2, 7, 100), said(5, 7, 101)}, nil, "make it a voter", "db5", "db2",
			"db5", false},
		"a majority": {[]Survey{said(1, 7, 100), said(2, 7, 99), said(4, 7, 99)}, nil,
			"not needed: a majority", "db1", "db1 db2 db4", "", true},
		"a leader is heard": {[]Survey{with(said(1, 7, 100), func(s *Survey) { s.Leader = 3 })}, nil,
			"follows a leader, db3", "db1", "db1", "", false},
		"no voter":               {[]Survey{said(5, 7, 100)}, nil, "no voter answers", "db5", "", "db5", false},
		"learners of the region": {[]Survey{said(5, 7, 100)}, []string{"db5"}, "", "db5", "db5", "", false},
		"a voter is left out": {[]Survey{said(1, 7, 100), said(2, 7, 99)}, []string{"db1"},
			"db2 is a voter, answers, and is not in --voters", "db1", "db1", "db2", true},
		"one of those named is dead": {[]Survey{said(1, 7, 100)}, []string{"db1", "db5"}, "db5 does not answer", "db1",
			"db1", "", false},
		"one of those named never started": {[]Survey{said(1, 7, 100), said(6, 0, 0)}, []string{"db1", "db6"},
			"db6 has not taken part", "db1", "db1 db6", "", false},
		"only a logger": {[]Survey{said(4, 7, 100)}, nil, "none of the voters to be has data", "db4",
			"db4", "", false},
		"a logger has the newest log": {[]Survey{said(3, 7, 100), said(4, 7, 120)}, nil, "", "db4", "db3 db4", "", true},
		"data too old for the log": {[]Survey{said(3, 7, 100), with(said(4, 7, 120), func(s *Survey) { s.First = 102 })},
			nil,
			"none of the voters to be has data", "db4", "db3 db4", "", true},
		"a commit index beyond the newest log": {[]Survey{with(said(1, 7, 200), func(s *Survey) { s.Commit = 150 }),
			said(2, 8, 100)}, nil,
			"has committed entry 150", "db2", "db1 db2", "", true},
		"a joint change that may be committed": {[]Survey{with(said(1, 7, 100), func(s *Survey) { s.Final = joint }),
			said(2, 7, 99)}, nil, "", "db1", "db1 db2", "", true},
		"a change that may be committed, and the survivors are not enough of it": {
			[]Survey{with(said(2, 7, 100), func(s *Survey) { s.Final = &raftpb.ConfState{Voters: []uint64{1, 3, 4}} }),
				said(5, 7, 99)}, nil,
			"", "db2", "db2", "db5", false},
	} {
		f, err := planForce(forceCluster(), c.answers, c.want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := f.report
		all := r.Problem + "\n" + r.Advice
		if c.problem == "" && r.Problem != "" || !strings.Contains(all, c.problem) {
			t.Errorf("%s: problem %q", name, all)
		}
		if r.Source != c.source || strings.Join(r.Voters, " ") != c.voters || strings.Join(r.Learners, " ") != c.learners ||
			r.Certain != c.certain {
			t.Errorf("%s: source %s voters %v learners %v certain %t", name, r.Source, r.Voters, r.Learners, r.Certain)
		}
		if r.Certain == strings.Contains(r.Loss, "May be lost") {
			t.Errorf("%s: certain %t, %s", name, r.Certain, r.Loss)
		}
		if got := len(r.Survivors) + len(r.GivenUp); got != 6 {
			t.Errorf("%s: %d members reported", name, got)
		}
	}
	if _, err := planForce(forceCluster(), []Survey{said(1, 7, 1)}, []string{"nobody"}); api.KindOf(err) != api.KindNotFound {
		t.Error(err)
	}
	if _, err := planForce(forceCluster(), nil, nil); api.KindOf(err) != api.KindNoLeader {
		t.Error(err)
	}
}

// What a survivor has that the newest log has not is named.
func TestPlanForceNamesWhatIsDropped(t *testing.T) {
	a, b := said(1, 7, 200), said(2, 8, 100)
	a.GTIDs, b.GTIDs = "0c21cfc5-1c03-8b32-8001-000000000004:1-20", "0c21cfc5-1c03-8b32-8001-000000000004:1-18"
	f, err := planForce(forceCluster(), []Survey{a, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.report.Survivors, func(s api.ForceSurvivor) bool { return s.Name == "db1" })
	if got := f.report.Survivors[i].Drops; got != "0c21cfc5-1c03-8b32-8001-000000000004:19-20" {
		t.Errorf("drops %q", got)
	}
	same := f.report.Seen
	a.Last++
	if f, _ = planForce(forceCluster(), []Survey{a, b}, nil); f.report.Seen != same {
		t.Error("another report, though nothing that counts has changed")
	}
	b.Last++
	if f, _ = planForce(forceCluster(), []Survey{a, b}, nil); f.report.Seen == same {
		t.Error("the same report for another log")
	}
}

// The settings of a new generation are valid, whatever the ones before were about those that are gone.
func TestForcedCluster(t *testing.T) {
	c := forceCluster()
	for i := range c.Members {
		m := &c.Members[i]
		m.Peer, m.API, m.Weight, m.Zone = m.Name+":7306", m.Name+":8008", 100, "z"+m.Name
		if m.Role != config.RoleLogger {
			m.MySQLHost, m.MySQLPort = m.Name, 3306
		}
	}
	c.Members[0].MustAck, c.Members[1].MustAck = true, true
	c.CommitZones, c.Pause = 3, &config.Pause{}
	if _, err := c.Marshal(); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct{ members, voters []uint64 }{
		"a voter and a learner":  {[]uint64{2, 5}, []uint64{2}},
		"the learner is a voter": {[]uint64{2, 5}, []uint64{2, 5}},
		"the learner alone":      {[]uint64{5}, []uint64{5}},
	} {
		g := &config.Generation{Number: 2, ID: 7, Members: x.members}
		got, err := forcedCluster(c, g, x.voters)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b, err := got.Marshal()
		if err == nil {
			got, err = config.ParseCluster(b)
		}
		if err == nil {
			err = got.CheckRules()
		}
		if err != nil || got.Version != c.Version+1 || got.Generation.NumberOf() != 2 || got.Pause != nil ||
			len(got.Members) != len(x.members) || got.CommitZones != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		for _, m := range got.Members {
			if slices.Contains(x.voters, m.ID) == (m.Role == config.RoleLearner) {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
	if _, err := forcedCluster(c, &config.Generation{Members: []uint64{2, 9}}, []uint64{2}); err == nil {
		t.Error("a survivor that is no member")
	}
}

// FuzzForcePlan makes a plan of a force-quorum from any answers of survivors: it names as source who has the newest
// log, and as voters and learners only those that answered.
func FuzzForcePlan(f *testing.F) {
	b, err := json.Marshal([]Survey{said(1, 7, 100), said(2, 7, 99), said(5, 8, 3)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "")
	f.Add(b, "db1,db5")
	f.Add([]byte(`[{"id":1},{"id":1,"gtids":"x"},{"id":99,"Conf":{"voters":[1,1]}}]`), "")
	f.Fuzz(func(t *testing.T, b []byte, voters string) {
		var answers []Survey
		if json.Unmarshal(b, &answers) != nil {
			return
		}
		var want []string
		if voters != "" {
			want = strings.Split(voters, ",")
		}
		p, err := planForce(forceCluster(), answers, want)
		if err != nil {
			return
		}
		newest := map[uint64]Survey{}
		for _, a := range answers {
			newest[a.ID] = a // of two answers of one node the later counts
		}
		for id, a := range newest {
			source := newest[p.source]
			if _, member := forceCluster().MemberByID(id); member && upToDate(&a, &source) > 0 {
				t.Fatalf("node %d has more than the source %d", id, p.source)
			}
		}
		for _, id := range append(append([]uint64{}, p.voters...), p.learners...) {
			if _, ok := newest[id]; !ok {
				t.Fatalf("node %d did not answer and goes on", id)
			}
		}
	})
}
