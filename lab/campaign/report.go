package campaign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// Names of files below the directory of reports.
const (
	ReportName = "report.md"
	FoundName  = "found.md" // bugs, with what guards them; written manually
)

// wanted figures, of the real servers.
var wanted = []struct {
	what string
	of   func(Part) int
	want int
}{
	{"leader kills", func(p Part) int { return p.LeaderKills }, 2000},
	{"partitions", func(p Part) int { return p.Partitions }, 500},
	{"power losses", func(p Part) int { return p.PowerLosses }, 300},
}

// Standing is what the counts come to on one commit path.
type Standing struct {
	File       string     `json:"file"` // the report
	Build      Build      `json:"build"`
	Parts      int        `json:"parts"` // of campaigns on this commit path
	Faults     int        `json:"faults"`
	Checks     int        `json:"checks"`
	Acked      int64      `json:"acknowledged"` // writes
	Wanted     []Progress `json:"wanted"`
	Violations []string   `json:"violations"`
}

// Progress is a count and its goal.
type Progress struct {
	What   string `json:"what"`
	Done   int    `json:"done"`
	Wanted int    `json:"wanted"`
}

// CountsName is a file below the directory of reports that git keeps: the lines of the state file that count, those of
// one commit path. State files are not kept; this file is, so campaigns on several machines add up.
const CountsName = "counts.jsonl"

// Report draws the report of what is in the state file below a directory, and of what counted before. Counts of the
// given build's commit path count, others are shown as older ones.
func Report(dir string, b Build, say io.Writer) (Standing, error) {
	parts, err := keepCounts(dir, b)
	if err != nil {
		return Standing{}, err
	}
	seeds, err := readLines[Seeds](filepath.Join(dir, SimulationName))
	if err != nil {
		return Standing{}, err
	}
	found, err := os.ReadFile(filepath.Join(dir, FoundName))
	if err != nil && !os.IsNotExist(err) {
		return Standing{}, err
	}
	path := filepath.Join(dir, ReportName)
	f, err := os.Create(path)
	if err != nil {
		return Standing{}, err
	}
	defer f.Close()
	if err := document(parts, seeds, b, string(found)).Markdown(f, ""); err != nil {
		return Standing{}, err
	}
	fmt.Fprintf(say, "%s: %d parts of campaigns, %d of simulations\n", path, len(parts), len(seeds))
	return standingOf(path, parts, seeds, b), f.Close()
}

// keepCounts reads both files, each line once, and keeps what counts for a build.
func keepCounts(dir string, b Build) ([]Part, error) {
	path := filepath.Join(dir, CountsName)
	before, err := ReadState(path)
	if err != nil {
		return nil, err
	}
	now, err := ReadState(filepath.Join(dir, StateName))
	if err != nil {
		return nil, err
	}
	var parts []Part
	for _, p := range append(before, now...) {
		if !slices.ContainsFunc(parts, func(q Part) bool { return p.same(q) }) {
			parts = append(parts, p)
		}
	}
	slices.SortStableFunc(parts, func(x, y Part) int { return x.At.Compare(y.At) })
	var out bytes.Buffer
	for _, p := range parts {
		if p.ours() && b.counts(p.Build) {
			line, err := json.Marshal(p)
			if err != nil {
				return nil, err
			}
			out.Write(append(line, '\n'))
		}
	}
	if out.Len() == 0 {
		return parts, nil // another path's counts stay until there are some of this one
	}
	return parts, os.WriteFile(path, out.Bytes(), 0o644)
}

// same says whether two lines tell of the same part of the same campaign.
func (p Part) same(q Part) bool {
	return p.At.Equal(q.At) && p.Seed == q.Seed && p.System == q.System && p.Minutes == q.Minutes
}

// standingOf counts what is of the build's own commit path.
func standingOf(path string, parts []Part, seeds []Seeds, b Build) Standing {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return !p.ours() || !b.counts(p.Build) })
	seeds = slices.DeleteFunc(slices.Clone(seeds), func(s Seeds) bool { return !b.counts(s.Build) })
	s := sum(parts)
	out := Standing{File: path, Build: b, Parts: len(parts), Faults: s.Faults, Checks: s.Checks, Acked: s.Writes.Acked,
		Violations: append([]string{}, s.Violations...)}
	for _, w := range wanted {
		out.Wanted = append(out.Wanted, Progress{w.what, w.of(s), w.want})
	}
	for _, x := range seeds {
		out.Violations = append(out.Violations, x.Violations...)
	}
	out.Wanted = append(out.Wanted, Progress{seedsRow, distinct(seeds), wantedSeeds})
	return out
}

