package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/gtid"
	"trireme/lab/rivals"
)

const (
	caseBacklog = "backlog" // of every cell

	drainPoll  = 100 * time.Millisecond
	buildRate  = 300 // transactions per second with which a slow system builds a backlog up; for limits and estimates
	drainLimit = 10 * time.Minute
)

// workerVariant names a rival's number of applier workers; without is set where replicas write no binary log of what
// they apply.
func workerVariant(workers int, without bool) string {
	name := fmt.Sprintf("%d workers", workers)
	if workers == 1 {
		name = "1 worker"
	}
	if without {
		name += ", log_replica_updates off"
	}
	return name
}

// applyOptions: a rival's workers are set while it runs, everything else is as for the most speed. The prefix keeps a
// server without the plugin from refusing them.
func applyOptions(withoutLog bool) map[string]string {
	o := map[string]string{"loose_group_replication_flow_control_mode": "DISABLED",
		"replication_optimize_for_static_plugin_config": "ON"}
	if withoutLog {
		o["log_replica_updates"] = "OFF"
	}
	return o
}

// replayPlan: for each system one start, for asynchronous replication two: replicas with and without a binary log of
// their own. The numbers of workers come in turns on one start. Trireme runs with its own choice, in full runs also
// started with each number.
func replayPlan(s Settings) ([]Group, error) {
	if err := lookSysbench(); err != nil {
		return nil, err
	}
	s.AllVariants = false
	plans := []func(*Group, Key){
		func(g *Group, base Key) {
			if g.System.Ours {
				g.Cells = []Cell{s.backlogCell(base, 0)}
			} else {
				s.rivalCells(g, base, false)
			}
		},
		func(g *Group, base Key) {
			if g.System.Name == "async" {
				s.rivalCells(g, base, true)
			}
		},
	}
	for _, workers := range s.Workers {
		plans = append(plans, func(g *Group, base Key) {
			if g.System.Ours && !s.Quick {
				base.Variant = workerVariant(workers, false)
				g.Shape.Options = map[string]string{"replica_parallel_workers": strconv.Itoa(workers)}
				g.Cells = []Cell{s.backlogCell(base, 0)}
			}
		})
	}
	var out []Group
	for _, plan := range plans {
		groups, err := s.groups(func(g *Group, base Key) error {
			g.Prepare = prepareTables
			plan(g, base)
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, groups...)
	}
	return out, nil
}

// rivalCells for each number of workers.
func (s Settings) rivalCells(g *Group, base Key, without bool) {
	g.Shape.Options = applyOptions(without)
	g.Shape.Variant = rivals.Variant{}
	for _, workers := range s.Workers {
		base.Variant = workerVariant(workers, without)
		g.Cells = append(g.Cells, s.backlogCell(base, workers))
	}
}

// backlogCell for a number of a rival's workers; 0: the system's own choice.
func (s Settings) backlogCell(k Key, workers int) Cell {
	k.Case, k.Workload, k.Threads = caseBacklog, "oltp_write_only", s.Threads[0]
	takes := 15*time.Second + time.Duration(s.Transactions)*time.Second/buildRate
	return Cell{Key: k, Takes: takes, Measure: func(ctx context.Context, b *Bed) (Record, error) {
		if err := b.Settle(ctx); err != nil {
			return Record{}, fmt.Errorf("%w: %w", errBroken, err)
		}
		if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
			return Record{}, err
		}
		if workers != 0 {
			if err := setWorkers(ctx, b, workers); err != nil {
				return Record{}, err
			}
		}
		rec, err := backlog(ctx, b, s.load(k.Workload), k.Threads)
		if err != nil {
			return rec, err
		}
		rec.Values[valWorkers], err = workersOf(ctx, b)
		return rec, err
	}}
}

