package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
)

// What of the history is shown.
const (
	maxShownChanges = 8
	maxShownEvents  = 40
	reignSpan       = 24 * time.Hour
)

// reign is a time in which one node led, as a part of the strip's width.
type reign struct {
	Node, X, Width string
	Class          string
	Text           string // in words
	Label          bool   // there is room for the name
}

// change is a change of leaders.
type change struct {
	Time, Kind, From, To, Gap string
	Cause                     string
	RolledBack                string
	Bar                       []barPart
}

type event struct {
	Time, Node, Kind, Text string
}

// leads says whether the event is a change of leaders.
func leads(e api.Event) bool { return e.To != "" }

// reigns of the last day, oldest first. Nodes take turns in two shades, since a colour must not be all that tells them
// apart.
func reigns(events []api.Event, now time.Time) []reign {
	var took []api.Event
	for _, e := range events {
		if leads(e) {
			took = append(took, e)
		}
	}
	if len(took) == 0 {
		return nil
	}
	begin := now.Add(-reignSpan)
	if took[0].Time.After(begin) {
		begin = took[0].Time
	}
	total := now.Sub(begin).Seconds()
	if total <= 0 {
		return nil
	}
	var out []reign
	for i, e := range took {
		from, to := e.Time, now
		if i+1 < len(took) {
			to = took[i+1].Time
		}
		if from.Before(begin) {
			from = begin
		}
		if !to.After(from) {
			continue
		}
		x, width := 100*from.Sub(begin).Seconds()/total, 100*to.Sub(from).Seconds()/total
		out = append(out, reign{Node: e.To, X: fmt.Sprintf("%.3f%%", x), Width: fmt.Sprintf("%.3f%%", width),
			Label: width > 8, Class: fmt.Sprintf("reign%d", i%2), Text: fmt.Sprintf("%s from %s to %s", e.To, clock(from),
				clock(to))})
	}
	return out
}

// phases of a change of leaders, by the classes of their bar.
var phases = []struct {
	name string
	of   func(*api.Phases) float64
}{
	{"detect", func(p *api.Phases) float64 { return p.DetectMS }},
	{"close", func(p *api.Phases) float64 { return p.CloseMS }},
	{"vote", func(p *api.Phases) float64 { return p.VoteMS }},
	{"apply", func(p *api.Phases) float64 { return p.ApplyMS }},
	{"open", func(p *api.Phases) float64 { return p.OpenMS }},
	{"route", func(p *api.Phases) float64 { return p.RouteMS }},
}

// changes are the newest, newest first, with bars on one scale.
func changes(events []api.Event) []change {
	var shown []api.Event
	longest := 1.0
	for _, e := range slices.Backward(events) {
		if leads(e) && len(shown) < maxShownChanges {
			shown = append(shown, e)
			longest = max(longest, phaseSum(e.Phases))
		}
	}
	var out []change
	for _, e := range shown {
		c := change{Time: clock(e.Time), Kind: e.Kind, From: e.From, To: e.To, Cause: e.Cause}
		if e.From == "" {
			c.From = "no node"
		}
		if e.GapMS > 0 {
			c.Gap = grouped(uint64(e.GapMS+0.5)) + " ms"
		}
		if r := e.RolledBack; r != nil {
			switch {
			case !r.Known:
				c.RolledBack = "not known yet"
			case r.Count == 0:
				c.RolledBack = "nothing"
			default:
				c.RolledBack = grouped(r.Count) + ", none acknowledged"
			}
		}
		c.Bar = phaseBar(e.Phases, longest)
		out = append(out, c)
	}
	return out
}

func phaseSum(p *api.Phases) (sum float64) {
	if p == nil {
		return 0
	}
	for _, f := range phases {
		sum += max(f.of(p), 0)
	}
	return sum
}

func phaseBar(p *api.Phases, longest float64) (bar []barPart) {
	if p == nil {
		return nil
	}
	x := 0.0
	for i, f := range phases {
		ms := max(f.of(p), 0)
		if ms == 0 {
			continue
		}
		width := 100 * ms / longest
		bar = append(bar, barPart{fmt.Sprintf("%.2f%%", x), fmt.Sprintf("%.2f%%", width), fmt.Sprintf("s%d", i),
			fmt.Sprintf("%s %.0f ms", f.name, ms)})
		x += width
	}
	return bar
}

// latest events, newest first by the clocks of their nodes as the history orders them.
func latest(events []api.Event) []event {
	var out []event
	for _, e := range slices.Backward(events) {
		if len(out) == maxShownEvents {
			break
		}
		text := e.Message
		if e.By != "" {
			text += ", by " + e.By
		}
		if e.GTIDs != "" {
			text += " [" + shorten(e.GTIDs, 120) + "]"
		}
		out = append(out, event{clock(e.Time), e.Node, e.Kind, text})
	}
	return out
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// clock is a moment, always in UTC: nodes, logs and people in several places must speak of the same one.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func seconds(s float64) string {
	switch {
	case s >= 3600:
		return fmt.Sprintf("%.1f h", s/3600)
	case s >= 120:
		return fmt.Sprintf("%.0f min", s/60)
	}
	return fmt.Sprintf("%.1f s", s)
}

// millis is a duration in ms with three digits, without its unit.
func millis(s float64) string {
	switch ms := s * 1000; {
	case ms >= 99.95:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 9.995:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.2f", ms)
	}
}

// rate is a number per second.
func rate(r float64) string {
	if r < 10 && r > 0 {
		return fmt.Sprintf("%.1f", r)
	}
	return grouped(uint64(r + 0.5))
}

func bytesText(b uint64) string {
	const units = "KMGTPE"
	if b < 1024 {
		return fmt.Sprintf("%d B", b)
	}
	v, i := float64(b)/1024, 0
	for v >= 999.5 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if v >= 99.95 {
		return fmt.Sprintf("%.0f %ciB", v, units[i])
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// grouped writes a number with thin spaces between thousands.
func grouped(n uint64) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(c)
	}
	return b.String()
}
