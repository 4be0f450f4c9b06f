package recovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
)

// Limits of a force-quorum.
const (
	surveyTimeout = 3 * time.Second
	holdStill     = 8 * time.Second // for which a survivor takes part in nothing, once it is asked to
	lastWriteSpan = 256             // entries from the end that are searched for a transaction
	maxByText     = 128
)

// ForceQuorum implements api.Backend. Any node reports; the survivor with the newest log carries it out, and at.Self
// says whether this is it.
func (r *Recovery) ForceQuorum(ctx context.Context, req api.ForceRequest) (rep api.ForceReport, at api.Leader,
	err error) {
	f, err := r.planForce(ctx, req.Voters, false)
	if err != nil {
		return rep, at, err
	}
	rep = f.report
	if req.Confirm == 0 {
		return rep, api.Leader{Self: true}, nil
	}
	at = api.Leader{Name: rep.Source, API: rep.SourceAPI, Self: f.source == r.id.ID}
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
	rep, err = r.force(ctx, req, f)
	return rep, at, err
}

func changedMeanwhile() error {
	return api.Errorf(api.KindChanged, "nothing is changed: the cluster is not as the report showed it any more").
		With("read the new report: trireme force-quorum --dry-run")
}

// planForce asks every member and thinks it through. With hold the others take part in nothing for a while from their
// answer on.
func (r *Recovery) planForce(ctx context.Context, want []string, hold bool) (*forcePlan, error) {
	answers, err := r.surveyAll(ctx, hold)
	if err != nil {
		return nil, err
	}
	return planForce(r.host.Settings(), answers, want)
}

func (r *Recovery) surveyAll(ctx context.Context, hold bool) ([]Survey, error) {
	mine, err := r.surveyHere()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.time.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	others := slices.DeleteFunc(slices.Clone(r.host.Settings().Members),
		func(m config.Member) bool { return m.ID == r.id.ID })
	var mu sync.Mutex
	answers, left, all := []Survey{mine}, len(others), make(chan struct{})
	for _, m := range others {
		r.host.Go(func(context.Context) {
			s, err := ReqSurvey.Ask(ctx, r.host, m.ID, hold)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && s.ID == m.ID {
				answers = append(answers, s)
			} else {
				r.log.Info("force-quorum: a member does not answer", "member", m.Name, "err", err)
			}
			if left--; left == 0 {
				close(all)
			}
		})
	}
	if len(others) > 0 {
		_ = r.time.Wait(ctx, all)
	}
	mu.Lock()
	defer mu.Unlock()
	got := slices.Clone(answers) // late answers do not count
	slices.SortFunc(got, func(a, b Survey) int { return int(a.ID) - int(b.ID) })
	return got, nil
}

// surveyHere is this node's own answer.
func (r *Recovery) surveyHere() (Survey, error) {
	st := r.host.Raft().Status()
	s := Survey{ID: r.id.ID, Term: st.Term, Commit: st.Commit}
	lease := r.host.Raft().HoldsLease()
	heard := r.host.Heard()
	quiet := r.time.Now()-heard > 2*r.cfg.Raft.ElectionTimeout()
	switch {
	case st.Leader == r.id.ID && lease:
		s.Leader = r.id.ID
	case st.Leader != 0 && st.Leader != r.id.ID && heard != 0 && !quiet: // a learner never forgets its leader
		s.Leader = st.Leader
	}
	var err error
	if s.First, err = r.host.Log().FirstIndex(); err != nil {
		return s, err
	}
	if s.Last, err = r.host.Log().LastIndex(); err != nil {
		return s, err
	}
	if s.LastTerm, err = r.host.Log().Term(s.Last); err != nil {
		return s, err
	}
	s.GTIDs = oneLine(r.host.Log().GTIDSet())
	s.Conf = &raftpb.ConfState{Voters: st.Voters, VotersOutgoing: st.Outgoing, Learners: st.Learners}
	if s.Final, _, err = consensus.FinalConf(r.host.Log(), st.Applied); err != nil {
		return s, err
	}
	s.LastWrite = r.lastWrite(s.First, s.Last)
	return s, nil
}

// SurveyForPeer answers ReqSurvey of a node that makes a plan.
func (r *Recovery) SurveyForPeer(_ context.Context, _ uint64, hold bool) (Survey, error) {
	s, err := r.surveyHere()
	if err == nil && hold && s.Leader == 0 { // who has a leader is not needed for anything, and is left alone
		r.stillUntil.Store(int64(r.time.Now() + holdStill))
		return r.surveyHere()
	}
	return s, err
}

// StandsStill: an operator's force-quorum is under way and this node takes part in nothing, so that what it said of
// itself stays true.
func (r *Recovery) StandsStill() bool { return r.time.Now() < time.Duration(r.stillUntil.Load()) }

