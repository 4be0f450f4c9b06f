package recovery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/mysql/gtid"
)

// Survey is what a survivor says of itself for a force-quorum.
type Survey struct {
	ID       uint64 `json:"id"`
	Term     uint64 `json:"term"`
	Leader   uint64 `json:"leader"` // whom it has heard of lately, or itself with a lease; 0: none
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	LastTerm uint64 `json:"last_term"`
	Commit   uint64 `json:"commit"`
	GTIDs    string `json:"gtids"` // of its whole log, what was purged included
	// LastWrite is when the newest transaction of its log began, by the clock of the leader; zero: no transaction near
	// the end.
	LastWrite time.Time `json:"last_write,omitzero"`
	// Conf is the membership in force, Final the one when all of its log is committed.
	Conf, Final *raftpb.ConfState
}

// forcePlan is a force-quorum thought through.
type forcePlan struct {
	report   api.ForceReport
	source   uint64   // raft id of the survivor whose log counts
	voters   []uint64 // of the new generation
	learners []uint64
	baseTerm uint64
}

// upToDate compares two logs as an election does.
func upToDate(a, b *Survey) int {
	return cmp.Or(cmp.Compare(a.LastTerm, b.LastTerm), cmp.Compare(a.Last, b.Last))
}

// planForce decides who goes on with what, and says what may be lost. want are the voters that the operator names,
// none: the voters that answer. It has no side effects and reads no clock. The report's Problem says why it must not be
// done.
func planForce(c *config.Cluster, answers []Survey, want []string) (*forcePlan, error) {
	chosen := map[string]bool{}
	for _, name := range want {
		if _, ok := c.Member(name); !ok {
			return nil, api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(c.Names(), " "))
		}
		chosen[name] = true
	}
	f := &forcePlan{}
	f.report = api.ForceReport{Cluster: c.Name, Generation: c.Generation.NumberOf()}
	by := map[uint64]*Survey{}
	for i := range answers {
		by[answers[i].ID] = &answers[i]
	}
	live := func(id uint64) bool { return by[id] != nil }
	var source *Survey
	rank := 0
	for _, m := range c.Members {
		s := by[m.ID]
		if s == nil {
			f.report.GivenUp = append(f.report.GivenUp, api.ForceMember{Name: m.Name, ID: m.ID, Role: m.Role,
				Pending: m.Pending})
			continue
		}
		f.report.Term = max(f.report.Term, s.Term)
		// Of equal logs one that votes then counts, and rather one with data.
		r := 0
		if chosen[m.Name] || len(chosen) == 0 && slices.Contains(s.Conf.GetVoters(), m.ID) {
			r = 1
			if m.Role != config.RoleLogger {
				r = 2
			}
		}
		if source == nil || cmp.Or(upToDate(s, source), cmp.Compare(r, rank)) > 0 {
			source, rank, f.report.Source, f.report.SourceAPI = s, r, m.Name, m.API
		}
	}
	if source == nil {
		return nil, api.Errorf(api.KindNoLeader, "no member of the cluster answers")
	}
	f.source, f.baseTerm = source.ID, source.LastTerm
	r := &f.report
	r.LastTerm, r.LastIndex, r.Commit, r.GTIDs = source.LastTerm, source.Last, source.Commit, source.GTIDs
	if !source.LastWrite.IsZero() {
		r.LastWrite = &source.LastWrite
	}
	r.Certain = consensus.CommittedWithin(source.Conf, live) && consensus.CommittedWithin(source.Final, live)
	f.choose(c, by, chosen)
	if err := f.survivors(c, by, source); err != nil {
		return nil, err
	}
	if p := f.problem(c, by, source, chosen); p != nil {
		r.Problem, r.ProblemKind, r.Advice = p.Message, p.Kind, p.Advice
	}
	r.Loss = f.loss()
	r.Seen = f.digest()
	return f, nil
}

// choose divides the survivors into voters and learners.
func (f *forcePlan) choose(c *config.Cluster, by map[uint64]*Survey, chosen map[string]bool) {
	for _, m := range c.Members {
		switch {
		case by[m.ID] == nil:
		case chosen[m.Name] || len(chosen) == 0 && isVoter(by[f.source], m.ID):
			f.voters = append(f.voters, m.ID)
			f.report.Voters = append(f.report.Voters, m.Name)
		default:
			f.learners = append(f.learners, m.ID)
			f.report.Learners = append(f.report.Learners, m.Name)
		}
	}
}

// isVoter as the source's log knows it, at its end or before.
func isVoter(s *Survey, id uint64) bool {
	return slices.Contains(s.Conf.GetVoters(), id) || slices.Contains(s.Conf.GetVotersOutgoing(), id) ||
		slices.Contains(s.Final.GetVoters(), id)
}

// survivors describes each of them, with what it has that the source has not.
func (f *forcePlan) survivors(c *config.Cluster, by map[uint64]*Survey, source *Survey) error {
	kept, err := gtid.ParseSet(source.GTIDs)
	if err != nil {
		return err
	}
	for _, m := range c.Members {
		s := by[m.ID]
		if s == nil {
			continue
		}
		has, err := gtid.ParseSet(s.GTIDs)
		if err != nil {
			return err
		}
		f.report.Survivors = append(f.report.Survivors, api.ForceSurvivor{Name: m.Name, Role: m.Role,
			Voter: isVoter(source, m.ID), Term: s.Term,
			LastTerm: s.LastTerm, LastIndex: s.Last, Commit: s.Commit, Drops: oneLine(has.Subtract(kept))})
	}
	return nil
}

