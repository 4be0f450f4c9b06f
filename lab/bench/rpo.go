package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/report"
	"trireme/lab/rivals"
	"trireme/lab/verify"
)

// disaster is what happens to the hosts of a system while sessions write.
type disaster struct {
	name  string // a case of the suite
	means string
	dead  func(hosts []string) []string // whose processes are killed; the first host is the leader's
	power bool                          // their disks lose power in the same moment
	lost  bool                          // the leader's disk is destroyed
}

var disasters = []disaster{
	{name: "majority killed",
		means: "all processes of the leader's host and of as many others as make a majority are killed, then started again",
		dead:  majority},
	{name: "power off",
		means: "all hosts lose power at the same moment: what has not reached a disk is lost. Then all are started",
		dead:  everyone, power: true},
	{name: "leader lost", means: "the leader's host and its disk are lost permanently", dead: leaderOnly, power: true,
		lost: true},
	{name: "power off and leader lost", means: "all hosts lose power, and the leader's disk does not survive it",
		dead: everyone, power: true, lost: true},
}

func everyone(hosts []string) []string   { return hosts }
func leaderOnly(hosts []string) []string { return hosts[:1] }
func majority(hosts []string) []string   { return hosts[:len(hosts)/2+1] }

func disasterOf(name string) (disaster, error) {
	return named("disaster", name, disasters, func(d disaster) string { return d.name })
}

// darkness is how long hosts are without power.
const darkness = time.Second

var rpoSuite = Suite{
	Name: "rpo", Title: "What is lost",
	About: "Sessions write and record what was acknowledged until a disaster strikes. Then the acknowledged rows are counted on the server that takes writes afterwards. " +
		"Each host has a disk of its own whose power can be cut: what was not flushed is lost. If a system does not recover by itself, the harness does what its documentation tells an operator to do, and the table says so. Replicas run with log_replica_updates = ON here, in all variants: without it they cannot take the source's place.",
	Defaults: func(quick bool) Settings {
		s := Settings{Topologies: []string{noTopology}, Threads: []int{32}, Rounds: 3, Seconds: 5, AllVariants: false,
			Systems: []string{"standalone", "async", "semisync", "mgr-eventual", "mgr-after", "trireme", "trireme-logger"}}
		for _, d := range disasters {
			s.Cases = append(s.Cases, d.name)
		}
		if quick {
			s.Rounds, s.Cases, s.Systems = 1, s.Cases[1:], []string{"async", "semisync", "mgr-eventual", "trireme"}
		}
		return s
	},
	Check: func(s Settings) error {
		for _, c := range s.Cases {
			if _, err := disasterOf(c); err != nil {
				return err
			}
		}
		return s.oneLoad()
	},
	Plan: func(s Settings) ([]Group, error) {
		return s.groups(func(g *Group, base Key) error {
			d, err := disasterOf(base.Case)
			if err != nil {
				return err
			}
			g.Shape.Disks = true
			// a replica that others are to follow one day needs its own binary log
			if name := g.System.Name; name == "async" || name == "semisync" {
				g.Shape.Options = map[string]string{"log_replica_updates": "ON"}
			}
			base.Threads = s.Threads[0]
			g.Cells = []Cell{{Key: base, Takes: time.Duration(s.Seconds)*time.Second + 20*time.Second, Measure: d.measure}}
			return nil
		})
	},
	Blocks: rpoBlocks, Compare: []Comparison{{valLost}},
}

