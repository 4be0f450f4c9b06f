// Package rolling takes the nodes of a running cluster in turns, for a restart or an upgrade, so that no write is
// refused for longer than a switchover takes. What is done to a node is up to Options.Act: a command, or an operator.
// The package chooses the next node, checks that the cluster can do without it, waits for its restart, and then until
// it is healthy again:
//
//	learners, loggers, followers   one at a time, by name
//	the leader                     last, once it has handed over to a node that has had its turn
//
// The node that leads when a turn begins is the leader, so a failover in between changes the order and nothing else. An
// error leaves the cluster as it is: the nodes that had their turn are done, and Result.Left holds the others.
package rolling

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
)

// Options of a run.
type Options struct {
	View       func(context.Context) (api.ClusterView, error) // asks any node that answers
	Switchover func(context.Context, api.SwitchoverRequest) (api.SwitchoverResult, error)
	// restarts that node's daemon, or has it done; may return before it is done
	Act func(context.Context, api.MemberView) error
	// Confirm is asked before writes go to another series of MySQL, from which there is no way back; an error ends the
	// run.
	Confirm func(question string) error
	Say     func(format string, args ...any)

	Nodes        []string      // only these; none: all
	Upgrade      bool          // each has to come back with another version of Trireme or MySQL
	AcceptOutage bool          // go on although writes are refused while a node is away
	Patience     time.Duration // how long a node may take until it is healthy again
	Poll         time.Duration // from look to look
}

// Versions of a node's programs. MySQL is empty for a logger.
type Versions struct {
	Trireme string `json:"trireme"`
	MySQL   string `json:"mysql,omitempty"`
}

func (v Versions) String() string {
	if v.MySQL == "" {
		return "Trireme " + v.Trireme
	}
	return "Trireme " + v.Trireme + ", MySQL " + v.MySQL
}

// Step is a node's turn.
type Step struct {
	Node    string   `json:"node"`
	Before  Versions `json:"before"`
	After   Versions `json:"after"`
	Seconds float64  `json:"seconds"`          // until it was healthy again
	To      string   `json:"to,omitempty"`     // who took over from it
	GapMS   float64  `json:"gap_ms,omitempty"` // without writes meanwhile
}

// Result of a run.
type Result struct {
	Cluster string   `json:"cluster"`
	Steps   []Step   `json:"steps"` // that are done, in their order
	Left    []string `json:"left"`  // nodes that had no turn, in the order in which they would have
}