// counts reports whether what another build did is of this one's commit path.
func (b Build) counts(other Build) bool {
	return b.CommitPath != "" && b.CommitPath == other.CommitPath
}

// ours reports whether a part is about Trireme.
func (p Part) ours() bool { return strings.HasPrefix(p.System, "trireme") }

func document(parts []Part, seeds []Seeds, b Build, found string) report.Document {
	var current, older, rivals []Part
	for _, p := range parts {
		switch {
		case !p.ours():
			rivals = append(rivals, p)
		case b.counts(p.Build):
			current = append(current, p)
		default:
			older = append(older, p)
		}
	}
	slices.SortStableFunc(rivals, func(a, b Part) int { return cmp.Compare(a.System, b.System) })
	seeds = slices.DeleteFunc(slices.Clone(seeds), func(s Seeds) bool { return !b.counts(s.Build) })
	d := report.Document{Title: "What fault campaigns have shown", Blocks: []report.Block{
		report.Text("Made by `trireme-lab verify report` from `" + StateName + "` and `" + CountsName +
			"`; nothing here is typed manually. [What the kit does, how to run it, and what it does not show](README.md)."),
		standing(current, b),
	}}
	d.Blocks = append(d.Blocks, reasons(current, found)...)
	d.Sections = append(d.Sections, report.Section{ID: "counts", Title: "Counts, and the counts required",
		Blocks: []report.Block{wantedTable(sum(current), seeds), simulated(seeds)}})
	if len(current) > 0 {
		d.Sections = append(d.Sections, report.Section{ID: "kinds", Title: "Faults by kind", Blocks: byKind(current)},
			report.Section{ID: "shapes", Title: "Faults by shape", Blocks: []report.Block{shapeTable(current)}},
			report.Section{ID: "runs", Title: "Runs", Blocks: []report.Block{runTable(current)}})
	}
	if len(older) > 0 {
		d.Sections = append(d.Sections, report.Section{ID: "older", Title: "Runs of other commit paths",
			Blocks: append([]report.Block{
				report.Text("These no longer count: sources on the commit path have changed since."), runTable(older)},
				append(byKind(older), reasons(older, found)...)...)})
	}
	if len(rivals) > 0 {
		d.Sections = append(d.Sections, report.Section{ID: "rivals", Title: "The same campaign against rivals",
			Blocks: []report.Block{
				report.Text(
					"After each violation the rival was started again. A rival that loses something shows that the checks see it."),
				rivalTable(rivals)}})
	}
	d.Sections = append(d.Sections,
		report.Section{ID: "found", Title: "What was found", Blocks: []report.Block{foundText(found)}})
	return d
}

// standing is the verdict in a sentence.
func standing(current []Part, b Build) report.Block {
	s := sum(current)
	switch {
	case b.CommitPath == "":
		return report.Text("**" + unmade + "**, so it does not know its commit path, and no run counts for it.")
	case len(current) == 0:
		return report.Text(fmt.Sprintf("No campaign has been run on the present commit path (`%s`) yet.", b.CommitPath))
	case len(s.Violations) > 0:
		return report.Text(
			fmt.Sprintf("On the present commit path (`%s`): %d faults, %d checks of everything, %d acknowledged writes, **%d violation(s)**: %s. What the checks found: %s.",
				b.CommitPath, s.Faults, s.Checks, s.Writes.Acked, len(s.Violations), violationList(s.Violations),
				problemList(s.Problems)))
	}
	besides := ""
	if s.Undecided > 0 || len(s.Errors) > 0 {
		besides =
			fmt.Sprintf(" Not counted: %d faults, because the checkers could not decide %d histories; and what %d campaigns that failed themselves had done since their last check.", s.Uncounted, s.Undecided, len(s.Errors))
	}
	if s.Faults == 0 || s.Checks == 0 {
		return report.Text(fmt.Sprintf("**Not shown** on the present commit path (`%s`): %s.", b.CommitPath,
			strings.Join(s.gaps(), ", ")))
	}
	return report.Text(
		fmt.Sprintf("On the present commit path (`%s`): %d faults, %d checks of everything, %d acknowledged writes, **nothing lost, nothing doubled, all nodes equal, and the cluster recovered from every fault**.%s",
			b.CommitPath, s.Faults, s.Checks, s.Writes.Acked, besides))
}

func sum(parts []Part) Part {
	s := Part{Counts: map[string]int{}, Problems: map[string]int{}, Seconds: map[phase]float64{}}
	for _, p := range parts {
		s.add(p)
	}
	return s
}