// measure makes a disaster under load, lets the system recover, and counts.
func (d disaster) measure(ctx context.Context, b *Bed) (Record, error) {
	m, ok := b.Running.(rivals.Mortal)
	if !ok {
		return Record{}, fmt.Errorf("%w: the harness does not know how to bring %s back", rivals.ErrNotHere, b.System.Title)
	}
	if err := m.Settle(ctx); err != nil {
		return Record{}, err
	}
	w, err := verify.New(verify.Config{Login: m.Login(), Writers: b.Settings.Threads[0]})
	if err != nil {
		return Record{}, err
	}
	pctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := w.Prepare(pctx); err != nil {
		return Record{}, err
	}
	w.Start(ctx)
	human, at, err := d.strike(ctx, m, w, time.Duration(b.Settings.Seconds)*time.Second)
	rec := Record{Values: map[string]float64{}}
	switch {
	case errors.Is(err, rivals.ErrAllLost):
		human = rivals.ErrAllLost.Error()
	case err == nil:
		rec.Values[valOutage] = w.Meter().LongestGap(at).Length().Seconds()
	}
	lost := errors.Is(err, rivals.ErrAllLost)
	if serr := w.Stop(); err == nil {
		err = errors.Join(serr, ctx.Err())
	}
	if err == nil {
		err = countRows(ctx, m, w, rec.Values)
	}
	if lost && ctx.Err() == nil {
		acked := float64(w.Log().Counts().Acked)
		rec.Values[valAcked], rec.Values[valLost], err = acked, acked, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	rec.Note = human
	if v := rec.Values; b.System.Ours && v[valLost]+v[valDoubled] > 0 {
		rec.Broken = fmt.Sprintf("%.0f of %.0f acknowledged writes are lost, %.0f are doubled", v[valLost], v[valAcked],
			v[valDoubled])
	}
	return rec, nil
}

// strike lets the sessions write, makes the disaster, and returns once a write is acknowledged again.
func (d disaster) strike(ctx context.Context, m rivals.Mortal, w *verify.Workload, load time.Duration) (human string,
	at time.Time, err error) {
	if err := acked(ctx, w.Meter(), time.Now()); err != nil {
		return "", at, err
	}
	if err := poll.Pause(ctx, load); err != nil {
		return "", at, err
	}
	var hosts []string
	for _, h := range m.Hosts() {
		hosts = append(hosts, h.Name)
	}
	dead := d.dead(hosts)
	at = time.Now()
	if err := m.Kill(dead); err != nil {
		return "", at, err
	}
	back, lost, err := d.dark(ctx, m, dead)
	if err != nil {
		return "", at, err
	}
	rctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if human, err = m.Recover(rctx, back, lost); err != nil {
		return human, at, fmt.Errorf("it does not recover: %w", err)
	}
	return human, at, acked(ctx, w.Meter(), time.Now())
}

// dark cuts the power of the dead hosts, if that is part of it, and gives it back to those that come back.
func (d disaster) dark(ctx context.Context, m rivals.Mortal, dead []string) (back []string, lost string, err error) {
	if d.power {
		var errs []error
		for _, h := range dead {
			errs = append(errs, m.Disk(h).PowerOff())
		}
		if err := errors.Join(errs...); err != nil {
			return nil, "", err
		}
	}
	if err := poll.Pause(ctx, darkness); err != nil {
		return nil, "", err
	}
	back = dead
	if d.lost {
		lost, back = dead[0], dead[1:]
	}
	for _, h := range back {
		if d.power {
			if err := m.Disk(h).PowerOn(); err != nil {
				return nil, "", err
			}
		}
	}
	return back, lost, nil
}

// countRows compares the writers' log with the server that takes writes now.
func countRows(ctx context.Context, m rivals.Mortal, w *verify.Workload, v map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	node, err := m.Serving(ctx)
	if err != nil {
		return err
	}
	defer node.DB.Close()
	problems, err := w.CheckRows(ctx, []verify.Endpoint{node})
	if err == nil {
		tally(w.Log(), problems, v)
	}
	return err
}

// tally fills in what was acknowledged, and what became of it.
func tally(log *verify.Log, problems []verify.Problem, v map[string]float64) {
	v[valAcked] = float64(log.Counts().Acked)
	v[valLost], v[valDoubled] = count(problems, verify.Lost), count(problems, verify.Doubled)
}

// rpoBlocks are one table of all systems, and everything that was counted.
func rpoBlocks(r *Results) []report.Block {
	var means report.List
	for _, d := range disasters {
		if slices.Contains(r.Settings.Cases, d.name) {
			means = append(means, "**"+d.name+"**: "+d.means+".")
		}
	}
	t := report.Table{Caption: "Acknowledged writes that were lost, over all rounds",
		Columns: []report.Column{{Title: "disaster"}, {Title: "system"}, {Title: "variant"}, {Title: "rounds", Number: true},
			{Title: "acknowledged", Number: true}, {Title: "lost", Number: true}, {Title: "rounds with a loss", Number: true},
			{Title: "doubled", Number: true}, {Title: "without writes, s", Number: true}, {Title: "what a human had to do"}}}
	for _, s := range r.summaries() {
		if s.Runs == 0 {
			continue
		}
		t.Rows = append(t.Rows, r.rpoLine(s))
	}
	return []report.Block{means, t}
}

func (r *Results) rpoLine(s summary) []report.Cell {
	var acked, lost, doubled float64
	rounds := 0
	for _, rec := range r.Records {
		if rec.Key.cell() == s.Key && rec.NotRun == "" {
			acked, lost, doubled = acked+rec.Values[valAcked], lost+rec.Values[valLost], doubled+rec.Values[valDoubled]
			if rec.Values[valLost] > 0 {
				rounds++
			}
		}
	}
	mark := report.Better
	if lost > 0 {
		mark = report.Worse
	}
	outage := report.Cell{Text: "for ever", Mark: report.Worse}
	if s.has(valOutage) {
		outage = report.Cell{Text: fmt.Sprintf("%.1f", s.Values[valOutage].Median)}
	}
	human := strings.Join(s.Notes, "; ")
	if human == "" {
		human = "nothing"
	}
	return []report.Cell{{Text: s.Case}, {Text: shortName(s.System)}, {Text: s.Variant}, {Text: fmt.Sprint(s.Runs)},
		{Text: fmt.Sprintf("%.0f", acked)}, {Text: fmt.Sprintf("%.0f", lost), Mark: mark}, {Text: fmt.Sprint(rounds)},
		{Text: fmt.Sprintf("%.0f", doubled)}, outage, {Text: human}}
}
