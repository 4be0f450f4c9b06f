package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
)

// State is what a node knows of generations besides the cluster settings, in generation.json: written whole and
// fsynced. The moment at which the file of the source is there is the moment of a force-quorum: before it nothing has
// happened, after it the node will.
type State struct {
	// Generation that this node belongs to, if it is newer than the one in the cluster settings.
	Generation *config.Generation `json:"generation,omitempty"`
	// Takeover is what the source puts into its log when it starts, once; nil on the other nodes.
	Takeover *consensus.Takeover `json:"takeover,omitempty"`
	// Event tells the history of it, on the source.
	Event *api.Event `json:"event,omitempty"`
	// Left says that this node was given up: it must not run any more.
	Left *Left `json:"left_behind,omitempty"`
}

// generationFormat is the newest format of generation.json that this version understands, as in node.json. The file
// is never changed, only replaced by the next decision, so nothing of it is kept.
const generationFormat = 1

// Left is what a node that was given up knows of that.
type Left struct {
	By   config.Generation `json:"by"` // which generation goes on without it
	Why  string            `json:"why,omitempty"`
	At   time.Time         `json:"at"`    // when it learned of it
	From uint64            `json:"from"`  // its log from this entry on is not the cluster's any more
	Last uint64            `json:"last"`  // last entry of its log
	Have string            `json:"gtids"` // of From to Last; a part of them may never have been acknowledged
}

func generationFile(dir string) string { return filepath.Join(dir, "generation.json") }

func Load(fsys raftlog.FS, dir string) (*State, error) {
	s := new(State)
	b, err := raftlog.ReadFile(fsys, generationFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err = config.CheckFormat(b, generationFormat); err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		return nil, config.Damaged(generationFile(dir), err)
	}
	return s, nil
}

func (s *State) Save(fsys raftlog.FS, dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return raftlog.ReplaceFile(fsys, generationFile(dir), append(b, '\n'))
}

// Open finds out which generation this node belongs to, with the cluster settings that it has. A node that was given
// up does not start.
func (r *Recovery) Open(c *config.Cluster) error {
	s, err := Load(r.fs, r.cfg.Dir)
	if err != nil {
		return err
	}
	// The process that wrote this file may have died before it had synced the directory. The file is made durable before
	// anything follows from it, or a power loss could take it away and leave what followed. It is written again, since
	// an fsync after one that failed proves nothing.
	if s.Generation != nil || s.Left != nil {
		if err := s.Save(r.fs, r.cfg.Dir); err != nil {
			return fmt.Errorf("%s: %w", r.cfg.Dir, err)
		}
	}
	if s.Left != nil {
		return r.leftError(s.Left)
	}
	r.generation = s.Generation
	// a node that joined since, or adopted a snapshot's settings
	if g := c.Generation; g.NumberOf() > r.generation.NumberOf() {
		r.generation = g
	}
	return nil
}

// CarryOut puts what a force-quorum decided into the log (source only), unless that is done.
func (r *Recovery) CarryOut() error {
	s, err := Load(r.fs, r.cfg.Dir)
	if err != nil || s.Takeover == nil {
		return err
	}
	r.takeover = s.Takeover
	if s.Event != nil {
		r.host.Remember(*s.Event) // once, however often it is added
	}
	if r.host.Log().ConfStateIndex() >= s.Takeover.End() {
		return nil
	}
	if err := s.Takeover.CarryOut(r.host.Log(), r.id.ID); err != nil {
		return fmt.Errorf("carrying out the force-quorum of generation %d: %w", s.Generation.Number, err)
	}
	r.log.Warn("force-quorum: the log of this node is the cluster's now", "generation", s.Generation.Number,
		"term", s.Takeover.Term,
		"index", s.Takeover.End(), "voters", s.Takeover.Conf.Voters)
	return nil
}

// Delivered is the index up to which entries have been delivered in runs before, as a rule the commit index. But a
// takeover is committed as soon as it is in the log. Until this node has its settings, everything above the takeover's
// base is delivered again.
func (r *Recovery) Delivered(commit uint64) uint64 {
	if r.takeover != nil && r.host.Settings().Generation.NumberOf() < r.generation.NumberOf() {
		return min(commit, r.takeover.Base)
	}
	return commit
}

// ForPeers is what the transport says of this node to others.
func (r *Recovery) ForPeers() (transport.Generation, error) {
	g := transport.Generation{Number: r.generation.NumberOf(), ID: r.generation.IDOf()}
	if r.generation == nil {
		return g, nil
	}
	b, err := json.Marshal(r.generation)
	g.Claim = string(b)
	return g, err
}

// Other is told that a node of another generation is there. A node of the older one must stop serving at once.
func (r *Recovery) Other(from uint64, theirs transport.Generation) {
	mine := r.generation.NumberOf()
	if theirs.Number > mine {
		r.host.Go(func(context.Context) { r.follow(from, theirs) })
		return
	}
	r.mu.Lock()
	known := r.strangers[from]
	r.strangers[from] = true
	r.mu.Unlock()
	if known {
		return
	}
	if theirs.Number == mine {
		r.log.Error("a node belongs to another generation of the same number: force-quorum was run on both sides of a cut. "+
			"Two clusters take writes; stop one of them", "peer", from, "generation", mine)
		r.host.Record("split",
			"",
			fmt.Sprintf("node %d belongs to another generation %d: force-quorum was run on both sides of a cut, and both sides "+
				"may take writes. Stop one of them", from, mine))
		return
	}
	r.log.Warn("a node of an older generation was refused", "peer", from, "generation", theirs.Number)
	r.host.Record("left-behind",
		"", fmt.Sprintf("node %d, which belongs to generation %d, is back and was refused; it fences itself", from,
			theirs.Number))
}