func number(n int) report.Cell { return report.Cell{Text: fmt.Sprint(n)} }

// seedsRow names the seeds of the simulation, of which wantedSeeds are wanted.
const (
	seedsRow    = "seeds of the simulation"
	wantedSeeds = 10000
)

// simulated tells what the simulation came to.
func simulated(seeds []Seeds) report.Block {
	hours, broken, with := 0.0, []string{}, Tops{}
	for _, s := range seeds {
		broken = append(broken, s.Violations...)
		if s.whole() {
			hours += s.Simulated
			with.add(s.Tops)
		}
	}
	if len(broken) > 0 {
		return report.Text(fmt.Sprintf("**The simulation found %d violations**: %s", len(broken), strings.Join(broken, "; ")))
	}
	return report.Text(
		fmt.Sprintf("Simulation: %d different seeds, each of consensus alone and of whole nodes with a model of mysqld; %.0f hours of simulated time, no violation. With mysqld: %d acknowledged transactions, %d promotions that opened writes, %d transactions marked as executed by the judge.",
			distinct(seeds), hours, with["mysqld"]["acked"], with["mysqld"]["opens"], with["mysqld"]["plugged"]))
}

func wantedTable(s Part, seeds []Seeds) report.Block {
	t := report.Table{Columns: []report.Column{{Title: "figure"}, {Title: "counted", Number: true},
		{Title: "wanted", Number: true}, {Title: ""}}}
	row := func(what string, n, want int) {
		verdict := "reached"
		if n < want {
			verdict = fmt.Sprintf("%d missing", want-n)
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: what}, number(n), number(want), {Text: verdict}})
	}
	for _, w := range wanted {
		row(w.what, w.of(s), w.want)
	}
	row(seedsRow, distinct(seeds), wantedSeeds)
	return t
}

// enough faults of a kind, or of a shape, to say something about it.
const enough = 100

// few says that a count is below that.
func few(n int) report.Cell {
	if n >= enough {
		return report.Cell{}
	}
	return report.Cell{Text: fmt.Sprintf("below %d", enough)}
}

// byKind: kinds of faults, and how many of them were judged by whether writes went on.
func byKind(parts []Part) []report.Block {
	s := sum(parts)
	return []report.Block{report.Text(
		fmt.Sprintf("During %d of the faults a majority was intact, so writes had to continue, and did ([limits](README.md#limits)). %d times without writes, and waits for recovery, "+
			"were not judged, because the machine had no CPU to spare.", s.Demanded, s.Unjudged)), kindTable(s)}
}

