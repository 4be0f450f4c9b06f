package wan

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Link is what lies between two hosts, the same in both directions.
type Link struct {
	RTT    time.Duration `toml:"rtt"`    // round trip: half of it in each direction
	Jitter time.Duration `toml:"jitter"` // each packet takes up to this much longer, uniformly; order is kept
	Loss   float64       `toml:"loss"`   // probability that a packet is lost, 0 to 1
	Rate   Rate          `toml:"rate"`   // in each direction; 0: no limit
}

func (l Link) validate() error {
	const most = 10 * time.Second
	switch {
	case l.RTT < 0 || l.RTT > most:
		return fmt.Errorf("rtt %v is not between 0 and %v", l.RTT, most)
	case l.Jitter < 0 || l.Jitter > most:
		return fmt.Errorf("jitter %v is not between 0 and %v", l.Jitter, most)
	case !(l.Loss >= 0 && l.Loss <= 1):
		return fmt.Errorf("loss %v is not between 0 and 1", l.Loss)
	case l.Rate != 0 && l.Rate < kbit || l.Rate > 1000*gbit:
		return fmt.Errorf("rate %v is not between 1kbit and 1000Gbit", l.Rate)
	}
	return nil
}

// Rate in bits per second. In a file it is text with a decimal unit ("100Mbit").
type Rate int64

const (
	kbit Rate = 1e3
	mbit Rate = 1e6
	gbit Rate = 1e9
)

var rateUnits = []struct {
	name string
	rate Rate
}{{"Gbit", gbit}, {"Mbit", mbit}, {"kbit", kbit}}

// UnmarshalText reads a rate with its unit.
func (r *Rate) UnmarshalText(text []byte) error {
	for _, u := range rateUnits {
		number, found := strings.CutSuffix(string(text), u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n > 0 && n < 1e6) {
			break
		}
		*r = Rate(n * float64(u.rate))
		return nil
	}
	return fmt.Errorf(
		"%q is not a rate; write a number with a unit, such as \"100Mbit\" (units, per second: kbit Mbit Gbit)", text)
}

func (r Rate) String() string {
	for _, u := range rateUnits {
		if r >= u.rate {
			return strconv.FormatFloat(float64(r)/float64(u.rate), 'g', 4, 64) + u.name
		}
	}
	return strconv.FormatInt(int64(r), 10) + "bit"
}

// Topology says what the links between any number of hosts are like: each host stands in a site.
type Topology struct {
	Name    string
	Sites   []string // of the first host, the second, …; begun again when there are more hosts
	Within  Link     // between hosts of one site
	between map[[2]string]Link
}

// Site of host i, counted from 0.
func (t Topology) Site(i int) string { return t.Sites[i%len(t.Sites)] }

// Link between hosts i and j.
func (t Topology) Link(i, j int) Link {
	a, b := t.Site(i), t.Site(j)
	if a == b {
		return t.Within
	}
	return t.between[pair(a, b)]
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

//go:embed presets/*.toml
var presets embed.FS

// Presets are the names of the topologies that Load knows.
func Presets() []string {
	files, err := presets.ReadDir("presets")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	return names
}

// Load reads a topology: a preset by its name, or else a file.
func Load(name string) (Topology, error) {
	if slices.Contains(Presets(), name) {
		text, err := presets.ReadFile("presets/" + name + ".toml")
		if err != nil {
			return Topology{}, err
		}
		return parseTopology(name, text)
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return Topology{}, fmt.Errorf("topology %q is neither a file nor one of %s", name, strings.Join(Presets(), ", "))
	}
	if err != nil {
		return Topology{}, err
	}
	return parseTopology(name, text)
}

// file is a topology as it is written.
type file struct {
	Sites   []string  `toml:"sites"`
	Within  Link      `toml:"within"`
	Between []between `toml:"between"`
}

// between is the link of two sites; of all pairs without one of their own if no sites are named.
type between struct {
	Sites []string `toml:"sites"`
	Link
}

func parseTopology(name string, text []byte) (Topology, error) {
	fail := func(format string, args ...any) (Topology, error) {
		return Topology{}, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...))
	}
	var f file
	md, err := toml.Decode(string(text), &f)
	if err != nil {
		return fail("%w", err)
	}
	if unknown := md.Undecoded(); len(unknown) > 0 {
		return fail("unknown key %s; known are sites, within, [[between]] with sites, and for both rtt, jitter, loss, rate",
			unknown[0])
	}
	if len(f.Sites) == 0 {
		return fail("sites is missing: a list with the site of each host, such as sites = [\"a\", \"a\", \"b\"]")
	}
	if err := f.Within.validate(); err != nil {
		return fail("within: %w", err)
	}
	t := Topology{Name: strings.TrimSuffix(filepath.Base(name), ".toml"), Sites: f.Sites, Within: f.Within,
		between: map[[2]string]Link{}}
	var others *Link
	for _, b := range f.Between {
		if err := b.Link.validate(); err != nil {
			return fail("between %v: %w", b.Sites, err)
		}
		switch {
		case len(b.Sites) == 0 && others == nil:
			others = &b.Link
			continue
		case len(b.Sites) == 0:
			return fail("two [[between]] name no sites; one may, and stands for all pairs without one of their own")
		case len(b.Sites) != 2 || b.Sites[0] == b.Sites[1]:
			return fail("between %v: sites are two different ones", b.Sites)
		}
		for _, s := range b.Sites {
			if !slices.Contains(f.Sites, s) {
				return fail("between %v: no host is in site %q", b.Sites, s)
			}
		}
		key := pair(b.Sites[0], b.Sites[1])
		if _, twice := t.between[key]; twice {
			return fail("between %v is given twice", b.Sites)
		}
		t.between[key] = b.Link
	}
	return t, t.complete(name, others)
}

// complete gives every pair of sites its link.
func (t Topology) complete(name string, others *Link) error {
	for i, a := range t.Sites {
		for _, b := range t.Sites[:i] {
			if _, ok := t.between[pair(a, b)]; a == b || ok {
				continue
			}
			if others == nil {
				return fmt.Errorf("%s: no [[between]] says what lies between sites %q and %q", name, b, a)
			}
			t.between[pair(a, b)] = *others
		}
	}
	return nil
}

// Links are the different ones of a topology, the shortest first.
func (t Topology) Links() []Link {
	links := []Link{t.Within}
	for _, l := range t.between {
		if !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.RTT, b.RTT), cmp.Compare(a.Jitter, b.Jitter), cmp.Compare(a.Loss, b.Loss),
			cmp.Compare(a.Rate, b.Rate))
	})
	return links
}

// String tells a link's properties, such as "30ms + 1ms jitter, 0.1 % lost, 100Mbit".
func (l Link) String() string {
	out := l.RTT.String()
	if l.Jitter > 0 {
		out += fmt.Sprintf(" + %v jitter", l.Jitter)
	}
	if l.Loss > 0 {
		out += fmt.Sprintf(", %g %% lost", 100*l.Loss)
	}
	if l.Rate > 0 {
		out += fmt.Sprintf(", %v", l.Rate)
	}
	return out
}
