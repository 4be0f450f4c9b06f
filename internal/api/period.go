package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxBuckets is how many stretches a PeriodView divides its period into, at most.
const MaxBuckets = 240

// PeriodView is what GET /period answers: what one node has recorded in a period.
type PeriodView struct {
	Node       string          `json:"node"`
	From       time.Time       `json:"from"` // as asked for
	To         time.Time       `json:"to"`
	StepS      float64         `json:"step_s"`            // length of a bucket, seconds
	Buckets    []Interval      `json:"buckets"`           // in order; those in which nothing was recorded are left out
	Statements []StatementLoad `json:"statements"`        // the first by their time
	Others     StatementLoad   `json:"others"`            // all the others together
	Sessions   []SessionLoad   `json:"sessions"`          // the most often seen
	FileWaits  []FileWait      `json:"file_waits"`        // by their time
	Oldest     *time.Time      `json:"oldest"`            // what is kept; null: nothing
	Problem    string          `json:"problem,omitempty"` // why there is nothing, or less than there should be
}

// Interval is what a node recorded in a stretch of time. Counts are of that time only; of what goes up and down it has
// the highest.
type Interval struct {
	At           time.Time            `json:"at"`              // its beginning
	Seconds      float64              `json:"s"`               // of it that were recorded
	MySQLSeconds float64              `json:"mysql_s"`         // of those with a mysqld that answered
	LeaderS      float64              `json:"leader_s"`        // of those in which the node took writes
	Transactions uint64               `json:"trx"`             // that the node saw committed
	Bytes        uint64               `json:"bytes"`           // of their log entries
	Commits      map[string]Histogram `json:"commits"`         // as in LoadView
	LogWrites    Histogram            `json:"writes"`          // as in LoadView
	MySQL        map[string]uint64    `json:"mysql,omitempty"` // status variables that count, and what processes took
	Connections  uint64               `json:"conns,omitempty"` // of mysqld
	LagS         float64              `json:"lag_s,omitempty"`
	LagBytes     uint64               `json:"lag_bytes,omitempty"`
	Links        []LinkView           `json:"links,omitempty"`
	Looks        int                  `json:"looks,omitempty"` // at the active sessions, one a second
	// sessions seen, of all looks together, by what they waited for
	Active   map[string]int `json:"active,omitempty"`
	DiskUsed float64        `json:"disk_used,omitempty"` // of the fullest disk that the node writes to, 0 to 1
}

// Add takes up another interval of the same node, whatever its place.
func (i *Interval) Add(o Interval) {
	i.Seconds, i.MySQLSeconds, i.LeaderS = i.Seconds+o.Seconds, i.MySQLSeconds+o.MySQLSeconds, i.LeaderS+o.LeaderS
	i.Transactions, i.Bytes, i.Looks = i.Transactions+o.Transactions, i.Bytes+o.Bytes, i.Looks+o.Looks
	i.Connections, i.LagS, i.LagBytes = max(i.Connections, o.Connections), max(i.LagS, o.LagS), max(i.LagBytes, o.LagBytes)
	i.DiskUsed = max(i.DiskUsed, o.DiskUsed)
	for stage, h := range o.Commits {
		if i.Commits == nil {
			i.Commits = map[string]Histogram{}
		}
		i.Commits[stage] = i.Commits[stage].Plus(h)
	}
	i.LogWrites = i.LogWrites.Plus(o.LogWrites)
	for name, n := range o.MySQL {
		if i.MySQL == nil {
			i.MySQL = map[string]uint64{}
		}
		i.MySQL[name] += n
	}
	for wait, n := range o.Active {
		if i.Active == nil {
			i.Active = map[string]int{}
		}
		i.Active[wait] += n
	}
	links := slices.Clone(i.Links)
	for _, l := range o.Links {
		at := slices.IndexFunc(links, func(k LinkView) bool { return k.To == l.To })
		if at < 0 {
			links = append(links, l)
			continue
		}
		links[at].RTTMS, links[at].P99MS = max(links[at].RTTMS, l.RTTMS), max(links[at].P99MS, l.P99MS)
	}
	i.Links = links
}

// Plus is what both have counted.
func (h Histogram) Plus(o Histogram) Histogram {
	sum := Histogram{Count: h.Count + o.Count, SumS: h.SumS + o.SumS,
		Buckets: make([]uint64, max(len(h.Buckets), len(o.Buckets)))}
	for i := range sum.Buckets {
		if i < len(h.Buckets) {
			sum.Buckets[i] += h.Buckets[i]
		}
		if i < len(o.Buckets) {
			sum.Buckets[i] += o.Buckets[i]
		}
	}
	return sum
}

// StatementLoad is one kind of statement: those with the same digest. Its text has no values in it.
type StatementLoad struct {
	Schema   string  `json:"schema,omitempty"` // the default one of the session
	Digest   string  `json:"digest,omitempty"` // empty: all for which performance_schema had no room
	Text     string  `json:"text,omitempty"`   // empty: not known
	Count    uint64  `json:"count"`
	TimeS    float64 `json:"time_s"`
	LockS    float64 `json:"lock_s"` // of it waiting for table locks
	Errors   uint64  `json:"errors"`
	Sent     uint64  `json:"rows_sent"`
	Examined uint64  `json:"rows_examined"`
	Affected uint64  `json:"rows_affected"`
	NoIndex  uint64  `json:"no_index"` // how often no index was used for a table
}

