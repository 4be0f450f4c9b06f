package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/binlog"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/node/certs"
	"trireme/internal/raftlog"
)

// Limits of a force-quorum.
const (
	surveyTimeout = 3 * time.Second
	holdStill     = 8 * time.Second // for which a survivor takes part in nothing, once it is asked to
	lastWriteSpan = 256             // entries from the end that are searched for a transaction
	maxByText     = 128
)

// ForceQuorum implements api.Backend. Any node reports; the survivor with the newest log carries it out, and at.Self says whether this
// is it.
func (n *Node) ForceQuorum(ctx context.Context, req api.ForceRequest) (rep api.ForceReport, at api.Leader, err error) {
	f, err := n.planForce(ctx, req.Voters, false)
	if err != nil {
		return rep, at, err
	}
	rep = f.report
	if req.Confirm == 0 {
		return rep, api.Leader{Self: true}, nil
	}
	at = api.Leader{Name: rep.Source, API: rep.SourceAPI, Self: f.source == n.id.ID}
	switch {
	case rep.Problem != "":
		return rep, at, api.Errorf(rep.ProblemKind, "nothing is changed: %s", rep.Problem).With("%s", rep.Advice)
	case req.Confirm != rep.Term:
		return rep, at, api.Errorf(api.KindChanged, "nothing is changed: the term is %d, not %d", rep.Term, req.Confirm).
			With("read the report of this moment: trireme force-quorum --dry-run")
	case req.Seen != "" && req.Seen != rep.Seen:
		return rep, at, changedMeanwhile()
	case !at.Self:
		return rep, at, nil
	}
	rep, err = n.force(ctx, req, f)
	return rep, at, err
}

func changedMeanwhile() error {
	return api.Errorf(api.KindChanged, "nothing is changed: the cluster is not as the report showed it any more").
		With("read the new report: trireme force-quorum --dry-run")
}

// planForce asks every member and thinks it through. With hold the others take part in nothing for a while from their answer on.
func (n *Node) planForce(ctx context.Context, want []string, hold bool) (*forcePlan, error) {
	answers, err := n.surveyAll(ctx, hold)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	c := n.cluster
	n.mu.Unlock()
	return planForce(c, answers, want)
}