// lastWrite is when the newest transaction near the end of the log began, in seconds; zero: no transaction. It looks
// from the end, since entries can be large.
func (r *Recovery) lastWrite(first, last uint64) (at time.Time) {
	for i := last; i >= first && i+lastWriteSpan > last && i > 0 && at.IsZero(); i-- {
		err := r.host.Log().Scan(i, i, func(m *raftlog.Meta, _, _ uint64, events []byte) error {
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

// force carries it out on this node, the source: the others hold still, this node's raft is stopped, and once
// generation.json is on disk it has happened. From then on this daemon's and the others' next start do the rest, and no
// step of that can be missed: this node puts the entries into its log before its raft runs, the others follow when they
// meet it.
func (r *Recovery) force(ctx context.Context, req api.ForceRequest, seen *forcePlan) (rep api.ForceReport, err error) {
	if !r.forcing.TryLock() {
		return rep, api.Errorf(api.KindBusy, "nothing is changed: another force-quorum is under way").
			With("see `trireme status`")
	}
	f, err := r.planForce(ctx, req.Voters, true)
	if err == nil && f.report.Seen != seen.report.Seen {
		err = changedMeanwhile()
	}
	if err == nil {
		if err = r.host.AuditForce("asked", CleanBy(req.By), &f.report); err != nil {
			err = fmt.Errorf("nothing is changed: the audit record cannot be written: %w", err)
		}
	}
	if err != nil {
		r.forcing.Unlock()
		return rep, err
	}
	// From here on this run of the node comes to its end, and forcing stays locked: there is no second decision.
	r.log.Warn("force-quorum: carried out on an operator's word", "by", CleanBy(req.By), "term", f.report.Term,
		"voters", f.report.Voters,
		"given_up", f.report.GivenUp)
	r.host.Quiesce()
	defer r.host.Fail(ErrNewGeneration) // raft is stopped: this node starts again in any case
	state, err := r.decideForce(req, f)
	if err != nil {
		return rep, err
	}
	if err := state.Save(r.fs, r.cfg.Dir); err != nil {
		return rep, fmt.Errorf("whether the force-quorum is decided is not known, %s cannot be written: %w",
			generationFile(r.cfg.Dir), err)
	}
	if err := r.host.AuditForce("decided", CleanBy(req.By), &f.report); err != nil {
		r.log.Error("the audit record could not be written", "err", err)
	}
	rep = f.report
	rep.Done, rep.NewGeneration, rep.NewTerm = true, state.Generation.Number, state.Takeover.Term
	return rep, nil
}

// decideForce makes what goes to disk. The log is at rest.
func (r *Recovery) decideForce(req api.ForceRequest, f *forcePlan) (*State, error) {
	s, err := r.surveyHere()
	if err != nil {
		return nil, err
	}
	rep := &f.report
	if s.Last != rep.LastIndex || s.LastTerm != rep.LastTerm || s.Term > rep.Term {
		return nil, changedMeanwhile()
	}
	g := &config.Generation{Number: r.generation.NumberOf() + 1, ID: r.host.RandomID(), Parent: r.generation.IDOf(),
		Source: r.id.ID,
		Base:   rep.LastIndex, BaseTerm: rep.LastTerm, Commit: rep.Commit, Members: slices.Concat(f.voters, f.learners),
		At: r.time.Wall().UTC(), By: CleanBy(req.By)}
	applied := r.host.Raft().Status().Applied
	settings, err := r.forcedSettings(applied, g, f)
	if err != nil {
		return nil, err
	}
	entry := append(raftlog.AppendMeta(nil, &raftlog.Meta{Kind: raftlog.Settings, Node: uint16(r.id.ID)}), settings...)
	t, err := consensus.PlanTakeover(r.host.Log(), applied, rep.Term+1, [][]byte{entry},
		consensus.ForcedConf{Voters: f.voters, Learners: f.learners})
	if err != nil {
		return nil, err
	}
	e := api.Event{Time: g.At, Kind: "force-quorum", Node: r.id.Name, Term: t.Term, Index: t.End(),
		Message: forceMessage(g, rep)}
	return &State{Generation: g, Takeover: t, Event: &e}, nil
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
func (r *Recovery) forcedSettings(applied uint64, g *config.Generation, f *forcePlan) ([]byte, error) {
	c := r.host.Settings()
	first, err := r.host.Log().FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := r.host.Log().LastIndex()
	if err != nil {
		return nil, err
	}
	err = r.host.Log().Scan(max(first, applied+1), last, func(m *raftlog.Meta, _, _ uint64, body []byte) error {
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

// CleanBy is who asked, as the client says it, for the records.
func CleanBy(by string) string {
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
