package recorder

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"trireme/internal/api"
)

// Bounds of what a period is told as.
const (
	leastStep  = 10 * time.Second
	topLoads   = 100    // statements, kinds of sessions, files
	maxTracked = 50_000 // kinds of statements, or of sessions, that are told apart while a period is read
	maxTexts   = 10_000 // texts of statements that are held meanwhile
)

// steps are lengths of a bucket that people can read off an axis.
var steps = []time.Duration{leastStep, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 15 * time.Minute, 30 * time.Minute}

// Step is the length of a bucket of a period: the same for all nodes.
func Step(from, to time.Time) time.Duration {
	for _, s := range steps {
		if to.Sub(from) <= api.MaxBuckets*s {
			return s
		}
	}
	return time.Duration(math.Ceil(to.Sub(from).Hours()/api.MaxBuckets)) * time.Hour
}

// sums of a period.
type sums struct {
	from, to   time.Time
	step       time.Duration
	buckets    map[int64]*api.Interval // by the number of their step since 1970
	statements map[[2]string]*api.StatementLoad
	others     api.StatementLoad
	sessions   map[api.SessionLoad]int // Seen and Text are empty
	files      map[string]*api.FileWait
	texts      map[string]string
}

// Period adds up what was recorded from a time up to another one. One call at a time: a second one fails.
func (s *Store) Period(ctx context.Context, node string, from, to time.Time) (api.PeriodView, error) {
	if !s.reading.TryLock() {
		return api.PeriodView{}, api.Errorf(api.KindBusy, "%s reads its samples for somebody else", node).With("try again")
	}
	defer s.reading.Unlock()
	files, err := s.files()
	if err != nil {
		return api.PeriodView{}, err
	}
	t := &sums{from: from, to: to, step: Step(from, to), buckets: map[int64]*api.Interval{},
		statements: map[[2]string]*api.StatementLoad{}, sessions: map[api.SessionLoad]int{},
		files: map[string]*api.FileWait{}, texts: map[string]string{}}
	var oldest *time.Time
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return api.PeriodView{}, err
		}
		content, err := os.ReadFile(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its time was over
		}
		if err != nil {
			return api.PeriodView{}, err
		}
		err = frames(content, func(at time.Time, texts bool, body []byte) error {
			if oldest == nil || at.Before(*oldest) {
				oldest = &at
			}
			inside := !at.Before(from) && at.Before(to)
			if !inside && !texts {
				return ctx.Err()
			}
			frame, err := decode(body)
			if err != nil {
				return nil // written by another version
			}
			for d, text := range frame.Texts {
				if len(t.texts) < maxTexts {
					t.texts[d] = text
				}
			}
			if inside {
				t.add(frame)
			}
			return ctx.Err()
		})
		if err != nil {
			return api.PeriodView{}, err
		}
	}
	v := t.view()
	v.Node, v.Oldest = node, oldest
	return v, nil
}

// add takes up a frame.
func (t *sums) add(f *Frame) {
	number := f.At.UnixNano() / int64(t.step)
	b := t.buckets[number]
	if b == nil {
		b = &api.Interval{At: time.Unix(0, number*int64(t.step)).UTC()}
		t.buckets[number] = b
	}
	b.Add(f.Interval)
	if b.MySQL == nil {
		b.MySQL = map[string]uint64{}
	}
	f.Daemon.addTo(b.MySQL, daemonCPU, daemonMemory)
	f.Mysqld.addTo(b.MySQL, mysqldCPU, mysqldMemory)
	for _, s := range f.Statements {
		key := [2]string{s.Schema, s.Digest}
		if known := t.statements[key]; known != nil {
			known.Add(s)
		} else if len(t.statements) < maxTracked {
			t.statements[key] = &s
		} else {
			t.others.Add(s)
		}
	}
	if f.Others != nil {
		t.others.Add(*f.Others)
	}
	for _, s := range f.Sessions {
		seen := s.Seen
		s.Seen = 0
		if _, known := t.sessions[s]; !known && len(t.sessions) >= maxTracked {
			s = api.SessionLoad{Wait: s.Wait}
		}
		t.sessions[s] += seen
	}
	for _, w := range f.Files {
		if known := t.files[w.Event]; known != nil {
			known.Count, known.TimeS = known.Count+w.Count, known.TimeS+w.TimeS
		} else {
			t.files[w.Event] = &w
		}
	}
}

// view is the answer.
func (t *sums) view() api.PeriodView {
	v := api.PeriodView{From: t.from, To: t.to, StepS: t.step.Seconds(), Buckets: []api.Interval{},
		Statements: []api.StatementLoad{}, Sessions: []api.SessionLoad{}, FileWaits: []api.FileWait{}, Others: t.others}
	for _, number := range slices.Sorted(maps.Keys(t.buckets)) {
		v.Buckets = append(v.Buckets, *t.buckets[number])
	}
	for _, s := range t.statements {
		s.Text = t.texts[s.Digest]
		v.Statements = append(v.Statements, *s)
	}
	slices.SortFunc(v.Statements, byTime)
	for _, s := range v.Statements[min(len(v.Statements), topLoads):] {
		s.Text = ""
		v.Others.Add(s)
	}
	v.Statements = v.Statements[:min(len(v.Statements), topLoads)]
	for s, seen := range t.sessions {
		if s.Seen = seen; s.Digest != "" {
			s.Text = t.texts[s.Digest]
		}
		v.Sessions = append(v.Sessions, s)
	}
	slices.SortFunc(v.Sessions, func(a, b api.SessionLoad) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.Wait, b.Wait), cmp.Compare(a.State, b.State),
			cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.User, b.User))
	})
	v.Sessions = v.Sessions[:min(len(v.Sessions), topLoads)]
	for _, w := range t.files {
		v.FileWaits = append(v.FileWaits, *w)
	}
	slices.SortFunc(v.FileWaits, func(a, b api.FileWait) int {
		return cmp.Or(cmp.Compare(b.TimeS, a.TimeS), cmp.Compare(a.Event, b.Event))
	})
	v.FileWaits = v.FileWaits[:min(len(v.FileWaits), topLoads)]
	return v
}

// byTime sorts those that took the longest first.
func byTime(a, b api.StatementLoad) int {
	return cmp.Or(cmp.Compare(b.TimeS, a.TimeS), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Schema, b.Schema),
		cmp.Compare(a.Digest, b.Digest))
}
