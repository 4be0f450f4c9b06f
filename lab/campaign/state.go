package campaign

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"trireme/lab/verify"
)

// Part of a campaign: what was done and checked, and on what. It is one line of a state file.
type Part struct {
	At     time.Time         `json:"at"` // of its first fault
	System string            `json:"system"`
	Seed   uint64            `json:"seed"`
	Shape  string            `json:"shape"`           // nodes, loggers, durability, topology
	Drawn  map[string]string `json:"drawn,omitempty"` // what a swarm's seed has chosen, by what it is
	Kinds  []Kind            `json:"kinds"`
	Build  Build             `json:"build"`
	Ground Ground            `json:"ground"`

	Minutes     float64        `json:"minutes"`
	Faults      int            `json:"faults"` // that were made and checked
	Missed      int            `json:"missed"` // could not be made, because of what the one before had left
	LeaderKills int            `json:"leader_kills"`
	Partitions  int            `json:"partitions"`
	PowerLosses int            `json:"power_losses"`
	Counts      map[string]int `json:"counts"` // by kind and whom
	// faults during which writes had to go on, and lasted long enough to tell
	Demanded int `json:"demanded"`
	Unread   int `json:"unread,omitempty"` // checks that could look nothing up in the log
	// times without writes, and waits for recovery, on a machine without CPU to spare
	Unjudged  int            `json:"unjudged,omitempty"`
	Checks    int            `json:"checks"`
	Writes    verify.Counts  `json:"writes"`
	Problems  map[string]int `json:"problems,omitempty"`  // broken promises found by checks, by kind
	Undecided int            `json:"undecided,omitempty"` // what a checker could not decide within its limits
	// faults that were made, and checked by checkers that could not decide
	Uncounted  int               `json:"uncounted,omitempty"`
	Errors     []string          `json:"errors,omitempty"` // of the campaign itself: it ended with one
	Violations []string          `json:"violations,omitempty"`
	Seconds    map[phase]float64 `json:"seconds"` // where the time went
}

// Build is the program that was tested.
type Build struct {
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"`
	Modified   bool   `json:"modified,omitempty"`    // the sources were not those of the revision
	CommitPath string `json:"commit_path,omitempty"` // see CommitPath
	Tags       string `json:"tags,omitempty"`        // of the build
	Go         string `json:"go"`
}

// Ground is what it ran on.
type Ground struct {
	MySQL  string `json:"mysql"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
}

func (c *campaign) newPart() Part {
	p := Part{At: time.Now().UTC().Truncate(time.Second), System: c.System, Seed: c.Seed, Kinds: c.Kinds, Build: c.Build,
		Counts: map[string]int{}, Problems: map[string]int{}, Seconds: map[phase]float64{}}
	disks := "plain"
	if c.needs(needsDisks) {
		disks = "fault"
	}
	p.Shape = fmt.Sprintf("%d nodes, topology %s, disks %s", c.Nodes, c.Topology, disks)
	if c.ours() {
		p.Shape += fmt.Sprintf(", %d loggers, durability %s", c.Loggers, c.Durability)
	}
	if c.Learners > 0 {
		p.Shape += fmt.Sprintf(", %d learners", c.Learners)
	}
	if c.drawn != nil {
		p.Drawn = c.drawn.settings
	}
	p.Ground = Ground{MySQL: c.lab.Version, Kernel: kernel(), CPUs: runtime.NumCPU()}
	return p
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// add the counts of another part of the same campaign.
func (p *Part) add(o Part) {
	p.Faults += o.Faults
	p.Missed += o.Missed
	p.LeaderKills += o.LeaderKills
	p.Partitions += o.Partitions
	p.PowerLosses += o.PowerLosses
	p.Demanded += o.Demanded
	p.Unjudged += o.Unjudged
	p.Unread += o.Unread
	p.Checks += o.Checks
	p.Undecided += o.Undecided
	p.Uncounted += o.Uncounted
	p.Errors = append(p.Errors, o.Errors...)
	p.Minutes += o.Minutes
	p.Writes.Attempts += o.Writes.Attempts
	p.Writes.Acked += o.Writes.Acked
	p.Writes.Unknown += o.Writes.Unknown
	p.Writes.Failed += o.Writes.Failed
	p.Violations = append(p.Violations, o.Violations...)
	addCounts(p.Counts, o.Counts)
	addCounts(p.Problems, o.Problems)
	addCounts(p.Seconds, o.Seconds)
}

// discount the faults of a part whose check did not decide everything.
func (p *Part) discount() {
	p.Uncounted += p.Faults
	p.Faults, p.LeaderKills, p.Partitions, p.PowerLosses, p.Demanded = 0, 0, 0, 0, 0
	clear(p.Counts)
}

func addCounts[K comparable, N int | float64](to, more map[K]N) {
	for k, n := range more {
		to[k] += n
	}
}

func (p Part) empty() bool {
	return p.Faults == 0 && p.Missed == 0 && p.Uncounted == 0 && len(p.Violations) == 0 && len(p.Errors) == 0
}

// AppendState adds a line to a state file, which is made if it is missing.
func AppendState(path string, p Part) error { return appendLine(path, p) }

func appendLine(path string, line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n')) // in one piece: a line is there or it is not
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadState reads all parts of a state file, in order; none if there is no file.
func ReadState(path string) ([]Part, error) { return readLines[Part](path) }

func readLines[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []T
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		var line T
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s:%d is not a line of a campaign: %w", path, n, err)
		}
		out = append(out, line)
	}
	return out, sc.Err()
}

// StateName is the state file's place below the directory of reports.
const StateName = "results/campaigns.jsonl"
