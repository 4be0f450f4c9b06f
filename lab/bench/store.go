package bench

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"
)

// Results of one suite. On disk they are JSON lines, <out>/results/<suite>.jsonl: a Header, then a Record for each cell
// in the order in which they were measured. While a run is under way, and after it was interrupted, the name ends in
// ".part".
type Results struct {
	Header
	Records []Record
}

// Header says what was measured, and where.
type Header struct {
	Settings Settings `json:"settings"`
	Machine  Machine  `json:"machine"`
	MySQL    string   `json:"mysql"`
	Trireme  string   `json:"trireme"`
	// Servers are the systems with their variants, and the settings of servers, as shown.
	Servers [][2]string `json:"servers"`
	Started time.Time   `json:"started"`
	Ended   time.Time   `json:"ended,omitzero"` // zero while it is not complete
}

// Record is what came of one cell.
type Record struct {
	Key
	At      time.Time            `json:"at"`
	Seconds float64              `json:"seconds"` // that the cell took in all
	Values  map[string]float64   `json:"values,omitempty"`
	Series  map[string][]float64 `json:"series,omitempty"` // over time, one value a second unless the suite says otherwise
	Events  []Event              `json:"events,omitempty"` // of the series
	Hosts   []HostUse            `json:"hosts,omitempty"`
	// percent of the machine's CPU time that its hypervisor gave to others meanwhile
	Stolen float64 `json:"stolen,omitempty"`
	Note   string  `json:"note,omitempty"`
	NotRun string  `json:"not_run,omitempty"` // why
	Failed string  `json:"failed,omitempty"`  // it was run, and this is what became of it
	Broken string  `json:"broken,omitempty"`  // a promise of Trireme's that does not hold
}

// Event is something that was done in the course of a measurement.
type Event struct {
	Second float64 `json:"second"`
	Text   string  `json:"text"`
}

// errUnfinished: there are results of an interrupted run, and the caller did not say what is to become of them.
var errUnfinished = errors.New("an unfinished run is there")

// store appends results to a file.
type store struct {
	path    string // without ".part"
	results Results
	file    *os.File
}

func resultsPath(out, suite string) string { return filepath.Join(out, "results", suite+".jsonl") }

// openStore begins a new file of results, or goes on with an unfinished one if resume is set. With fresh an unfinished
// one is thrown away.
func openStore(out string, h Header, resume, fresh bool) (*store, error) {
	path := resultsPath(out, h.Settings.Suite)
	s := &store{path: path, results: Results{Header: h}}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	part := path + ".part"
	old, err := readResults(part)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.replaceable(resume, fresh); err != nil {
			return nil, err
		}
	case fresh: // whatever it is
	case err != nil:
		return nil, err
	case !resume:
		return nil, fmt.Errorf("%w: %s holds %d cells of %s; go on with --resume, or throw them away with --fresh",
			errUnfinished, part, len(old.Records), old.Started.Format("2006-01-02 15:04"))
	case !reflect.DeepEqual(old.Settings, h.Settings):
		return nil, fmt.Errorf("%s was run with other settings; resume with the same ones, or throw it away with --fresh",
			part)
	case old.MySQL != h.MySQL || old.Trireme != h.Trireme || old.Machine.CPUs != h.Machine.CPUs:
		return nil,
			fmt.Errorf("%s was run with MySQL %s and Trireme %s on %d CPUs, this is %s and %s on %d: they cannot be compared; throw it away with --fresh",
				part, old.MySQL, old.Trireme, old.Machine.CPUs, h.MySQL, h.Trireme, h.Machine.CPUs)
	default:
		s.results = old
		s.results.drop(func(r Record) bool { return r.NotRun != "" }) // another try
	}
	return s, s.rewrite()
}

// errComplete: the suite has been run with these settings.
var errComplete = errors.New("complete")

// replaceable reports whether a new run may take the place of a finished one: a quick one not of a full one, and with
// resume none of its own kind.
func (s *store) replaceable(resume, fresh bool) error {
	old, err := readResults(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || fresh:
		return nil
	case err != nil:
		return err
	case resume && reflect.DeepEqual(old.Settings, s.results.Settings):
		return fmt.Errorf("%s: %w", s.path, errComplete)
	case s.results.Settings.Quick && !old.Settings.Quick:
		return fmt.Errorf("%s holds a full run of %s, which a quick one does not replace: name another directory with --out, or throw it away with --fresh", s.path, old.Started.Format("2006-01-02"))
	}
	return nil
}

// rewrite begins the file with what is known.
func (s *store) rewrite() (err error) {
	if s.file, err = os.Create(s.path + ".part"); err != nil {
		return err
	}
	if err := s.write(s.results.Header); err != nil {
		return err
	}
	for _, r := range s.results.Records {
		if err := s.write(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) write(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = s.file.Write(append(b, '\n'))
	}
	return err
}

func (s *store) add(r Record) error {
	s.results.Records = append(s.results.Records, r)
	return s.write(r)
}

func (s *store) has(k Key) bool {
	for _, r := range s.results.Records {
		if r.Key == k {
			return true
		}
	}
	return false
}

// finish gives a complete run its name. One without a single figure is thrown away, and is an error.
func (s *store) finish(now time.Time) error {
	if all := s.results.Records; len(all) > 0 &&
		!slices.ContainsFunc(all, func(r Record) bool { return r.NotRun == "" && r.Failed == "" }) {
		return errors.Join(fmt.Errorf("%w: %s: %s", errNothing, all[0].Key, cmp.Or(all[0].NotRun, all[0].Failed)),
			s.file.Close(), os.Remove(s.path+".part"))
	}
	s.results.Ended = now
	if err := errors.Join(s.file.Close(), s.rewrite(), s.file.Close()); err != nil {
		return err
	}
	return os.Rename(s.path+".part", s.path)
}

func (r *Results) drop(f func(Record) bool) {
	var keep []Record
	for _, x := range r.Records {
		if !f(x) {
			keep = append(keep, x)
		}
	}
	r.Records = keep
}

// readResults reads a file of results. A last line that was not written to its end is ignored.
func readResults(path string) (r Results, err error) {
	f, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for n := 0; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if n == 0 {
				return r, fmt.Errorf("%s has no header: it holds no results of a run", path)
			}
			return r, nil
		}
		if n == 0 {
			err = json.Unmarshal(line, &r.Header)
		} else {
			var rec Record
			if err = json.Unmarshal(line, &rec); err == nil {
				r.Records = append(r.Records, rec)
			}
		}
		if err != nil {
			return r, fmt.Errorf("%s, line %d: %w", path, n+1, err)
		}
	}
}
