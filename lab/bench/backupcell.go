package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/rivals"
)

const (
	markEvery     = 200 * time.Millisecond // between two questions for the end of the log
	archiveEvery  = 100 * time.Millisecond // between two looks at the archive
	archiveBegins = 3 * time.Second        // under load before the archive's age is taken
	checkShare    = 0.2
	checkTables   = 2
)

// backupMeasure is one cell of the suite backup.
type backupMeasure struct {
	bed     *Bed
	sys     rivals.Backer
	tool    string
	targets []rivals.Target
	threads int
	length  time.Duration
	begin   time.Time // of what is measured while clients write
	rec     Record
}

func backupCell(k Key, tool string) func(context.Context, *Bed) (Record, error) {
	return func(ctx context.Context, b *Bed) (rec Record, err error) {
		sys, ok := b.Running.(rivals.Backer)
		if !ok || len(replicasOf(b)) == 0 {
			return rec, fmt.Errorf("%w: the harness makes no backups of %s", rivals.ErrNotHere, b.System.Name)
		}
		if err := b.Settle(ctx); err != nil {
			return rec, fmt.Errorf("%w: %w", errBroken, err)
		}
		targets, err := b.Targets(rivals.Direct)
		if err != nil {
			return rec, err
		}
		if err := warmUp(ctx, b, b.Settings.load(""), targets, k.Threads); err != nil {
			return rec, err
		}
		if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
			return rec, err
		}
		m := backupMeasure{bed: b, sys: sys, tool: tool, targets: targets, threads: k.Threads,
			length: time.Duration(b.Settings.Seconds) * time.Second}
		mib, err := dataMiB(ctx, b)
		if err != nil {
			return rec, err
		}
		m.rec.Values = map[string]float64{valDataMiB: mib}
		switch k.Case {
		case caseCopy:
			err = m.copy(ctx)
		case caseRestore:
			err = m.restore(ctx)
		case caseArchive:
			err = m.archive(ctx)
		default:
			err = m.check(ctx)
		}
		return m.rec, err
	}
}

// dataMiB is the size of the tables, indexes included, as their leader knows it.
func dataMiB(ctx context.Context, b *Bed) (mib float64, err error) {
	// Of the files: the dictionary's statistics are those of a moment ago, when the tables were empty.
	err = b.DB(b.Hosts()[0].Name).
		QueryRowContext(ctx,
			"SELECT COALESCE(SUM(file_size), 0) / 1048576 FROM information_schema.innodb_tablespaces WHERE name LIKE '"+
				rivals.Database+"/%'").Scan(&mib)
	return mib, err
}

// copyDir is where the copy of a tool lies, until the system ends: that of Trireme, whose tools are verbs, has one
// name.
func (m *backupMeasure) copyDir() string {
	if m.bed.System.Ours {
		return filepath.Join(m.bed.Shape.Dir, "copy")
	}
	return filepath.Join(m.bed.Shape.Dir, "copy-"+slug(m.tool))
}

// fresh removes what a run before has left.
func (m *backupMeasure) fresh(dir string) error {
	return errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".log"))
}

// copy makes one copy without load and one under load.
func (m *backupMeasure) copy(ctx context.Context) error {
	v, dir := m.rec.Values, m.copyDir()
	took, err := m.makeCopy(ctx, dir)
	if err != nil {
		return err
	}
	v[valCopyS], v[valCopyMiBs] = took.Seconds(), v[valDataMiB]/took.Seconds()
	busy, err := m.withWriters(ctx, func(ctx context.Context) error {
		_, err := m.makeCopy(ctx, dir)
		return err
	})
	if err != nil {
		return err
	}
	v[valBusyS] = busy.Seconds()
	stored, err := rivals.DirBytes(dir)
	v[valStored] = float64(stored) / (1 << 20)
	return err
}

func (m *backupMeasure) makeCopy(ctx context.Context, dir string) (time.Duration, error) {
	if err := m.fresh(dir); err != nil {
		return 0, err
	}
	begin := time.Now()
	err := m.sys.Copy(ctx, m.tool, dir)
	return time.Since(begin), err
}

// withWriters does something in the midst of a load, and keeps the writers' TPS during it and before and after it. It
// returns how long it took. What f needs to begin it leaves out by setting m.begin again.
func (m *backupMeasure) withWriters(ctx context.Context, f func(context.Context) error) (time.Duration, error) {
	var before, end time.Time
	seconds, err := m.bed.Settings.load("").during(ctx, m.targets, m.threads, func(ctx context.Context) error {
		if err := poll.Pause(ctx, m.length); err != nil {
			return err
		}
		before = time.Now()
		m.begin = before
		if err := f(ctx); err != nil {
			return err
		}
		end = time.Now()
		return poll.Pause(ctx, m.length)
	})
	if err == nil {
		_, err = caughtUp(ctx, m.bed, catchUpLimit)
	}
	if err != nil {
		return 0, err
	}
	m.windows(seconds, before, m.begin, end)
	return end.Sub(m.begin), nil
}

