package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// clientRow is what a node's router serves, and until when the node's certificate is good. Texts that are not known are
// empty.
type clientRow struct {
	Node, Certificate, Level string
	Ports                    []string // sessions, as ports has them
	Waiting, Tied, Routers   string
}

// ports of a router, in the order of the page's columns.
var ports = []string{"rw", "ro", "split", "stream"}

// soonEnds is the rest of a certificate's life below which the page warns: its node renews it much earlier.
const soonEnds = 30 * 24 * time.Hour

func clientsOf(v api.ClusterView, s *series, at time.Time) (rows []clientRow) {
	for _, m := range v.Members {
		r := clientRow{Node: m.Name, Ports: make([]string, len(ports))}
		if list := s.nodes[m.Name]; len(list) > 0 && m.Answers() {
			l := list[len(list)-1].load
			waiting, tied := 0, 0
			for i, name := range ports {
				if p, known := l.Ports[name]; known {
					r.Ports[i] = grouped(uint64(p.Sessions))
					waiting, tied = waiting+p.Waiting, tied+p.Tied
				}
			}
			if l.Ports != nil { // an older node does not say
				r.Waiting, r.Tied, r.Routers = grouped(uint64(waiting)), grouped(uint64(tied)), grouped(uint64(l.Routers))
			}
			if !l.CertificateEnd.IsZero() {
				r.Certificate = l.CertificateEnd.UTC().Format(time.DateOnly)
				if l.CertificateEnd.Sub(at) < soonEnds {
					r.Level = levelWarn
				}
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// busySpan is what statements and waits on the front page are of; busyEvery is how often they are asked for while
// somebody looks.
const (
	busySpan  = 5 * time.Minute
	busyEvery = 30 * time.Second
	busyRows  = 5
)

// busy is what took the time of sessions lately: the first rows of two tables of a period.
type busy struct {
	Until, Problem string // empty: not known yet
	Tables         []grid
}

func busyOf(r api.Report, err error) *busy {
	b := &busy{Until: clock(r.To)}
	if err != nil {
		return &busy{Problem: err.Error()}
	}
	for _, n := range r.Nodes {
		if n.Problem != "" {
			problem, _, _ := strings.Cut(n.Problem, "; ") // advice for a command line follows
			b.Problem = strings.TrimPrefix(b.Problem+"; "+n.Node+" is missing: "+problem, "; ")
		}
	}
	p := newPeriod(r)
	for _, t := range []struct {
		grid    grid
		columns []int
	}{{p.statements(), []int{0, 3, 4, 5, 6}}, {p.sessions(), []int{0, 1, 2, 5}}} {
		g := grid{ID: "busy-" + t.grid.ID, Title: t.grid.Title, Words: t.grid.Words - 2, Head: pick(t.grid.Head, t.columns)}
		for _, row := range t.grid.Rows[:min(busyRows, len(t.grid.Rows))] {
			row = pick(row, t.columns)
			row[0] = shorten(row[0], 160)
			g.Rows = append(g.Rows, row)
		}
		b.Tables = append(b.Tables, g)
	}
	return b
}

func pick(row []string, columns []int) (out []string) {
	for _, c := range columns {
		out = append(out, row[c])
	}
	return out
}

// joiner is a node on its way into the cluster.
type joiner struct {
	Name, Text string
	Done       string // of the copy of its data, in percent; empty: not known, or nothing is copied
}

func joinersOf(v api.ClusterView) (out []joiner) {
	for _, m := range v.Members {
		j := joiner{Name: m.Name}
		switch s := m.Seed; {
		case m.ReasonCode == api.NeverStarted:
			j.Text = "has joined. Start its daemon: systemctl enable --now trireme"
		case s != nil && m.Answers():
			j.Text = "copies the data of " + s.From
			if s.TotalBytes > 0 {
				j.Done = fmt.Sprintf("%.0f%%", 100*float64(min(s.DoneBytes, s.TotalBytes))/float64(s.TotalBytes))
				j.Text += fmt.Sprintf(": %s of about %s, %s", bytesText(s.DoneBytes), bytesText(s.TotalBytes), j.Done)
			}
			if left := float64(s.TotalBytes) - float64(s.DoneBytes); s.BytesPerSecond > 0 && left > 0 {
				j.Text += ", about " + seconds(left/float64(s.BytesPerSecond)) + " left"
			}
		case !m.Raft.Voter &&
			slices.Contains([]string{api.StateStarting, api.StateRecovering, api.StateSeeding, api.StateCatchingUp}, m.State):
			j.Text = strings.TrimSuffix("is "+m.State+": "+m.Reason, ": ")
		default:
			continue
		}
		out = append(out, j)
	}
	return out
}

// addPage leads through adding a node.
type addPage struct {
	*state
	Name, Role, Token, Expires string
}

var roles = []string{config.RoleVoter, config.RoleLogger, config.RoleLearner}
