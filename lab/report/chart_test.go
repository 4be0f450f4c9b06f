package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func figureOf(t *testing.T, c Chart) string {
	t.Helper()
	var page strings.Builder
	if err := (Document{Title: "T", Blocks: []Block{c}}).HTML(&page); err != nil {
		t.Fatal(err)
	}
	checkWellFormed(t, page.String())
	_, figure, ok := strings.Cut(page.String(), "<figure")
	if !ok {
		t.Fatal(page.String())
	}
	return figure
}

func points(ys ...float64) []Point {
	var out []Point
	for i, y := range ys {
		out = append(out, Point{X: float64(i), Y: y})
	}
	return out
}

// TestOddCharts draws what charts must not break at.
func TestOddCharts(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	one := func(log bool, p []Point) Chart {
		return Chart{Title: "T", X: "x", Y: "y", LogX: log, LogY: log, Series: []Series{{Name: "s", Points: p}}}
	}
	for name, c := range map[string]struct {
		chart      Chart
		moves      int // pieces of the line
		marks      int // points
		nothing    bool
		wantsLabel string
	}{
		"gap":            {chart: one(false, points(1, 2, nan, 3, inf, 4)), moves: 3, marks: 4},
		"single point":   {chart: one(false, []Point{{5, 7, 6, 8}}), moves: 1, marks: 1, wantsLabel: "5"},
		"single at zero": {chart: one(false, points(0)), moves: 1, marks: 1},
		"all zeros":      {chart: one(false, points(0, 0, 0)), moves: 1, marks: 3},
		"negative":       {chart: one(false, points(-5, -7)), moves: 1, marks: 2, wantsLabel: "−8"},
		"log with zeros": {chart: one(true, []Point{{1, 0, 0, 0}, {0, 3, 0, 0}, {-1, 4, 0, 0}, {2, 5, 0, 9}, {4, 6, 0, 0}}),
			moves: 1, marks: 2, wantsLabel: "2"},
		"no points":      {chart: one(false, nil), nothing: true},
		"no series":      {chart: Chart{Title: "T"}, nothing: true},
		"only NaN":       {chart: one(false, points(nan, nan)), nothing: true},
		"log, all zeros": {chart: one(true, points(0, 0)), nothing: true},
		"NaN X":          {chart: one(false, []Point{{nan, 1, 0, 0}, {1, 1, 0, 0}}), moves: 1, marks: 1},
		"huge":           {chart: one(false, points(1e99, -1e99, math.MaxFloat64)), moves: 1, marks: 2},
		"tiny":           {chart: one(false, points(5e-324, 1e-310)), moves: 1, marks: 2},
		"NaN spread":     {chart: one(false, []Point{{1, 1, nan, inf}, {2, 1, 1, 2}}), moves: 1, marks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			figure := figureOf(t, c.chart)
			if got := strings.Contains(figure, ">No data<"); got != c.nothing {
				t.Errorf("says that there are no data: %v", got)
			}
			if line := regexp.MustCompile(`<path class="curve" d="(M[^"]*L[^"]*|M[^"]*h0\.01[^"]*)"`).FindStringSubmatch(figure); c.moves > 0 && (line == nil || strings.Count(line[1], "M") != c.moves) {
				t.Errorf("line %q, want %d pieces", line, c.moves)
			}
			if n := strings.Count(figure, "<title>"); n != c.marks {
				t.Errorf("%d marks, want %d", n, c.marks)
			}
			if c.wantsLabel != "" && !strings.Contains(figure, ">"+c.wantsLabel+"</text>") {
				t.Errorf("no label %q", c.wantsLabel)
			}
			if t.Failed() {
				t.Log(figure)
			}
		})
	}
}

