package report

import (
	"math"
	"slices"
)

// style is how a series is drawn. Colours are the Okabe–Ito palette, which colour-blind readers tell apart; style.css
// has the values for light and dark pages, by number.
type style struct {
	colour int
	round  int // how often the colours had been used up: 0 is a solid line
	ours   bool
}

// Colour 0 is black on light pages and white on dark ones.
var (
	ourColours   = []int{0, 6, 5}
	theirColours = []int{1, 2, 3, 4, 5, 6, 7}
)

var dashes = []string{"", "6 3", "2 2.5", "9 3 2 3"}

func (s style) dash() string { return dashes[s.round%len(dashes)] }

// styles gives each name the same colour in every chart, and names of one chart different ones.
func styles(charts []Chart) map[string]style {
	var names []string
	ours := map[string]bool{}
	together := map[string]map[string]bool{} // in one chart
	for _, c := range charts {
		for _, s := range c.Series {
			if together[s.Name] == nil {
				together[s.Name] = map[string]bool{}
				names = append(names, s.Name)
			}
			ours[s.Name] = ours[s.Name] || s.Ours
			for _, other := range c.Series {
				together[s.Name][other.Name] = true
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(ours[a]) - rank(ours[b]) })
	out := map[string]style{}
	used := map[style]int{}
	for _, name := range names {
		taken := map[style]bool{}
		for other := range together[name] {
			if s, ok := out[other]; ok {
				taken[style{colour: s.colour, round: s.round}] = true
			}
		}
		s := freeStyle(ours[name], taken, used)
		used[s]++
		s.ours = ours[name]
		out[name] = s
	}
	return out
}

// rank puts ours first.
func rank(ours bool) int {
	if ours {
		return 0
	}
	return 1
}

// freeStyle is the least used of the first styles that are not taken.
func freeStyle(ours bool, taken map[style]bool, used map[style]int) style {
	colours := theirColours
	if ours {
		colours = ourColours
	}
	for round := 0; ; round++ {
		best, uses := style{}, math.MaxInt
		for _, colour := range colours {
			s := style{colour: colour, round: round}
			if !taken[s] && used[s] < uses {
				best, uses = s, used[s]
			}
		}
		if uses < math.MaxInt {
			return best
		}
	}
}

// charts of the document, in order.
func (d Document) charts() []Chart {
	var out []Chart
	var walk func(blocks []Block, sections []Section)
	walk = func(blocks []Block, sections []Section) {
		for _, b := range blocks {
			if c, ok := b.(Chart); ok {
				out = append(out, c)
			}
		}
		for _, s := range sections {
			walk(s.Blocks, s.Sections)
		}
	}
	walk(d.Blocks, d.Sections)
	return out
}