// problem says why it must not be done, and what to do instead; nil: it may be done.
func (f *forcePlan) problem(c *config.Cluster, by map[uint64]*Survey, source *Survey,
	chosen map[string]bool) *api.Error {
	live := func(id uint64) bool { return by[id] != nil }
	for _, m := range c.Members {
		if s := by[m.ID]; s != nil && s.Leader != 0 {
			l, _ := c.MemberByID(s.Leader)
			return api.Errorf(api.KindAlready, "not needed: %s follows a leader, %s", m.Name, l.Name).
				With("see `trireme status`")
		}
	}
	if consensus.Quorum(source.Conf, live) {
		return api.Errorf(api.KindAlready, "not needed: a majority of the voters answers").
			With("the cluster continues by itself; see `trireme status`, and `trireme why-not NODE` if it does not")
	}
	for _, m := range c.Members {
		switch s := by[m.ID]; {
		case s == nil && chosen[m.Name]:
			return api.Errorf(api.KindNotReady, "%s does not answer", m.Name).
				With("leave it out of --voters, or start its daemon")
		case chosen[m.Name] && m.Pending:
			return api.Errorf(api.KindNotReady, "%s has not taken part in the cluster yet", m.Name).
				With("leave it out of --voters")
		case s != nil && len(chosen) > 0 && !chosen[m.Name] && isVoter(source, m.ID):
			return api.Errorf(api.KindNeeded, "%s is a voter, answers, and is not in --voters", m.Name).
				With("name it too, or stop its daemon to give it up")
		}
	}
	for _, m := range c.Members {
		if s := by[m.ID]; s != nil && s.Commit > source.Last { // cannot be, if no log was ever lost
			return api.Errorf(api.KindConflict,
				"%s has committed entry %d, and %s's log, which is the most up to date, ends at %d",
				m.Name, s.Commit, f.report.Source, source.Last).
				With("a log was lost or changed manually; no promise holds any more")
		}
	}
	if len(f.voters) == 0 {
		return api.Errorf(api.KindNotReady, "no voter answers").With("name those that are to vote: --voters %s",
			strings.Join(f.report.Learners, ","))
	}
	if !slices.Contains(f.voters, f.source) {
		return api.Errorf(api.KindNeeded,
			"%s, a learner, holds more of the log than any voter that answers: up to entry %d of term %d",
			f.report.Source, source.Last, source.LastTerm).
			With("make it a voter, so that this is not lost: --voters %s",
				strings.Join(append(slices.Clone(f.report.Voters), f.report.Source), ","))
	}
	for _, m := range c.Members {
		if m.Role != config.RoleLogger && slices.Contains(f.voters, m.ID) && by[m.ID].Last+1 >= source.First {
			return nil
		}
	}
	return api.Errorf(api.KindNotReady,
		"none of the voters to be has data that %s's log, which begins at entry %d, can bring up to date",
		f.report.Source, source.First).With("name a data node with --voters")
}

// loss says what may be lost.
func (f *forcePlan) loss() string {
	r := &f.report
	if r.Certain {
		return "Nothing that was acknowledged is lost: those given up are no majority, so every committed entry is in the log of a survivor, and " + r.Source + " has the newest."
	}
	when := ""
	if r.LastWrite != nil {
		when = ", written at " + r.LastWrite.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return fmt.Sprintf("May be lost: every transaction acknowledged in term %d after entry %d, the last one that %s holds%s, and everything acknowledged "+
		"in any later term. Only the nodes given up know how much that is. Kept: everything up to entry %d, acknowledged or not.",
		r.LastTerm, r.LastIndex, r.Source, when, r.LastIndex)
}

// digest tells whether two plans are the same to an operator.
func (f *forcePlan) digest() string {
	h := fnv.New64a()
	r := f.report
	// plain values
	b, _ := json.Marshal([]any{r.Generation, r.Term, r.LastTerm, r.LastIndex, r.Source, r.Voters, r.Learners, r.GivenUp,
		r.Problem, r.Certain})
	h.Write(b)
	return fmt.Sprintf("%016x", h.Sum64())
}

// forcedCluster is the settings of a new generation, made from the newest ones before: without those given up, and
// without what could not be any more or would hold up the survivors.
func forcedCluster(before *config.Cluster, g *config.Generation, voters []uint64) (*config.Cluster, error) {
	c := before.Clone()
	c.Version++
	c.Rotate = true
	c.Generation, c.Pause = g, nil // somebody has said that it is to go on
	c.Members = slices.DeleteFunc(c.Members, func(m config.Member) bool { return !slices.Contains(g.Members, m.ID) })
	if len(c.Members) != len(g.Members) {
		return nil, changedMeanwhile() // a survivor is no member by the newest settings
	}
	for i := range c.Members {
		if m := &c.Members[i]; slices.Contains(voters, m.ID) && m.Role == config.RoleLearner {
			m.Role, m.ApplyDelayMS = config.RoleVoter, 0
		}
	}
	if c.CheckRules() != nil { // commits must not wait for what the survivors cannot give
		c.CommitZones = 0
		for i := range c.Members {
			c.Members[i].MustAck = false
		}
	}
	c.Record(before, g.At, g.By)
	return c, nil
}