// windows keeps the TPS of the whole seconds between begin and end, and of those until before and from end on, but the
// first one.
func (m *backupMeasure) windows(seconds []secondTPS, before, begin, end time.Time) {
	var alone, during, series []float64
	for i, s := range seconds {
		series = append(series, s.tps)
		switch from := s.end.Add(-time.Second); {
		case !from.Before(begin) && !s.end.After(end):
			during = append(during, s.tps)
		case i > 0 && (!s.end.After(before) || !from.Before(end)):
			alone = append(alone, s.tps)
		}
	}
	v := m.rec.Values
	v[valTPSAlone], _ = meanWithin(alone)
	if len(during) > 0 && v[valTPSAlone] > 0 { // what took less than two seconds may have no whole one
		v[valTPSDuring], _ = meanWithin(during)
		v[valTPSKept] = 100 * v[valTPSDuring] / v[valTPSAlone]
	}
	m.rec.Series = map[string][]float64{valTPS: series}
}

// restore makes a server of the copy that is there, or of a new one.
func (m *backupMeasure) restore(ctx context.Context) error {
	from, to := m.copyDir(), filepath.Join(m.bed.Shape.Dir, "restored")
	if _, err := os.Stat(from); err != nil {
		if _, err := m.makeCopy(ctx, from); err != nil {
			return err
		}
	}
	if err := m.fresh(to); err != nil {
		return err
	}
	begin := time.Now()
	if err := m.sys.Restore(ctx, m.tool, from, to); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	m.rec.Values[valRestoreS], m.rec.Values[valRestoreMB] = took, m.rec.Values[valDataMiB]/took
	return m.fresh(to)
}

// archive measures how old the newest transaction in the archive is while writers write.
func (m *backupMeasure) archive(ctx context.Context) (err error) {
	dir := filepath.Join(m.bed.Shape.Dir, "archive")
	if err := m.fresh(dir); err != nil {
		return err
	}
	var ages []lagSample
	_, err = m.withWriters(ctx, func(ctx context.Context) (err error) {
		a, err := m.sys.Archive(ctx, m.tool, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.Stop()) }()
		m.begin = time.Now()
		ages, err = watchArchive(ctx, a, m.begin.Add(archiveBegins), m.begin.Add(archiveBegins+m.length))
		return err
	})
	if err != nil {
		return err
	}
	p50, p99, longest := lagOf(ages)
	v := m.rec.Values
	v[valRPO50], v[valRPO99], v[valRPOMax] = p50.Seconds(), p99.Seconds(), longest.Seconds()
	m.rec.Series[valRPOMax] = lagSeries(ages, m.begin.Add(archiveBegins))
	return nil
}

// mark is a position in the log after everything that was committed before a given moment.
type mark struct {
	at       time.Time
	position uint64
}

// watchArchive marks the log from now on, and samples the age of the newest transaction in the archive between two
// moments.
func watchArchive(ctx context.Context, a rivals.Archive, from, end time.Time) (ages []lagSample, err error) {
	var marks []mark
	for next := time.Now(); time.Now().Before(end); {
		if now := time.Now(); !now.Before(next) {
			position, err := a.Now(ctx)
			if err != nil {
				return nil, fmt.Errorf("the end of the log: %w", err)
			}
			marks, next = append(marks, mark{now, position}), now.Add(markEvery)
		}
		reached, err := a.Reached()
		if err != nil {
			return nil, fmt.Errorf("the end of the archive: %w", err)
		}
		if at := time.Now(); !at.Before(from) {
			ages = append(ages, lagSample{at: at, lag: ageOf(marks, reached, at)})
		}
		if err := poll.Pause(ctx, archiveEvery); err != nil {
			return nil, err
		}
	}
	return ages, nil
}

// ageOf what an archive that reaches a position lacks: since when it lacks something, at the longest. Marks are in the
// order of time; before the first one nothing is known.
func ageOf(marks []mark, reached uint64, at time.Time) time.Duration {
	have := marks[0].at
	for _, m := range marks {
		if m.position > reached {
			break
		}
		have = m.at
	}
	return at.Sub(have)
}

// check compares tables without load at full speed, and under load at the default speed.
func (m *backupMeasure) check(ctx context.Context) error {
	sys, ok := m.bed.Running.(rivals.Checker)
	if !ok {
		return fmt.Errorf("%w: %s does not compare its servers", rivals.ErrNotHere, m.bed.System.Name)
	}
	var tables []string
	for i := range min(checkTables, m.bed.Settings.Tables) {
		tables = append(tables, fmt.Sprintf("sbtest%d", i+1))
	}
	run := func(ctx context.Context, share float64) (rate float64, err error) {
		r, err := sys.Check(ctx, tables, share)
		if err == nil && !r.OK() {
			err = fmt.Errorf("%w: %d differences, %d not checked: %v %v", errBroken, len(r.Differences), len(r.NotChecked),
				r.Differences, r.NotChecked)
		}
		m.rec.Values[valLocked] = float64(r.Locked)
		return float64(r.Rows) / r.Ended.Sub(r.Began).Seconds(), err
	}
	idle, err := run(ctx, 1)
	if err != nil {
		return err
	}
	var busy float64
	_, err = m.withWriters(ctx, func(ctx context.Context) (err error) {
		busy, err = run(ctx, checkShare)
		return err
	})
	m.rec.Values[valCheckRows], m.rec.Values[valBusyRows] = idle, busy
	return err
}