// setWorkers changes the number of appliers on every replica; it is in force once the applier was started again.
func setWorkers(ctx context.Context, b *Bed, workers int) error {
	p, err := pausable(b)
	if err != nil {
		return err
	}
	for _, name := range replicasOf(b) {
		if err := p.StopReplica(ctx, name); err != nil {
			return err
		}
		if _, err := b.DB(name).ExecContext(ctx, "SET GLOBAL replica_parallel_workers = "+strconv.Itoa(workers)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := p.StartReplica(ctx, name); err != nil {
			return err
		}
		if err := b.Settle(ctx); err != nil { // before the next one is away
			return fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	return nil
}

func pausable(b *Bed) (rivals.Pausable, error) {
	if p, ok := b.Running.(rivals.Pausable); ok && len(replicasOf(b)) > 0 {
		return p, nil
	}
	return nil, fmt.Errorf("%w: no replica of %s can be held up", rivals.ErrNotHere, b.System.Name)
}

func workersOf(ctx context.Context, b *Bed) (n float64, err error) {
	for _, name := range replicasOf(b) {
		err = b.DB(name).QueryRowContext(ctx, "SELECT @@GLOBAL.replica_parallel_workers").Scan(&n)
	}
	return n, err
}

// backlog holds one replica up while transactions are committed, and measures how fast it applies them afterwards, with
// no other load.
func backlog(ctx context.Context, b *Bed, load Load, threads int) (rec Record, err error) {
	p, err := pausable(b)
	if err != nil {
		return rec, err
	}
	leader := b.Hosts()[0].Name
	targets, err := b.Targets(rivals.Direct)
	if err != nil {
		return rec, err
	}
	before, err := executedOn(ctx, b, leader)
	if err != nil {
		return rec, err
	}
	replicas := replicasOf(b)
	away := replicas[len(replicas)-1]
	if err := p.StopReplica(ctx, away); err != nil {
		return rec, fmt.Errorf("%w: holding %s up: %w", errBroken, away, err)
	}
	load.Transactions = b.Settings.Transactions
	built, err := load.run(ctx, targets, threads, time.Duration(load.Transactions)*time.Second/buildRate+20*time.Second)
	if err != nil {
		return rec, fmt.Errorf("%w: building the backlog up: %w", errBroken, err) // the replica is still away
	}
	all, err := executedOn(ctx, b, leader)
	if err != nil {
		return rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	for _, name := range replicas[:len(replicas)-1] {
		if err := waitExecuted(ctx, b, name, all); err != nil {
			return rec, fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	w := drainWatch{bed: b, host: away, want: all}
	begin := time.Now()
	if err := p.StartReplica(ctx, away); err != nil {
		return rec, fmt.Errorf("%w: letting %s go: %w", errBroken, away, err)
	}
	if err := w.run(ctx, begin); err != nil {
		return rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	n := int64(all.Subtract(before).Count())
	d, err := drained(n, w.samples)
	if err != nil {
		return rec, err
	}
	rec.Values = map[string]float64{valLoadTPS: float64(built.Transactions) / built.Seconds, valBacklog: float64(n),
		valApplyTPS: d.TPS, valApplyRows: d.Rows, valDrain: d.Whole - d.StartUp, valDrainAll: d.Whole,
		valDrainStart: d.StartUp}
	err = w.record(&rec, float64(n))
	return rec, err
}

func executedOn(ctx context.Context, b *Bed, host string) (set gtid.Set, err error) {
	var text string
	if err := b.DB(host).QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&text); err != nil {
		return set, fmt.Errorf("gtid_executed of %s: %w", host, err)
	}
	return set, set.UnmarshalText([]byte(text))
}

// waitExecuted waits until a server has applied all of a set.
func waitExecuted(ctx context.Context, b *Bed, host string, all gtid.Set) error {
	for deadline := time.Now().Add(catchUpLimit); ; {
		set, err := executedOn(ctx, b, host)
		if err != nil {
			return err
		}
		if left := all.Subtract(set).Count(); left == 0 {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("%s lacks %d transactions after %v", host, left, catchUpLimit)
		}
		if err := poll.Pause(ctx, catchUpPoll); err != nil {
			return err
		}
	}
}

// drainWatch looks at a replica until it has applied everything.
type drainWatch struct {
	bed     *Bed
	host    string
	want    gtid.Set
	samples []drainSample
	hosts   []rivals.HostParts // from when the replica could first be asked
	before  []use
}

func (w *drainWatch) run(ctx context.Context, begin time.Time) error {
	for {
		s, err := w.look(ctx, begin)
		if err == nil {
			w.samples = append(w.samples, s)
			if len(w.samples) == 1 {
				w.hosts = w.bed.Hosts()
				if w.before, err = usesOf(w.hosts); err != nil {
					return err
				}
			}
			if s.left == 0 {
				return nil
			}
		}
		if time.Since(begin) > drainLimit { // a server that is not up yet refuses connections until then
			return fmt.Errorf("%s has not applied its backlog after %v: %d left, last error: %w", w.host, drainLimit, s.left,
				err)
		}
		if err := poll.Pause(ctx, drainPoll); err != nil {
			return err
		}
	}
}

func (w *drainWatch) look(ctx context.Context, begin time.Time) (s drainSample, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	before, err := changedRows(ctx, w.bed, w.host)
	if err != nil {
		return s, err
	}
	set, err := executedOn(ctx, w.bed, w.host)
	if err != nil {
		return s, err
	}
	s.left, s.second = int64(w.want.Subtract(set).Count()), time.Since(begin).Seconds()
	after, err := changedRows(ctx, w.bed, w.host)
	if err == nil && after < before {
		err = fmt.Errorf("%s was restarted between two questions", w.host)
	}
	s.rows = (before + after) / 2 // a question may take as long as many transactions
	return s, err
}

// changedRows of a server since it started, without those of the server's own tables.
func changedRows(ctx context.Context, b *Bed, host string) (sum float64, err error) {
	rows, err := b.DB(host).
		QueryContext(ctx,
			"SHOW GLOBAL STATUS WHERE variable_name IN ('Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted')")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n float64
		if err := rows.Scan(&name, &n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, rows.Err()
}

// record keeps what the hosts spent and what was left over time, one value for each second.
func (w *drainWatch) record(rec *Record, n float64) error {
	after, err := usesOf(w.hosts)
	if err != nil {
		return err
	}
	rec.Hosts = perTransaction(w.hosts, w.before, after, n)
	for _, u := range rec.Hosts {
		switch us := u.MySQLus + u.Daemonus + u.Extraus; {
		case u.Name == w.host:
			rec.Values[valApplyUS] = us
		case u.Leader:
			rec.Values[valFeedUS] = us
		}
	}
	var left []float64
	for _, s := range w.samples {
		for len(left) <= int(s.second) {
			left = append(left, float64(s.left))
		}
	}
	rec.Series = map[string][]float64{valBacklog: append(left, 0)}
	return nil
}