// follow takes note of a newer generation: this node goes on in it, if it was meant to and its log allows, or else
// ends. In both cases mysqld dies first: nothing that it served from now on would be the cluster's.
func (r *Recovery) follow(from uint64, theirs transport.Generation) {
	if !r.forcing.TryLock() {
		return // it is at it, or decides something itself; the peer will be back
	}
	var claim config.Generation
	if err := json.Unmarshal([]byte(theirs.Claim), &claim); err != nil || claim.Number != theirs.Number ||
		claim.ID != theirs.ID {
		r.forcing.Unlock()
		r.log.Error("a peer's generation cannot be read: upgrade this node", "peer", from, "generation", theirs.Number,
			"err", err)
		return
	}
	r.host.Quiesce()
	why, err := r.barsFollowing(&claim)
	if err == nil && why == "" {
		r.log.Warn("force-quorum: this node continues in a new generation", "generation", claim.Number,
			"source", claim.Source)
		if err = (&State{Generation: &claim}).Save(r.fs, r.cfg.Dir); err == nil {
			err = ErrNewGeneration
		}
		r.host.Fail(err)
		return
	}
	if err != nil {
		r.host.Fail(err)
		return
	}
	r.host.Fail(r.giveUp(&claim, why))
}

// barsFollowing says why this node cannot go on in a generation; empty: it can. The log is at rest.
func (r *Recovery) barsFollowing(g *config.Generation) (why string, err error) {
	switch {
	case !slices.Contains(g.Members, r.id.ID):
		return "it was given up", nil
	case g.Parent != r.generation.IDOf():
		return fmt.Sprintf("it belongs to generation %d, and several were made without it since", r.generation.NumberOf()),
			nil
	}
	last, err := r.host.Log().LastIndex()
	if err != nil {
		return "", err
	}
	term, err := r.host.Log().Term(last)
	if err != nil {
		return "", err
	}
	if term > g.BaseTerm || term == g.BaseTerm && last > g.Base {
		return fmt.Sprintf("its log (entry %d, term %d) goes beyond what the cluster went on with (entry %d, term %d)", last,
			term, g.Base, g.BaseTerm), nil
	}
	return "", nil
}

// giveUp records that this node was given up, and returns the error to end with.
func (r *Recovery) giveUp(g *config.Generation, why string) error {
	left := &Left{By: *g, Why: why, At: r.time.Wall().UTC()}
	s := &State{Generation: r.generation, Left: left}
	if err := s.Save(r.fs, r.cfg.Dir); err != nil { // before the log is read, which takes its time
		return errors.Join(r.leftError(left), err)
	}
	if err := r.beyond(left); err != nil {
		return errors.Join(r.leftError(left), err)
	}
	return errors.Join(r.leftError(left), s.Save(r.fs, r.cfg.Dir))
}

// beyond finds what this node's log holds and the cluster went on without.
func (r *Recovery) beyond(left *Left) error {
	last, err := r.host.Log().LastIndex()
	if err != nil {
		return err
	}
	first, err := r.host.Log().FirstIndex()
	if err != nil {
		return err
	}
	// Logs that have the same term at an index are equal up to there. Otherwise they part somewhere after what was
	// committed.
	same := left.By.Commit
	if term, err := r.host.Log().Term(left.By.Base); err == nil && term == left.By.BaseTerm {
		same = left.By.Base
	}
	left.From, left.Last = max(same+1, first), last
	if left.From > last {
		return nil
	}
	var set gtid.Set
	err = r.host.Log().Scan(left.From, last, func(m *raftlog.Meta, _, _ uint64, _ []byte) error {
		for _, g := range m.GTIDs {
			set.AddRange(g)
		}
		return nil
	})
	left.Have = oneLine(set)
	return err
}

// oneLine is a GTID set as mysqlbinlog's options take it.
func oneLine(s gtid.Set) string { return strings.ReplaceAll(s.String(), "\n", "") }

// leftError tells an operator what became of this node.
func (r *Recovery) leftError(l *Left) error {
	has := "Its log holds nothing beyond what the cluster went on with."
	switch {
	case l.Have != "":
		has =
			fmt.Sprintf(
				"Its log holds transactions that the cluster went on without, acknowledged ones perhaps: %s (entries %d to %d; "+
					"`trireme log dump --from %d %s` shows them, and mysqlbinlog can replay them).", l.Have, l.From, l.Last, l.From,
				r.cfg.RaftDir())
	case l.From == 0:
		has = "What its log holds beyond what the cluster went on with is not known; see `trireme log dump`."
	}
	return fmt.Errorf("node %q was %w: on %s %s made generation %d of cluster %q from node %d's log (%s). %s "+
		"Nothing in %s is deleted. To make it a member again, move that directory away and run `trireme join`",
		r.id.Name, ErrLeftBehind, l.By.At.UTC().Format("2006-01-02 15:04:05 UTC"), l.By.By, l.By.Number, r.id.Cluster,
		l.By.Source, l.Why, has, r.cfg.Dir)
}