// Add counts another one's executions too.
func (s *StatementLoad) Add(o StatementLoad) {
	s.Count, s.TimeS, s.LockS, s.Errors = s.Count+o.Count, s.TimeS+o.TimeS, s.LockS+o.LockS, s.Errors+o.Errors
	s.Sent, s.Examined, s.Affected, s.NoIndex = s.Sent+o.Sent, s.Examined+o.Examined, s.Affected+o.Affected,
		s.NoIndex+o.NoIndex
	if s.Text == "" {
		s.Text = o.Text
	}
}

// SessionLoad is what active sessions were seen at.
type SessionLoad struct {
	Wait   string `json:"wait"`            // one of those of Interval.Active
	State  string `json:"state,omitempty"` // as mysqld names it
	User   string `json:"user,omitempty"`
	Digest string `json:"digest,omitempty"` // of the statement; empty: none, or not known
	Text   string `json:"text,omitempty"`   // of Digest, or the kind of statement
	Seen   int    `json:"seen"`             // how often; one look a second, so about seconds
}

// FileWait is reading or writing one kind of file.
type FileWait struct {
	Event string  `json:"event"` // as performance_schema names it, without wait/io/file/, and read, write or other
	Count uint64  `json:"count"`
	TimeS float64 `json:"time_s"`
}

// Report is a period of a whole cluster: the page of charts, and `trireme report --json`.
type Report struct {
	Cluster string    `json:"cluster"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	// in the order of the cluster's settings; one that did not answer has a problem and nothing else
	Nodes  []PeriodView `json:"nodes"`
	Events []Event      `json:"events"` // of the history, in the period
}

// MakeReport asks all members at once. One that does not answer is in the report with the reason; err is of the first
// that refused.
func MakeReport(v ClusterView, events []Event, from, to time.Time, ask func(node string) (PeriodView, error)) (r Report,
	err error) {
	r = Report{Cluster: v.Cluster, From: from.UTC(), To: to.UTC(), Nodes: make([]PeriodView, len(v.Members)),
		Events: []Event{}}
	for _, e := range events {
		if !e.Time.Before(from) && !e.Time.After(to) {
			r.Events = append(r.Events, e)
		}
	}
	errs := make([]error, len(v.Members))
	var wg sync.WaitGroup
	for i, m := range v.Members {
		wg.Go(func() {
			if r.Nodes[i], errs[i] = ask(m.Name); errs[i] != nil {
				r.Nodes[i] = PeriodView{Node: m.Name, Problem: errs[i].Error()}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if k := KindOf(err); err != nil && (k == KindUnauthorized || k == KindForbidden) {
			return r, err
		}
	}
	return r, nil
}

// period answers GET /period?from=&to=[&node=], times as in RFC 3339. Of another node it asks that one.
func (s *Server) period(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), controlTimeout)
	defer cancel()
	q := r.URL.Query()
	var times [2]time.Time
	for i, name := range []string{"from", "to"} {
		t, err := time.Parse(time.RFC3339Nano, q.Get(name))
		if err != nil {
			s.fail(w, Errorf(KindInvalid, "%s=%q is not a time such as 2026-11-23T02:40:00Z", name, q.Get(name)))
			return
		}
		times[i] = t
	}
	v, err := s.periodOf(ctx, q.Get("node"), times[0], times[1], forwarder(r) != "")
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

func (s *Server) periodOf(ctx context.Context, node string, from, to time.Time, forwarded bool) (v PeriodView,
	err error) {
	if !to.After(from) {
		return v, Errorf(KindInvalid, "the period ends at %s, before it begins", to.Format(time.RFC3339))
	}
	if node == "" || node == s.opts.Name {
		return s.opts.Backend.Period(ctx, from, to)
	}
	members := s.opts.Backend.View(ctx).Members
	at := slices.IndexFunc(members, func(m MemberView) bool { return m.Name == node })
	if at < 0 || forwarded {
		var names []string
		for _, m := range members {
			names = append(names, m.Name)
		}
		return v, Errorf(KindNotFound, "no node %q; nodes are %s", node, strings.Join(names, " "))
	}
	err = s.pass(ctx, Leader{Name: node, API: members[at].Daemon.API}, http.MethodGet, periodPath(node, from, to), nil, &v)
	return v, err
}

func periodPath(node string, from, to time.Time) string {
	return period.Path + "?" + url.Values{"node": {node}, "from": {from.UTC().Format(time.RFC3339Nano)},
		"to": {to.UTC().Format(time.RFC3339Nano)}}.Encode()
}

// Period is what a node has recorded in a period; an empty name: the node asked.
func (c *Client) Period(ctx context.Context, node string, from, to time.Time) (PeriodView, error) {
	return ask[PeriodView](ctx, c, http.MethodGet, periodPath(node, from, to), nil)
}