func (n *Node) surveyAll(ctx context.Context, hold bool) ([]survey, error) {
	mine, err := n.surveyHere()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	body, err := json.Marshal(hold)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := []survey{*mine}
	n.mu.Lock()
	members := n.cluster.Members
	n.mu.Unlock()
	for _, m := range members {
		if m.ID == n.id.ID {
			continue
		}
		wg.Go(func() {
			var s survey
			b, err := n.tr.Request(ctx, m.ID, reqSurvey, body)
			if err == nil {
				err = json.Unmarshal(b, &s)
			}
			if err != nil || s.ID != m.ID {
				n.log.Info("force-quorum: a member does not answer", "member", m.Name, "err", err)
				return
			}
			mu.Lock()
			answers = append(answers, s)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.SortFunc(answers, func(a, b survey) int { return int(a.ID) - int(b.ID) })
	return answers, nil
}

// surveyHere is this node's own answer.
func (n *Node) surveyHere() (*survey, error) {
	st := n.cons.Status()
	s := &survey{ID: n.id.ID, Term: st.Term, Commit: st.Commit}
	lease := n.cons.HoldsLease()
	quiet := now()-time.Duration(n.heard.Load()) > 2*n.cfg.Raft.ElectionTimeout()
	switch {
	case st.Leader == n.id.ID && lease:
		s.Leader = n.id.ID
	case st.Leader != 0 && st.Leader != n.id.ID && n.heard.Load() != 0 && !quiet: // a learner never forgets its leader
		s.Leader = st.Leader
	}
	var err error
	if s.First, err = n.rlog.FirstIndex(); err != nil {
		return nil, err
	}
	if s.Last, err = n.rlog.LastIndex(); err != nil {
		return nil, err
	}
	if s.LastTerm, err = n.rlog.Term(s.Last); err != nil {
		return nil, err
	}
	s.GTIDs = oneLine(n.rlog.GTIDSet())
	s.Conf = &raftpb.ConfState{Voters: st.Voters, VotersOutgoing: st.Outgoing, Learners: st.Learners}
	if s.Final, _, err = consensus.FinalConf(n.rlog, st.Applied); err != nil {
		return nil, err
	}
	s.LastWrite = n.lastWrite(s.First, s.Last)
	return s, nil
}

// surveyFor answers a node that makes a plan.
func (n *Node) surveyFor(body []byte) ([]byte, error) {
	var hold bool
	if err := json.Unmarshal(body, &hold); err != nil {
		return nil, err
	}
	s, err := n.surveyHere()
	if err == nil && hold && s.Leader == 0 { // who has a leader is not needed for anything, and is left alone
		n.stillUntil.Store(int64(now() + holdStill))
		s, err = n.surveyHere()
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// standsStill: an operator's force-quorum is under way and this node takes part in nothing, so that what it said of itself stays true.
func (n *Node) standsStill() bool { return now() < time.Duration(n.stillUntil.Load()) }

// lastWrite is when the newest transaction near the end of the log began, in seconds; zero: there is none. It looks from the end, since
// entries can be large.
func (n *Node) lastWrite(first, last uint64) (at time.Time) {
	for i := last; i >= first && i+lastWriteSpan > last && i > 0 && at.IsZero(); i-- {
		err := n.rlog.Scan(i, i, func(m *raftlog.Meta, _, _ uint64, events []byte) error {
			if h, err := binlog.ParseHeader(events); err == nil && m.Kind == raftlog.Trx {
				at = time.Unix(int64(h.Timestamp), 0).UTC()
			}
			return nil
		})
		if err != nil {
			return at // what cannot be read is not shown
		}
	}
	return at
}

// force carries it out on this node, the source: the others hold still, this node's raft is stopped, and once generation.json is on disk
// it has happened. From then on this daemon's and the others' next start do the rest, and no step of that can be missed: this node
// puts the entries into its log before its raft runs, the others follow when they meet it.
func (n *Node) force(ctx context.Context, req api.ForceRequest, seen *forcePlan) (rep api.ForceReport, err error) {
	if !n.forcing.TryLock() {
		return rep, api.Errorf(api.KindBusy, "nothing is changed: another force-quorum is under way").With("see `trireme status`")
	}
	f, err := n.planForce(ctx, req.Voters, true)
	if err == nil && f.report.Seen != seen.report.Seen {
		err = changedMeanwhile()
	}
	if err == nil {
		if err = n.auditForce("asked", req.By, f); err != nil {
			err = fmt.Errorf("nothing is changed: the audit record cannot be written: %w", err)
		}
	}
	if err != nil {
		n.forcing.Unlock()
		return rep, err
	}
	// From here on this run of the node comes to its end, and forcing stays locked: nobody decides a second time.
	n.log.Warn("force-quorum: carried out on an operator's word", "by", cleanBy(req.By), "term", f.report.Term, "voters", f.report.Voters,
		"given_up", f.report.GivenUp)
	n.quiesce()
	defer n.fail(errNewGeneration) // raft is stopped: this node starts anew in any case
	state, err := n.decideForce(req, f)
	if err != nil {
		return rep, err
	}
	if err := state.save(n.cfg.Dir); err != nil {
		return rep, fmt.Errorf("whether the force-quorum is decided is not known, %s cannot be written: %w", generationFile(n.cfg.Dir), err)
	}
	if err := n.auditForce("decided", req.By, f); err != nil {
		n.log.Error("the audit record could not be written", "err", err)
	}
	rep = f.report
	rep.Done, rep.NewGeneration, rep.NewTerm = true, state.Generation.Number, state.Takeover.Term
	return rep, nil
}

// decideForce makes what goes to disk. The log is at rest.
func (n *Node) decideForce(req api.ForceRequest, f *forcePlan) (*generationState, error) {
	s, err := n.surveyHere()
	if err != nil {
		return nil, err
	}
	r := &f.report
	if s.Last != r.LastIndex || s.LastTerm != r.LastTerm || s.Term > r.Term {
		return nil, changedMeanwhile()
	}
	g := &config.Generation{Number: n.generation.NumberOf() + 1, ID: randomID(), Parent: n.generation.IDOf(), Source: n.id.ID,
		Base: r.LastIndex, BaseTerm: r.LastTerm, Commit: r.Commit, Members: slices.Concat(f.voters, f.learners), At: time.Now().UTC(), By: cleanBy(req.By)}
	applied := n.cons.Status().Applied
	settings, err := n.forcedSettings(applied, g, f)
	if err != nil {
		return nil, err
	}
	entry := append(raftlog.AppendMeta(nil, &raftlog.Meta{Kind: raftlog.Settings, Node: uint16(n.id.ID)}), settings...)
	t, err := consensus.PlanTakeover(n.rlog, applied, r.Term+1, [][]byte{entry}, consensus.ForcedConf{Voters: f.voters, Learners: f.learners})
	if err != nil {
		return nil, err
	}
	e := api.Event{Time: g.At, Kind: "force-quorum", Node: n.id.Name, Term: t.Term, Index: t.End(), Message: forceMessage(g, r)}
	return &generationState{Generation: g, Takeover: t, Event: &e}, nil
}

func forceMessage(g *config.Generation, r *api.ForceReport) string {
	var given []string
	for _, m := range r.GivenUp {
		given = append(given, fmt.Sprintf("%s (id %d)", m.Name, m.ID))
	}
	return fmt.Sprintf("%s made generation %d out of %s and gave up %s, confirming term %d. %s", g.By, g.Number,
		strings.Join(slices.Concat(r.Voters, r.Learners), " "), strings.Join(given, " "), r.Term, r.Loss)
}

// forcedSettings are the newest that this node's log holds, committed or not, without those given up.
func (n *Node) forcedSettings(applied uint64, g *config.Generation, f *forcePlan) ([]byte, error) {
	n.mu.Lock()
	c := n.cluster
	n.mu.Unlock()
	first, err := n.rlog.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := n.rlog.LastIndex()
	if err != nil {
		return nil, err
	}
	err = n.rlog.Scan(max(first, applied+1), last, func(m *raftlog.Meta, _, _ uint64, body []byte) error {
		if m.Kind != raftlog.Settings {
			return nil
		}
		next, err := config.ParseCluster(body)
		if err == nil && next.Version > c.Version {
			c = next
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cluster settings in the log: %w", err)
	}
	if c, err = forcedCluster(c, g, f.voters); err != nil {
		return nil, err
	}
	return c.Marshal()
}

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

// cleanBy is who asked, as the client says it, for the records.
func cleanBy(by string) string {
	by = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(by, ""))
	if by == "" {
		return "an operator"
	}
	return strings.ToValidUTF8(by[:min(len(by), maxByText)], "")
}

// auditForce says in audit.log that it is about to be done ("asked"), or done ("decided").
func (n *Node) auditForce(state, by string, f *forcePlan) error {
	return n.certs.Audit(certs.AuditLine{What: "force-quorum", State: state, By: cleanBy(by), Plan: &f.report})
}