// TestInsidePlot draws any chart and looks for points outside of the picture.
func TestInsidePlot(t *testing.T) {
	coordinate := regexp.MustCompile(` (c?[xy][12]?|width|height)="([^"]*)"`)
	value := rapid.OneOf(rapid.Float64Range(-1e9, 1e9), rapid.Float64Range(0, 1),
		rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(-1), 1e300, 1e-300, 1e99, 1e-99}))
	rapid.Check(t, func(rt *rapid.T) {
		c := Chart{Title: "T", X: "x", Y: "y", LogX: rapid.Bool().Draw(rt, "logX"), LogY: rapid.Bool().Draw(rt, "logY")}
		for i := range rapid.IntRange(0, 12).Draw(rt, "series") {
			s := Series{Name: fmt.Sprint("series ", i), Ours: rapid.Bool().Draw(rt, "ours")}
			for range rapid.IntRange(0, 3).Draw(rt, "points") {
				s.Points = append(s.Points, Point{value.Draw(rt, "x"), value.Draw(rt, "y"), value.Draw(rt, "low"),
					value.Draw(rt, "high")})
			}
			c.Series = append(c.Series, s)
		}
		figure := c.figure("id", styles([]Chart{c}), small, false)
		_, picture, _ := strings.Cut(figure, "<desc")
		for _, m := range coordinate.FindAllStringSubmatch(picture, -1) {
			if v, err := strconv.ParseFloat(m[2], 64); err != nil || !(v >= 0 && v <= small.width) {
				rt.Fatalf("%s\n%s", m[0], figure)
			}
		}
		if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
			rt.Fatal(figure)
		}
	})
}

func TestOursOnTop(t *testing.T) {
	figure := figureOf(t,
		Chart{Title: "T", Series: []Series{{Name: "us", Ours: true, Points: points(1, 2)},
			{Name: "them", Points: points(1, 2)}}})
	ours, theirs := strings.Index(figure, `<g class="c0 ours"><path class="curve"`),
		strings.Index(figure, `<g class="c1"><path class="curve"`)
	if ours < 0 || theirs < 0 || ours < theirs {
		t.Error("ours is not drawn last", ours, theirs)
	}
}

// TestStyles: names that stand in one chart differ, a name keeps its style, and colours are reused only where they must
// be.
func TestStyles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var charts []Chart
		for range rapid.IntRange(0, 5).Draw(t, "charts") {
			var c Chart
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 0, 12, rapid.ID).Draw(t, "names") {
				c.Series = append(c.Series, Series{Name: fmt.Sprint(n), Ours: n < 2})
			}
			charts = append(charts, c)
		}
		all := styles(charts)
		for _, c := range charts {
			seen := map[style]string{}
			for _, s := range c.Series {
				st := all[s.Name]
				if st.ours != s.Ours {
					t.Fatalf("%s: ours is %v", s.Name, st.ours)
				}
				st.ours = false
				if seen[st] != "" {
					t.Fatalf("%s and %s look alike", s.Name, seen[st])
				}
				seen[st] = s.Name
			}
		}
	})
	for name, s := range styles(sample().charts()) {
		if s.round > 0 && !strings.HasPrefix(name, "M") && !strings.HasPrefix(name, "oltp") {
			t.Errorf("%s is dashed", name)
		}
	}
}

// TestEvents: labels stand apart and inside the picture, and no mark crosses one, as long as there is room.
func TestEvents(t *testing.T) {
	const width = 1080
	place := func(events []Event) []placed {
		return placeEvents(events, func(v float64) (float64, bool) { return v, v >= 0 && v <= width }, width)
	}
	rapid.Check(t, func(t *rapid.T) {
		var events []Event
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			events = append(events, Event{float64(rapid.IntRange(40, 1070).Draw(t, "x")),
				strings.Repeat("word ", rapid.IntRange(1, 5).Draw(t, "words"))})
		}
		out := place(events)
		if len(out) != len(events) {
			t.Fatalf("%d of %d events", len(out), len(events))
		}
		for i, e := range out {
			if slices.ContainsFunc(out[:i], e.covers) {
				t.Fatalf("labels cover each other: %+v", out)
			}
			if e.row > len(events) {
				t.Fatalf("row %d for %d events", e.row, len(events))
			}
		}
	})
	crowded := sampleFailover().Blocks[1].(Chart).Events
	for i := range crowded {
		crowded[i].X *= 9
	}
	out := place(append(crowded, Event{-1, "before"}, Event{2000, "after"}))
	if len(out) != len(crowded) {
		t.Fatalf("%d of %d events", len(out), len(crowded))
	}
	for i, e := range out {
		if slices.ContainsFunc(out[:i], e.collides) || e.from < 0 || e.to > width || e.row > 3 {
			t.Errorf("%+v among %+v", e, out)
		}
	}
}

func TestSpreadOut(t *testing.T) {
	if got := spreadOut([]float64{10, 12, 13, 90, 99}, 15, 0, 100); !slices.Equal(got, []float64{10, 25, 40, 85, 100}) {
		t.Error(got)
	}
}