func kindTable(s Part) report.Block {
	roles := []Whom{Leader, Follower, Logger, Majority, All}
	t := report.Table{Columns: []report.Column{{Title: "fault"}, {Title: "what happens"}}}
	for _, w := range roles {
		t.Columns = append(t.Columns, report.Column{Title: string(w), Number: true})
	}
	t.Columns = append(t.Columns, report.Column{Title: "in all", Number: true}, report.Column{Title: ""})
	for _, k := range kinds {
		row := []report.Cell{{Text: string(k.name)}, {Text: k.means}}
		all := 0
		for _, w := range roles {
			cell := report.Cell{}
			if n := s.Counts[string(k.name)+" "+string(w)]; n > 0 {
				cell, all = number(n), all+n
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, append(row, number(all), few(all)))
	}
	return t
}

// shapeTable counts faults by each thing that seeds have chosen. Runs that were not of a swarm have one shape in words.
func shapeTable(parts []Part) report.Block {
	counts := map[[2]string]int{}
	for _, p := range parts {
		for what, value := range p.Drawn {
			counts[[2]string{what, value}] += p.Faults
		}
		if p.Drawn == nil {
			counts[[2]string{"named", p.Shape}] += p.Faults
		}
	}
	t := report.Table{Columns: []report.Column{{Title: "what"}, {Title: "value"}, {Title: "faults", Number: true},
		{Title: ""}}}
	for _, k := range slices.SortedFunc(maps.Keys(counts),
		func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		t.Rows = append(t.Rows, []report.Cell{{Text: k[0]}, {Text: k[1]}, number(counts[k]), few(counts[k])})
	}
	return t
}

func runTable(parts []Part) report.Block {
	t := report.Table{Columns: []report.Column{{Title: "begun"}, {Title: "build"}, {Title: "shape"},
		{Title: "MySQL, kernel, CPUs"}, {Title: "seed"}, {Title: "minutes", Number: true}, {Title: "faults", Number: true},
		{Title: "leader kills", Number: true}, {Title: "partitions", Number: true}, {Title: "power losses", Number: true},
		{Title: "acknowledged", Number: true}, {Title: "violations", Number: true}}}
	for _, p := range parts {
		t.Rows = append(t.Rows, []report.Cell{{Text: p.At.Format("2006-01-02 15:04")}, {Text: p.Build.String()},
			{Text: p.Shape}, {Text: fmt.Sprintf("%s, %s, %d", p.Ground.MySQL, p.Ground.Kernel, p.Ground.CPUs)},
			{Text: fmt.Sprint(p.Seed)}, {Text: fmt.Sprintf("%.0f", p.Minutes)}, number(p.Faults), number(p.LeaderKills),
			number(p.Partitions), number(p.PowerLosses), {Text: fmt.Sprint(p.Writes.Acked)}, number(len(p.Violations))})
	}
	return t
}

func (b Build) String() string {
	out := b.Revision
	if len(out) > 10 {
		out = out[:10]
	}
	if b.Modified {
		out += " with changes"
	}
	return strings.TrimSpace(out + " (commit path " + cmp.Or(b.CommitPath, "not known") + ", " + b.Go + ")")
}

func rivalTable(parts []Part) report.Block {
	t := report.Table{Columns: []report.Column{{Title: "system"}, {Title: "runs with seeds"},
		{Title: "minutes", Number: true}, {Title: "faults", Number: true}, {Title: "acknowledged", Number: true},
		{Title: "broken promises", Number: true}, {Title: "what the checks found"}, {Title: "what was broken"}}}
	for i := 0; i < len(parts); {
		end := i
		for end < len(parts) && parts[end].System == parts[i].System {
			end++
		}
		s := sum(parts[i:end])
		var seeds []string
		for _, p := range parts[i:end] {
			if text := fmt.Sprint(p.Seed); !slices.Contains(seeds, text) {
				seeds = append(seeds, text)
			}
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: title(parts[i].System)}, {Text: strings.Join(seeds, ", ")},
			{Text: fmt.Sprintf("%.0f", s.Minutes)}, number(s.Faults), {Text: fmt.Sprint(s.Writes.Acked)},
			number(len(s.Violations)), {Text: problemList(s.Problems)}, {Text: violationList(s.Violations)}})
		i = end
	}
	return t
}

func title(system string) string {
	if s, err := rivals.Find(system); err == nil {
		return s.Title
	}
	return system
}

// violationList has the beginning of each: servers word some of them at length.
func violationList(violations []string) string {
	const most = 300
	out := make([]string, len(violations))
	for i, v := range violations {
		if out[i] = v; len(v) > most {
			out[i] = strings.ToValidUTF8(v[:most], "") + "…"
		}
	}
	return strings.Join(out, "; ")
}

func problemList(problems map[string]int) string {
	var out []string
	for what, n := range problems {
		out = append(out, fmt.Sprintf("%d × %s", n, what))
	}
	slices.Sort(out)
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// noFalseAlarm is in a reason that is not the kit's own fault.
const noFalseAlarm = "no false alarm"

// reasons are those that the list of what was found gives for violations, the kit's own faults among them: list items
// that begin with the seed. The violation stays counted.
func reasons(parts []Part, found string) (out []report.Block) {
	for _, p := range parts {
		_, reason, listed := strings.Cut(found, fmt.Sprintf("\n* seed %d of %s ", p.Seed, p.At.Format(time.DateOnly)))
		if len(p.Violations) == 0 || !listed {
			continue
		}
		reason, _, _ = strings.Cut(reason, "\n* ")
		reason, _, _ = strings.Cut(reason, "\n\n")
		whose := "A fault of the kit"
		if strings.Contains(reason, noFalseAlarm) {
			whose = "The reason"
		}
		out = append(out, report.Text(fmt.Sprintf("%s, by [%s](%s): seed %d %s", whose, FoundName, FoundName, p.Seed,
			strings.Join(strings.Fields(reason), " "))))
	}
	return out
}

// foundText says how many bugs the list has.
func foundText(found string) report.Block {
	rows := 0
	for line := range strings.Lines(found) {
		if strings.HasPrefix(line, "|") {
			rows++
		}
	}
	if rows < 3 {
		return report.Text("Nothing is listed in [" + FoundName + "](" + FoundName + ").")
	}
	return report.Text(fmt.Sprintf("%d bugs, each with the seed or test that guards it: [%s](%s).", rows-2, FoundName,
		FoundName))
}
