package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trireme/internal/api"
	"trireme/internal/base/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token     = "trt1.the-operator"
	viewToken = "trt1.the-viewer"

	evil = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{.}}`
)

// fake is a cluster that only remembers what it was asked.
type fake struct {
	mu     sync.Mutex
	here   string
	view   api.ClusterView
	events []api.Event
	err    error // of the history and of actions
	asked  []string
	looks  int // at the counters
	rests  int
	ticks  int
	others map[string]*served // pages of other nodes
	gone   bool               // the admin's token
	taken  bool               // the viewer's
	role   pki.Role           // of the viewer's; empty: viewer
	report api.Report         // of any period, which is set
	before api.Report         // of any that ends earlier than that; not set: no report
	second func()             // makes the clock go on with each look; nil: it stands
}

func (f *fake) Node() string { return f.here }

// holders by token: an admin and a viewer, whose token may be taken back.
func (f *fake) Login(text string) (api.Principal, bool) {
	return f.Holder(map[string]string{token: "00112233445566aa", viewToken: "00112233445566bb"}[text])
}

func (f *fake) Holder(id string) (api.Principal, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case id == "00112233445566aa" && !f.gone:
		return api.Principal{By: "operator", Role: pki.Admin, ID: id}, true
	case id == "00112233445566bb" && !f.taken:
		return api.Principal{By: "token eyes (viewer)", Role: cmp.Or(f.role, pki.Viewer), ID: id}, true
	}
	return api.Principal{}, false
}

// LoginAt is asked of the other nodes' pages in this process, by name.
func (f *fake) LoginAt(ctx context.Context, who api.Principal, node string, left time.Duration) (at string,
	code api.LoginCode, err error) {
	f.mu.Lock()
	other := f.others[node]
	f.mu.Unlock()
	if other == nil {
		return "", code, errors.New("no such node")
	}
	b, _ := json.Marshal(api.CodeRequest{Holder: who.ID, Seconds: int(left.Seconds())})
	req, _ := http.NewRequestWithContext(ctx, "POST", other.URL+"/ui/code", bytes.NewReader(b))
	req.Header.Set("From-Node", "yes")
	res, err := other.Client().Do(req)
	if err != nil {
		return "", code, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", code, errors.New(res.Status)
	}
	err = json.NewDecoder(res.Body).Decode(&code)
	return strings.Replace(other.URL, "127.0.0.1", "localhost", 1), code, err
}

// FromNode believes a header, for which a real node asks for a certificate.
func (f *fake) FromNode(r *http.Request) bool { return r.Header.Get("From-Node") != "" }

func (f *fake) AuditCode(_ *http.Request, req api.CodeRequest, err error) {
	_ = f.note("code for %s: %v", req.Holder, err)
}

func (f *fake) View(context.Context) api.ClusterView { f.mu.Lock(); defer f.mu.Unlock(); return f.view }

func (f *fake) show(members []api.MemberView) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.Members = members
}

func (f *fake) History(context.Context) ([]api.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events, f.err
}

func (f *fake) Report(_ context.Context, from, to time.Time) (api.Report, error) {
	r := f.report
	if to.Sub(from) == busySpan { // of the front page, once in a while
		return recorded(busySpan, 10*time.Second), nil
	}
	if to.Before(r.To) && f.before.Cluster != "" {
		r = f.before
	}
	if r.Cluster == "" {
		r.Cluster, r.From, r.To = f.view.Cluster, from, to
	}
	return r, f.note("report of %v up to %s", to.Sub(from), clock(to))
}

// Loads are counters that go on with each look, as if a second had passed.
func (f *fake) Loads(_ context.Context, v api.ClusterView) map[string]api.LoadView {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	f.ticks++
	if f.second != nil {
		f.second()
	}
	out := map[string]api.LoadView{}
	for _, m := range v.Members {
		if m.State != api.StateDown {
			out[m.Name] = loadAt(m.Name, f.ticks)
		}
	}
	return out
}

func (f *fake) Rest() { f.mu.Lock(); defer f.mu.Unlock(); f.rests++ }

func (f *fake) note(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) calls() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.Join(f.asked, "; ")
	f.asked = nil
	return text
}

func (f *fake) Switchover(_ context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
	res := api.SwitchoverResult{From: "n1", To: "n2", Term: 7, DryRun: req.DryRun, WriteGapMS: 41, OpenCount: 1,
		ConnectionsCut: 3, SessionsMoved: 2,
		Candidates: []api.Candidate{{Name: "n2", Eligible: true, Reason: "weight 100, 3 entries to apply"},
			{Name: "n3", Reason: "its vote is needed"}},
		OpenTransactions: []api.OpenTransaction{{User: "app", Host: "10.0.0.7", AgeS: 12, Rows: 40,
			Statement: "UPDATE t SET x = '" + evil + "'"}}}
	return res, f.note("switchover to=%q dry=%v term=%d", req.To, req.DryRun, req.IfTerm)
}

func (f *fake) Pause(_ context.Context, req api.PauseRequest) (api.PauseResult, error) {
	until := noon.Add(req.For)
	return api.PauseResult{Pause: &api.PauseView{Since: noon, Until: &until}}, f.note("pause %v", req.For)
}

func (f *fake) Refused(_ context.Context, path string) { _ = f.note("refused %s", path) }

func (f *fake) Resume(context.Context) (api.PauseResult, error) {
	return api.PauseResult{Before: &api.PauseView{}}, f.note("resume")
}

func (f *fake) Remove(_ context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return api.MemberResult{Name: req.Name, Message: req.Name + " is removed", Voters: 2},
		f.note("remove %s term=%d", req.Name, req.IfTerm)
}

func (f *fake) Invite(_ context.Context, req api.JoinTokenRequest) (api.JoinTokenResult, error) {
	return api.JoinTokenResult{Token: "trj1.n1:8008.0011.s3cr3t." + strings.Repeat("abcd", 16), Name: req.Name,
		Role: req.Role, Expires: noon.Add(time.Hour)}, f.note("invite %s %s", req.Name, req.Role)
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// histogramOf n durations of about d seconds.
func histogramOf(n uint64, d float64) api.Histogram {
	h := api.Histogram{Count: n, SumS: float64(n) * d, Buckets: make([]uint64, len(api.LatencyBounds)+1)}
	at := 0
	for at < len(api.LatencyBounds) && api.LatencyBounds[at] < d {
		at++
	}
	h.Buckets[at], h.Buckets[min(at+3, len(h.Buckets)-1)] = n-n/50, n/50
	return h
}

func loadAt(name string, tick int) api.LoadView {
	n := uint64(tick)
	l := api.LoadView{Node: name, AgeS: float64(tick), Transactions: n*1834 + n*n%977, Bytes: n * 1 << 20,
		LogWrites: histogramOf(n*600, 0.31e-3), Commits: map[string]api.Histogram{},
		Disks: []api.DiskView{{Holds: "log, data", Path: "/srv", FreeBytes: 180 << 30, TotalBytes: 400 << 30}}}
	l.Ports = map[string]api.PortView{"rw": {Sessions: 9, Tied: 1}, "ro": {Sessions: 2},
		"split": {Sessions: 1, Waiting: 1}, "stream": {}}
	l.Routers, l.CertificateEnd = 1, noon.Add(300*24*time.Hour)
	if name == "n2" {
		l.Ports, l.Routers, l.CertificateEnd = nil, 0, noon.Add(20*24*time.Hour)
	}
	if name == "n1" {
		for stage, d := range map[string]float64{api.StageMySQL: 0.24e-3, api.StageLog: 0.38e-3, api.StageMajority: 0.71e-3,
			api.StageAck: 0.03e-3, api.StageTotal: 1.36e-3} {
			l.Commits[stage] = histogramOf(n*150, d*(1+0.2*float64(tick%7)/7))
		}
	}
	return l
}

func data(v float64, b uint64) *api.MySQLView {
	return &api.MySQLView{Host: "db", Port: 3306, PID: 100, Version: "9.7.0-commercial", LagSeconds: &v, LagBytes: &b}
}

func member(id uint64, name, role, state string, my *api.MySQLView) api.MemberView {
	age := 0.1 * float64(id)
	return api.MemberView{Name: name, Role: role, State: state, MySQL: my, AgeSeconds: &age,
		Router: api.RouterView{Connections: 12 * int(id)},
		Raft: api.RaftView{ID: id, Voter: role != api.RoleLearner, Weight: 100, Term: 7, Match: 1841233, Last: 1841233,
			LogBytes: 812 << 20},
		Daemon: api.DaemonView{API: name + ".example.net:8008", Version: "v0.9.0"}}
}

// healthy is a cluster as it should be.
func healthy() *fake {
	lead := member(1, "n1", api.RoleLeader, api.StateHealthy, data(0, 0))
	lead.Links = []api.LinkView{{To: "n2", RTTMS: 0.21, P99MS: 0.6}, {To: "n3", RTTMS: 0.24, P99MS: 0.7}}
	n2, n3 := member(2, "n2", api.RoleFollower, api.StateHealthy, data(0, 0)),
		member(3, "n3", api.RoleFollower, api.StateHealthy, data(0.4, 12<<20))
	n2.Links, n3.Links = []api.LinkView{{To: "n1", RTTMS: 0.21}}, []api.LinkView{{To: "n1", RTTMS: 0.24}}
	lead.Raft.Zone, n2.Raft.Zone, n3.Raft.Zone = "aachen", "aachen", "berlin"
	made, complete := noon.Add(-26*time.Hour-30*time.Minute), noon.Add(-4*time.Second)
	backup := &api.BackupView{
		Copy:        &api.BackupCopy{Place: "/mnt/backup/shop", Donor: "n2", StoredBytes: 3 << 30, Made: made},
		CopyAgeS:    noon.Sub(made).Seconds(),
		Archive:     &api.BackupArchive{Place: "/mnt/backup/shop", Complete: complete},
		ArchiveAgeS: noon.Sub(complete).Seconds()}
	return &fake{here: "n2", events: someEvents(), view: api.ClusterView{Backup: backup, Cluster: "shop", Term: 7,
		Leader: "n1", CommitIndex: 1841233, Generation: 1, Members: []api.MemberView{lead, n2, n3},
		Failover: api.FailoverView{To: "n2", Seconds: 0.8, HostLostSeconds: 1.6}, Zones: []api.ZoneView{
			{Zone: "aachen", Voters: 2, Leader: true,
				Text: "loss of zone aachen (2 of 3 voters): NO QUORUM, writes stop; what is on disk there alone is lost, commit_zones=2 would prevent that"},
			{Zone: "berlin", Voters: 1, Quorum: true, Kept: true,
				Text: "loss of zone berlin (1 of 3 voters): writes continue; nothing acknowledged is lost"}}}}
}

// headless is what a logger knows of a cluster that has lost its majority.
func headless() *fake {
	f := healthy()
	f.here = "l1"
	l1 := member(3, "l1", api.RoleLogger, api.StateHealthy, nil)
	for i := range 2 {
		m := &f.view.Members[i]
		m.State, m.Role, m.Reason = api.StateDown, api.RoleFollower, "no word from it for 41 s"
		m.MySQL.LagSeconds, m.MySQL.LagBytes = nil, nil
	}
	f.view.Members[2] = l1
	f.view.Leader, f.view.Failover, f.view.Zones = "", api.FailoverView{Problem: "there is no leader"}, nil
	f.view.SeenBy = f.here
	f.view.Finish()
	return f
}

// silent is a cluster whose leader was cut off a moment ago and whose other follower has a full disk.
func silent() *fake {
	f := healthy()
	lead, full := &f.view.Members[0], &f.view.Members[2]
	lead.State, lead.Reason, lead.Links = api.StateUnknown, "it has fallen silent; not heard of for 1.6 s", nil
	full.DiskFull, full.State, full.Reason = "/srv/shop/mysql/relay", api.StateCatchingUp,
		"the disk of /srv/shop/mysql/relay is full, or nearly, and nothing is applied; make room"
	f.view.Leader, f.view.SeenBy = "", f.here
	f.view.Finish()
	return f
}

// fresh is a node that has joined and has heard nothing yet.
func fresh() *fake {
	f := &fake{here: "n4", view: api.ClusterView{Cluster: "shop", SeenBy: "n4", Members: []api.MemberView{
		member(4, "n4", api.RoleFollower, api.StateRecovering, data(0, 0)), member(1, "n1", api.RoleFollower, api.StateDown,
			data(0, 0))}}}
	for i := range f.view.Members {
		m := &f.view.Members[i]
		m.Raft.Voter, m.MySQL.LagSeconds, m.Reason = false, nil, "waiting for a leader to learn the commit index"
	}
	f.view.Finish()
	return f
}

// troubled has everything at once, and names that attack the page.
func troubled() *fake {
	f := healthy()
	until := noon.Add(time.Hour)
	f.view.Pause = &api.PauseView{Since: noon, Until: &until}
	f.view.Failover = api.FailoverView{Problem: "without n1 only 1 of 3 voters answer: no majority " + evil}
	f.view.Generation = 2
	f.view.Backup = &api.BackupView{Copy: &api.BackupCopy{Place: "s3://kept/" + evil, Donor: "n2"}, CopyAgeS: 40}
	f.view.Members[1] = member(2, "n2", api.RoleFollower, api.StateSeeding, data(5, 1<<30))
	f.view.Members[1].Reason = "its data is being copied from another node"
	f.view.Members[1].Seed = &api.SeedView{From: "n1", Stage: "file copy", DoneBytes: 40 << 30, TotalBytes: 112 << 30}
	f.view.Members[2].State, f.view.Members[2].Reason = api.StateFenced, "mysqld was killed: "+evil
	f.view.Members[2].Warnings = []string{"the disk is slow " + evil}
	r1 := member(4, "r1-"+evil, api.RoleLearner, api.StateCatchingUp, data(7421, 81<<30))
	r1.Daemon.API = `x" onclick="alert(3)`
	r1.Raft.LogPinned = "n3 has been away since yesterday"
	r1.VIPs = []api.VIPView{{Address: "10.0.0.9", Problem: "another host answers for it"}}
	r1.Warnings = []string{"virtual address 10.0.0.9 is not held: another host answers for it"} // as a node tells it
	f.view.Members = append(f.view.Members, r1)
	f.view.CommitRules = &api.CommitRulesView{Rules: []api.CommitRuleView{{Rule: "must_ack.n3", Suspended: true}}}
	f.events = append(f.events, api.Event{Time: noon, Kind: "fence", Node: evil, Term: 9, Message: evil,
		GTIDs: strings.Repeat("a", 500)})
	return f
}

func someEvents() []api.Event {
	var out []api.Event
	add := func(minutes int, e api.Event) {
		e.Time = noon.Add(-time.Duration(minutes) * time.Minute)
		out = append(out, e)
	}
	add(2000, api.Event{Kind: "election", Node: "n1", To: "n1", Term: 1, Message: "n1 leads in term 1",
		Cause: "the cluster's first start"})
	add(900, api.Event{Kind: "switchover", Node: "n2", From: "n1", To: "n2", Term: 3, Message: "n2 leads in term 3",
		GapMS: 38, Cause: "an operator asked for it", Phases: &api.Phases{CloseMS: 12, VoteMS: 4, ApplyMS: 9, OpenMS: 8,
			RouteMS: 5}})
	add(130, api.Event{Kind: "fence", Node: "n2", Term: 5, Message: "its lease ran out: mysqld was killed"})
	add(129, api.Event{Kind: "failover", Node: "n1", From: "n2", To: "n1", Term: 7, Message: "n1 leads in term 7",
		GapMS: 1312, Cause: "no word from n2", Phases: &api.Phases{DetectMS: 1020, VoteMS: 21, ApplyMS: 160, OpenMS: 71,
			RouteMS: 40}, RolledBack: &api.RolledBack{Known: true, Count: 3, GTIDs: "cccccccc-cccc-8ccc-8nnn-iiiiiiiiiiii:1-3"}})
	add(127, api.Event{Kind: "rejoin", Node: "n2", Term: 7,
		Message: "back as a follower: 3 transactions rolled back, 812 fed again",
		GTIDs:   "cccccccc-cccc-8ccc-8nnn-iiiiiiiiiiii:1-3"})
	return out
}

// served is the pages of a source on an HTTPS server, with a clock that can be set.
type served struct {
	*httptest.Server
	pages *Pages

	mu  sync.Mutex
	now time.Time
}

func (s *served) clock() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now }

func (s *served) advance(d time.Duration) { s.mu.Lock(); defer s.mu.Unlock(); s.now = s.now.Add(d) }

func serve(t *testing.T, f *fake) *served {
	t.Helper()
	s := &served{now: noon}
	stopping := make(chan struct{})
	s.pages = New(Options{Cluster: "shop", Source: f, Stopping: stopping, Logger: slog.New(slog.DiscardHandler),
		Now: s.clock})
	s.Server = httptest.NewUnstartedServer(s.pages)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(func() { close(stopping); s.Server.Close(); s.pages.Close() })
	return s
}

// browser is a client with cookies that follows no redirect.
func (s *served) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// loggedIn is a browser with a session.
func (s *served) loggedIn(t *testing.T) *http.Client {
	t.Helper()
	c := s.browser(t)
	if status, _ := s.post(t, c, "/ui/login", "token", token); status != http.StatusSeeOther {
		t.Fatalf("login: status %d", status)
	}
	return c
}

func (s *served) get(t *testing.T, c *http.Client, path string) (int, string) {
	t.Helper()
	res, err := c.Get(s.URL + path)
	return answer(t, res, err)
}

func (s *served) post(t *testing.T, c *http.Client, path string, form ...string) (int, string) {
	t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	res, err := c.PostForm(s.URL+path, values)
	return answer(t, res, err)
}

func answer(t *testing.T, res *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
