package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"
)

// Digest is what the results in a directory come to, for programs: what `trireme-lab bench run --json` and `trireme-lab
// bench report --json` print.
type Digest struct {
	Dir    string        `json:"dir"`
	Suites []SuiteDigest `json:"suites"`
}

// SuiteDigest is one suite's run.
type SuiteDigest struct {
	Suite    string    `json:"suite"`
	Quick    bool      `json:"quick"` // indicative only
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	Trireme  string    `json:"trireme"`
	MySQL    string    `json:"mysql"`
	Measured int       `json:"measured"` // cells with figures
	NotRun   []string  `json:"not_run"`  // why, for each other cell
	Failed   []string  `json:"failed"`
	Broken   []string  `json:"broken"` // promises of Trireme's

	Figures []Figure `json:"figures"`
}

// Figure compares Trireme with the best variant of one rival in one cell.
type Figure struct {
	Cell   Key    `json:"cell"`
	Name   string `json:"figure"`
	Lower  bool   `json:"lower_is_better"`
	Ours   Range  `json:"trireme"`
	Theirs Range  `json:"rival"`
	// Ratio is Trireme's median divided by the rival's; null where that is nothing.
	Ratio *float64 `json:"ratio"`
	Wide  bool     `json:"wide"` // runs lie too far apart to be sure
}

// Range of a figure over the rounds.
type Range struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// ReadDigest reads the results in a directory; empty: docs/benchmarks.
func ReadDigest(out string) (Digest, error) {
	if out == "" {
		out = DefaultOut
	}
	d := Digest{Dir: out, Suites: []SuiteDigest{}}
	for _, s := range Suites() {
		r, err := readResults(resultsPath(out, s.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return d, err
		}
		d.Suites = append(d.Suites, s.digest(&r))
	}
	if len(d.Suites) == 0 {
		return d, errNoResults(out)
	}
	return d, nil
}

func errNoResults(out string) error {
	return fmt.Errorf("no results in %s: measure first with trireme-lab bench run SUITE", filepath.Join(out, "results"))
}

func (s Suite) digest(r *Results) SuiteDigest {
	d := SuiteDigest{Suite: s.Name, Quick: r.Settings.Quick, Started: r.Started, Ended: r.Ended, Trireme: r.Trireme,
		MySQL: r.MySQL, NotRun: []string{}, Failed: []string{}, Broken: []string{}, Figures: []Figure{}}
	for _, rec := range r.Records {
		switch {
		case rec.NotRun != "":
			d.NotRun = append(d.NotRun, fmt.Sprintf("%s: %s", rec.Key, rec.NotRun))
		case rec.Failed != "":
			d.Failed = append(d.Failed, fmt.Sprintf("%s: %s", rec.Key, rec.Failed))
		default:
			d.Measured++
		}
		if rec.Broken != "" {
			d.Broken = append(d.Broken, fmt.Sprintf("%s: %s", rec.Key, rec.Broken))
		}
	}
	for _, x := range s.duels(r) {
		f := Figure{Cell: x.key, Name: x.metric.Name, Lower: x.metric.Lower, Ours: Range(x.ours), Theirs: Range(x.theirs),
			Wide: x.ours.wide() || x.theirs.wide()}
		if !math.IsInf(x.ratio, 0) {
			f.Ratio = &x.ratio
		}
		d.Figures = append(d.Figures, f)
	}
	return d
}