// Plan is whose turn it is, first to last, as the cluster is now, and what stands against beginning.
func Plan(v api.ClusterView, o Options) (order []string, problem error) {
	names := make([]string, len(v.Members))
	for i, m := range v.Members {
		names[i] = m.Name
	}
	chosen := map[string]bool{}
	for _, n := range o.Nodes {
		if !slices.Contains(names, n) {
			return nil, api.Errorf(api.KindNotFound, "no node %q; nodes are %s", n, strings.Join(names, " "))
		}
		chosen[n] = true
	}
	var turns []api.MemberView
	for _, m := range v.Members {
		if len(chosen) == 0 || chosen[m.Name] {
			turns = append(turns, m)
		}
	}
	slices.SortFunc(turns, func(a, b api.MemberView) int {
		if d := rank(v, a) - rank(v, b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, m := range turns {
		order = append(order, m.Name)
	}
	return order, refuse(v, o)
}

// rank orders turns: what hurts least if it fails comes first.
func rank(v api.ClusterView, m api.MemberView) int {
	switch {
	case m.Name == v.Leader:
		return 3
	case m.Role == config.RoleLearner:
		return 0
	case m.MySQL == nil:
		return 1
	}
	return 2
}

// refuse says why a run should not begin; nil: it may.
func refuse(v api.ClusterView, o Options) error {
	if v.Pause != nil {
		return api.Errorf(api.KindConflict,
			"automatic failover is paused, so no node would take over if one failed meanwhile").
			With("end it with `trireme resume`")
	}
	if sick := unhealthy(v); sick != "" {
		return api.Errorf(api.KindNotReady, "%s; all nodes must be healthy before one is taken out", sick).
			With("repair it, or take it out of the cluster with `trireme remove`")
	}
	if voters := voters(v); voters < 3 && !o.AcceptOutage {
		return api.Errorf(api.KindNeeded,
			"with %d voter(s) no majority is left while one of them restarts: writes are refused until it is back", voters).
			With("add nodes, or accept that with --accept-outage")
	}
	return nil
}

func voters(v api.ClusterView) (n int) {
	for _, m := range v.Members {
		if m.Raft.Voter {
			n++
		}
	}
	return n
}

// unhealthy says who is not as it should be; empty: all are.
func unhealthy(v api.ClusterView) string {
	var sick []string
	if v.Leader == "" {
		sick = append(sick, "no node takes writes")
	}
	for _, m := range v.Members {
		if m.State != api.StateHealthy {
			sick = append(sick, m.Name+" is "+m.State)
		}
	}
	return strings.Join(sick, ", ")
}

// Run gives each node its turn. The result holds what was done, also together with an error.
func Run(ctx context.Context, o Options) (Result, error) {
	res := Result{Steps: []Step{}, Left: []string{}}
	v, err := o.View(ctx)
	if err != nil {
		return res, err
	}
	res.Cluster = v.Cluster
	if res.Left, err = Plan(v, o); err != nil {
		return res, err
	}
	for {
		var step Step
		if step, v, err = o.turn(ctx, v, res.Left[0]); err != nil {
			return res, err
		}
		res.Steps, res.Left = append(res.Steps, step), res.Left[1:]
		if len(res.Left) == 0 {
			return res, nil
		}
		// Again: another node may lead by now, or somebody may have paused failover.
		o.Nodes = res.Left
		order, err := Plan(v, o)
		if err != nil {
			return res, err
		}
		res.Left = order
	}
}

// turn is one node's; it gives the view in which that node is healthy again.
func (o Options) turn(ctx context.Context, v api.ClusterView, name string) (Step, api.ClusterView, error) {
	step := Step{Node: name}
	if name == v.Leader && len(v.Members) > 1 {
		if err := o.mayMove(v); err != nil {
			return step, v, err
		}
		moved, err := o.Switchover(ctx, api.SwitchoverRequest{IfTerm: v.Term})
		if err != nil {
			return step, v, fmt.Errorf("%s leads and does not hand over: %w", name, err)
		}
		step.To, step.GapMS = moved.To, moved.WriteGapMS
		o.Say("%s", moved.Text())
		if v, err = o.await(ctx, nil); err != nil {
			return step, v, err
		}
	}
	before := member(v, name)
	if before == nil {
		return step, v, gone(name)
	}
	step.Before = versions(*before)
	began := time.Now()
	o.Say("%s: its turn (%s)", name, step.Before)
	if err := o.Act(ctx, *before); err != nil {
		return step, v, err
	}
	v, err := o.await(ctx, before)
	if err != nil {
		return step, v, err
	}
	step.After, step.Seconds = versions(*member(v, name)), time.Since(began).Seconds()
	if o.Upgrade && step.After == step.Before {
		return step, v,
			fmt.Errorf("%s has restarted with what it had (%s): nothing was upgraded there, and no later node was touched", name,
				step.After)
	}
	o.Say("%s: healthy again after %.0f s (%s)", name, step.Seconds, step.After)
	return step, v, nil
}

func gone(name string) error {
	return api.Errorf(api.KindNotFound, "%s is no longer a node of the cluster", name)
}

// mayMove asks before writes go to another series of MySQL than the one that takes them: MySQL replicates from older to
// newer servers, not back.
func (o Options) mayMove(v api.ClusterView) error {
	from := series(member(v, v.Leader).MySQL.Version)
	for _, m := range v.Members {
		if m.MySQL != nil && m.Name != v.Leader && series(m.MySQL.Version) != from {
			return o.Confirm(
				fmt.Sprintf("Leadership moves from MySQL %s to MySQL %s now. Once writes are there, no older server can follow, and the only way back is a backup.",
					from, series(m.MySQL.Version)))
		}
	}
	return nil
}

// series of a version of MySQL: "8.4" of "8.4.6".
func series(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// sayAgain is how long a wait whose reason stays the same is not reported again.
const sayAgain = 15 * time.Second

// await waits until all nodes are healthy; with before, until that node has restarted, too.
func (o Options) await(ctx context.Context, before *api.MemberView) (api.ClusterView, error) {
	began := time.Now()
	back := before == nil // the node has restarted, or no node had to
	said, saidAt := "", began
	for {
		v, err := o.View(ctx)
		why := ""
		switch {
		case err != nil:
			why = err.Error() // the node that was asked may be the one that restarts
		case !back:
			m := member(v, before.Name)
			if m == nil {
				return v, gone(before.Name)
			}
			back = m.State == api.StateDown || life(*m) != life(*before)
			why = before.Name + " has not restarted: its daemon is still process " + strconv.Itoa(before.Daemon.PID)
		default:
			why = unhealthy(v)
		}
		switch {
		case why == "":
			return v, nil
		case time.Since(began) > o.Patience:
			return v, fmt.Errorf("gave up after %v: %s; `trireme status` says more", o.Patience, why)
		case why != said || time.Since(saidAt) > sayAgain:
			o.Say("waiting for %.0f s, %v at most: %s", time.Since(began).Seconds(), o.Patience, why)
			said, saidAt = why, time.Now()
		}
		if poll.Pause(ctx, o.Poll) != nil {
			return v, fmt.Errorf("stopped while waiting: %s: %w", why, ctx.Err())
		}
	}
}

// life tells a node's processes from those that it has after a restart.
func life(m api.MemberView) string {
	s := fmt.Sprint(m.Daemon.PID, m.Daemon.Version)
	if m.MySQL != nil {
		incarnation, _, _ := strings.Cut(m.MySQL.Epoch, "/")
		s += fmt.Sprint(" ", incarnation, m.MySQL.PID)
	}
	return s
}

func versions(m api.MemberView) Versions {
	v := Versions{Trireme: m.Daemon.Version}
	if m.MySQL != nil {
		v.MySQL = m.MySQL.Version
	}
	return v
}

func member(v api.ClusterView, name string) *api.MemberView {
	i := slices.IndexFunc(v.Members, func(m api.MemberView) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &v.Members[i]
}
