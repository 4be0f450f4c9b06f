package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/core/ha"
	"trireme/internal/ops/cli"
	"trireme/internal/ops/setup"
	"trireme/lab/testkit/script"
)

// TestMain makes this program trireme, or a daemon with a guard, when it is started as such.
func TestMain(m *testing.M) {
	if os.Getenv("VIP_TEST_DAEMON") != "" {
		fmt.Fprintln(os.Stderr, guardedDaemon())
		os.Exit(exitFailed)
	}
	testscript.Main(m, map[string]func(){"trireme": main})
}

// TestScripts runs testdata/script: the command line as an operator sees it. Four API addresses of a fake cluster are
// given to the scripts: $API has a leader, $HEALTHY one and nothing to complain of, $NOLEADER has none, $BLOCKED cannot
// apply an entry, $DEAD does not answer. The operator's token is "secret".
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir+"/home")
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/home/.config")
			env.Setenv("TRIREME_CONFIG", env.WorkDir+"/nowhere.toml")
			env.Setenv("TRIREME_TOKEN", "")
			env.Setenv("TRIREME_API", "")
			env.Setenv("DEAD", "127.0.0.1:1")
			// Other accounts reach the script's folder, so that what root checks for them is the files.
			for dir := env.WorkDir; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o755); err != nil {
					return err
				}
			}
			ca, err := pki.NewCA("prod", time.Now())
			if err != nil {
				return err
			}
			env.Setenv("TRIREME_CA", env.WorkDir+"/cluster-ca.pem")
			if err := os.WriteFile(env.WorkDir+"/cluster-ca.pem", ca.CertPEM(), 0o600); err != nil {
				return err
			}
			if err := writeCredentials(env, ca); err != nil {
				return err
			}
			if err := serveImpostor(env); err != nil {
				return err
			}
			for name, view := range map[string]api.ClusterView{"API": withLeader(), "NOLEADER": withoutLeader(),
				"HEALTHY": allHealthy(), "BLOCKED": blocked()} {
				addr, err := serveFake(env, ca, view)
				if err != nil {
					return err
				}
				env.Setenv(name, addr)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": script.Exits, "fails": script.Fails, "field": script.Field, "narrow": narrow},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("there is no condition %q", cond)
			}
			return os.Geteuid() == 0, nil
		},
	})
}

// writeCredentials puts credential files into the script's folder: prod.json, known.json with NODE for the address of a
// node, and other.json, which is of a cluster with another CA.
func writeCredentials(env *testscript.Env, ca *pki.CA) error {
	other, err := pki.NewCA("other", time.Now())
	if err != nil {
		return err
	}
	for name, c := range map[string]setup.Credential{
		"prod":  {Cluster: "prod", Token: "secret", CA: string(ca.CertPEM())},
		"known": {Cluster: "prod", Token: "secret", CA: string(ca.CertPEM()), API: []string{"NODE"}},
		"other": {Cluster: "other", Token: "nonsense", CA: string(other.CertPEM())},
	} {
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(env.WorkDir, name+".json"), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// narrow checks that a file has no line of more than 100 columns.
func narrow(ts *testscript.TestScript, _ bool, args []string) {
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			ts.Fatalf("%d columns: %s", n, line)
		}
	}
}

// serveImpostor gives the scripts $IMPOSTOR, which answers everything with {} over plain HTTP and keeps the headers it
// got in the file heard.
func serveImpostor(env *testscript.Env) error {
	heard, err := os.Create(filepath.Join(env.WorkDir, "heard"))
	if err != nil {
		return err
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(heard)
		_, _ = w.Write([]byte("{}"))
	}))
	env.Defer(func() { s.Close(); _ = heard.Close() })
	env.Setenv("IMPOSTOR", strings.TrimPrefix(s.URL, "http://"))
	return nil
}

func serveFake(env *testscript.Env, ca *pki.CA, view api.ClusterView) (string, error) {
	bundle, err := ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, time.Now())
	if err != nil {
		return "", err
	}
	f := &fake{view: view}
	s := api.NewServer(api.Options{Name: "n1", Listen: "127.0.0.1:0", Backend: f, Answers: f.answers(),
		TLS: bundle.ServerJoinTLS()})
	if err := s.Start(); err != nil {
		return "", err
	}
	env.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s.Addr(), nil
}

func withLeader() api.ClusterView {
	lag, none, bytes := 0.25, 0.0, uint64(1000)
	mysql := func(port int, lag *float64) *api.MySQLView {
		return &api.MySQLView{Host: "10.20.30.40", Port: port, PID: 5, Version: "9.7.4-2", LagSeconds: lag, LagBytes: &bytes}
	}
	return api.ClusterView{Cluster: "prod", Term: 7, Leader: "n1", CommitIndex: 123456,
		Failover: api.FailoverView{To: "n2", Seconds: 1.24, HostLostSeconds: 2.7}, Members: []api.MemberView{
			{Name: "n1", Role: "leader", State: "healthy", Raft: api.RaftView{ID: 1, Last: 123456, Applied: 123456},
				MySQL: mysql(3306, &none), Daemon: api.DaemonView{API: "10.20.30.40:8008"}},
			{Name: "n2", Role: "follower", State: "catching-up",
				Reason: strings.Repeat("it applies what it missed while it was away; ", 4),
				Raft:   api.RaftView{ID: 2, Last: 123456, Applied: 123000}, MySQL: mysql(3307, &lag),
				Daemon: api.DaemonView{API: "10.20.30.40:8108"}},
			{Name: "n3", Role: "logger", State: "down", Reason: "not heard of for 12.0 s", Raft: api.RaftView{ID: 3},
				Daemon: api.DaemonView{API: "10.20.30.40:8208"}},
		}}
}

func allHealthy() api.ClusterView {
	v := withLeader()
	for i := range v.Members {
		v.Members[i].State, v.Members[i].Raft.Voter = "healthy", true
	}
	return v
}

// blocked: n1 is raft's leader.
func blocked() api.ClusterView {
	v := withLeader()
	v.Blocked = &api.BlockedView{Nodes: []string{"n2", "n3"}, ApplyErrorView: api.ApplyErrorView{Number: 3819,
		Error: "Check constraint 't_chk_1' is violated.", GTID: "0c21cfc5-1c03-8b32-8001-000000000004:19", Index: 99,
		Node: "n1", Entry: "insert shop.t"}}
	return v
}

func withoutLeader() api.ClusterView {
	v := withLeader()
	v.Leader = ""
	v.Failover = api.FailoverView{Problem: "there is no leader now"}
	v.Pause = &api.PauseView{Since: time.Unix(1e9, 0)}
	v.Members[0].Role = "follower"
	return v
}

// fake is a node with a fixed view that does whatever it is asked.
type fake struct {
	api.RouterQuestions // the command line asks none
	view                api.ClusterView
}

// answers to all verbs and queries.
func (f *fake) answers() []api.Answer {
	return []api.Answer{
		api.Switchover.By(f.Switchover), api.Failover.By(f.Failover), api.Pause.By(f.Pause), api.Resume.By(f.Resume),
		api.Reinit.By(f.Reinit), api.Delay.By(f.Delay), api.NoteBackup.By(f.NoteBackup), api.ChangeConfig.By(f.ChangeConfig),
		api.RollbackConfig.By(f.RollbackConfig), api.NewToken.By(f.NewToken), api.RemoveToken.By(f.RemoveToken),
		api.Revoke.By(f.Revoke), api.ChangeCA.By(f.ChangeCA), api.NewJoinToken.By(f.NewJoinToken), api.Join.By(f.Join),
		api.Remove.By(f.Remove), api.Promote.By(f.Promote), api.Demote.By(f.Demote), api.Leave.By(f.Leave),
		api.Void.By(f.Void), api.ForceApply.By(f.ForceApply), api.Config.By(f.Config), api.ConfigHistory.By(f.ConfigHistory),
		api.Tokens.By(f.Tokens), api.CA.By(f.CA),
	}
}

func (f *fake) Local() api.Health { return api.Health{Name: "n1", State: "healthy"} }
func (f *fake) Leader() api.Leader {
	return api.Leader{Name: f.view.Leader, Self: f.view.Leader == "n1"}
}
func (f *fake) Leave(_ context.Context, req api.LeaveRequest) (api.LeaveResult, error) {
	res := api.LeaveResult{DryRun: req.DryRun, Cluster: "c1", Term: 7,
		Source: api.PlainServer{Name: "n1", Addr: "db1:3306"}, Replicas: []api.PlainServer{{Name: "n2", Addr: "db2:3306"}},
		Loggers: []string{"n3"}, Account: "plain_repl", OpenCount: 2}
	if req.IfTerm != 0 && req.IfTerm != 7 {
		res.Problem, res.ProblemKind = "it is term 7, not 6", api.KindChanged
	}
	return res, nil
}
func (f *fake) Route() (api.RouteView, <-chan struct{})        { return api.RouteView{}, nil }
func (f *fake) Serves(context.Context, string) (uint64, error) { return 0, nil }
func (f *fake) Self(context.Context) api.MemberView            { return f.view.Members[0] }
func (f *fake) View(context.Context) api.ClusterView           { return f.view }
func (f *fake) Settings() *config.Cluster {
	at := time.Unix(1e9, 0)
	return &config.Cluster{APITokenHash: pki.HashToken("secret"),
		RevokedCerts: []config.Revocation{{Serial: "00ff00ff", At: at}, {ID: 4, Name: "n4", At: at}}}
}

func (f *fake) Tokens(context.Context) []api.TokenView {
	made := time.Unix(1e9, 0).UTC()
	end := made.Add(time.Hour)
	return []api.TokenView{{Name: "operator", Role: "admin"}, {Name: "anna", Role: "operator", Made: &made, Expires: &end,
		Expired: true}}
}

func (f *fake) NewToken(_ context.Context, req api.TokenRequest) (api.TokenResult, error) {
	return api.TokenResult{TokenView: api.TokenView{Name: req.Name, Role: req.Role}, Token: "trt1.new"}, nil
}

func (f *fake) RemoveToken(_ context.Context, req api.TokenName) (api.TokenView, error) {
	return api.TokenView{Name: req.Name, Role: "viewer"}, nil
}

func (f *fake) Revoke(_ context.Context, req api.RevokeRequest) (api.RevokeResult, error) {
	return api.RevokeResult{Serial: req.What, Message: "the certificate with serial " + req.What + " is revoked",
		Advice: "rest"}, nil
}

func (f *fake) ChangeCA(_ context.Context, req api.CARequest) (api.CAView, error) {
	if req.Step != api.CABegin {
		return api.CAView{}, api.Errorf(api.KindConflict, "no change of the CA is under way")
	}
	v := f.CA(context.Background())
	v.Nodes = v.Nodes[:1]
	return v, nil
}

func (f *fake) CA(context.Context) api.CAView {
	old, next := strings.Repeat("a", 64), strings.Repeat("b", 64)
	return api.CAView{Certs: "PEM\n", Signer: old, Trusts: []string{old, next}, Next: next,
		Nodes: []api.CANode{{Name: "n1", Up: true, Signer: old, Trusts: []string{old, next}}, {Name: "n2"}}}
}

func (f *fake) Metrics() prometheus.Gatherer { return prometheus.NewRegistry() }
func (f *fake) Load() api.LoadView           { return api.LoadView{} }

func (f *fake) Period(_ context.Context, from, to time.Time) (api.PeriodView, error) {
	if begin := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC); to.Before(begin) {
		return api.PeriodView{Node: "n1", From: from, To: to, StepS: 60, Oldest: &begin}, nil
	}
	return api.PeriodView{Node: "n1", From: from, To: to, StepS: 60,
		Buckets: []api.Interval{{At: from, Seconds: 60, MySQLSeconds: 60, LeaderS: 60, Transactions: 600, Looks: 60,
			Active: map[string]int{"client": 5}}},
		Statements: []api.StatementLoad{{Schema: "app", Digest: "abc", Text: "select * from t where a = ?", Count: 3,
			TimeS: 1.5}}}, nil
}

func (f *fake) History(context.Context) ([]api.Event, error) {
	return []api.Event{
		{Time: time.Unix(1e9, 0), Kind: "failover", Node: "n1", Term: 7, Message: "n1 leads instead of n2: its daemon ended",
			GapMS: 812, From: "n2", FromIncarnation: 4, Phases: &api.Phases{DetectMS: 12, VoteMS: 690, ApplyMS: 80, OpenMS: 30,
				RouteMS: 7},
			RolledBack: &api.RolledBack{Known: true, Count: 2, GTIDs: "0c21cfc5-1c03-8b32-8001-000000000004:17-18"}},
		{Time: time.Unix(1e9+1, 0), Kind: "failover", Node: "n2", Term: 8, Message: "n2 leads", From: "n1",
			FromIncarnation: 4, RolledBack: &api.RolledBack{}},
		{Time: time.Unix(1e9+5, 0), Kind: "rejoin", Node: "n2", Term: 7, Message: "is back; rolled back 2 transactions:",
			GTIDs: "0c21cfc5-1c03-8b32-8001-000000000004:17-18"},
	}, nil
}

func (f *fake) WhyNot(_ context.Context, node string) (api.WhyNotView, error) {
	if node != "n3" {
		return api.WhyNotView{Node: node, Leads: node == "n1", CanLead: true, Leader: "n1", Term: 7, SeenBy: "n1"}, nil
	}
	return api.WhyNotView{Node: node, Leader: "n1", Term: 7, SeenBy: "n1",
		Zone: &api.ZoneView{Text: "loss of zone a (1 of 3 voters): " + strings.Repeat("n2 would lead ", 6)},
		Reasons: []ha.Reason{
			{Code: ha.NeedsSeed, Text: strings.Repeat("mysqld must be seeded again; ", 6), Bars: true},
			{Code: ha.OtherLeads, Text: "n1 leads term 7"}}}, nil
}

func (f *fake) Config(context.Context) api.ConfigView {
	return api.ConfigView{Cluster: "prod", Version: 41, Settings: []config.Setting{
		{Key: "failback_after", Value: "1m", Doc: "patience"}, {Key: "weight.n1", Value: "100", Doc: "weights"},
		{Key: "weight.n2", Value: "50", Doc: "weights"}}}
}

func (f *fake) ChangeConfig(_ context.Context, req api.ConfigChange) (api.ConfigView, error) {
	if req.Version != 0 && req.Version != 41 || req.Set["weight.n1"] == "999" {
		return api.ConfigView{}, api.Errorf(api.KindChanged, "the cluster settings were changed meanwhile")
	}
	return api.ConfigView{Cluster: "prod", Version: 42}, nil
}

func (f *fake) ConfigHistory(context.Context) api.ConfigHistoryView {
	a, b, none := "100", "50", ""
	return api.ConfigHistoryView{Cluster: "prod", Version: 41, Oldest: 38, Revisions: []config.Revision{
		{Version: 39, At: time.Unix(1e9, 0), By: "operator from 10.20.30.40:51234",
			Changes: []config.Change{{Key: "weight.n2", Before: &a, After: &b}, {Key: "zone.n9", Before: &none}}},
		{Version: 41, At: time.Unix(1e9, 0), By: "n1", Changes: []config.Change{{Key: "weight.n3", After: &a}}}}}
}

func (f *fake) RollbackConfig(_ context.Context, req api.ConfigRollback) (api.ConfigRollbackResult, error) {
	a, b := "100", "50"
	res := api.ConfigRollbackResult{Cluster: "prod", To: req.To, Version: 41, DryRun: req.DryRun,
		Changes: []config.Change{}}
	switch {
	case req.To < 38:
		return res, api.Errorf(api.KindNotFound, "version %d is not kept any more", req.To)
	case !req.DryRun && req.Version != 41:
		return res, api.Errorf(api.KindChanged, "not what was shown")
	case req.To == 38:
		res.Changes, res.Kept = []config.Change{{Key: "weight.n2", Before: &b, After: &a}}, []string{"weight.n3"}
	}
	if !req.DryRun {
		res.Version = 42
	}
	return res, nil
}

func (f *fake) Pause(_ context.Context, req api.PauseRequest) (api.PauseResult, error) {
	until := time.Unix(1e9, 0).Add(req.For)
	if req.For == 0 {
		return api.PauseResult{Pause: &api.PauseView{}}, nil
	}
	return api.PauseResult{Pause: &api.PauseView{Until: &until}, Before: &api.PauseView{}}, nil
}

func (f *fake) Resume(context.Context, api.ResumeRequest) (api.PauseResult, error) {
	return api.PauseResult{Before: &api.PauseView{}}, nil
}

func (f *fake) Switchover(_ context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
	if req.To == "n3" {
		return api.SwitchoverResult{}, api.Errorf(api.KindCannotLead, "n3 is a logger and cannot lead").With("choose n2")
	}
	if req.IfTerm == 6 {
		return api.SwitchoverResult{From: "n1", Term: 7, DryRun: true,
			Problem: "no other node can take over: n2: its weight is 0", ProblemKind: api.KindCannotLead}, nil
	}
	open := []api.OpenTransaction{{User: "shop", Host: "10.0.0.9:4711", AgeS: 35, Rows: 1,
		Statement: "UPDATE t\n  SET a = 1"}}
	if *req.OpenTrxWait > 0 {
		open = nil
	}
	var tied map[string]int
	if req.DryRun {
		tied = map[string]int{"user locks": 1, "temporary tables": 2}
	}
	return api.SwitchoverResult{From: "n1", To: "n2", Term: 8, DryRun: req.DryRun, WriteGapMS: 21.4, TiedSessions: tied,
		OpenTransactions: open, OpenCount: 3 * len(open), Candidates: []api.Candidate{
			{Name: "n2", Eligible: true, Reason: "0 entries to apply"}, {Name: "n3", Reason: "it is a logger"},
		}}, nil
}

func (f *fake) NewJoinToken(_ context.Context, req api.JoinTokenRequest) (api.JoinTokenResult, error) {
	return api.JoinTokenResult{Token: "trj1.10.20.30.40:8008.0011.s3cr3t.abcd", Name: req.Name, Role: req.Role,
		Expires: time.Unix(2e9, 0)}, nil
}

func (f *fake) NoteBackup(context.Context, api.BackupReport) (api.BackupResult, error) {
	return api.BackupResult{Noted: true}, nil
}

func (f *fake) Delay(_ context.Context, req api.DelayRequest) (api.DelayResult, error) {
	v := api.DelayView{Seconds: 3600, BehindSeconds: 3599, BehindBytes: 3 << 20,
		Next: "11111111-1111-1111-1111-111111111111:7", RemainingSeconds: 61, Order: req.Order, GTID: req.GTID}
	switch req.Order {
	case api.OrderHold:
		v.Order, v.Stopped = api.OrderStopAfter, true
	case api.OrderStopBefore:
		v.Stopped = true
	case api.OrderResume:
		v.Order = ""
	}
	return api.DelayResult{Name: req.Name, DelayView: v}, nil
}

func (f *fake) Failover(_ context.Context, req api.FailoverRequest) (api.FailoverResult, error) {
	switch {
	case !req.Force:
		return api.FailoverResult{}, api.Errorf(api.KindConflict, "n1 leads and answers").With("use `trireme switchover`")
	case f.view.Leader == "":
		return api.FailoverResult{}, api.Errorf(api.KindNoLeader, "only 1 of 3 voters answer: no majority")
	case req.IfTerm != 0 && req.IfTerm != f.view.Term:
		return api.FailoverResult{}, api.Errorf(api.KindChanged, "it is term %d, not %d", f.view.Term, req.IfTerm)
	}
	return api.FailoverResult{From: "n1", To: "n2", Term: f.view.Term, DryRun: req.DryRun, TookMS: 1234}, nil
}

func (f *fake) Remove(_ context.Context, req api.MemberRequest) (api.MemberResult, error) {
	if req.Name == "n1" {
		return api.MemberResult{Name: "n1", Message: "n1 is removed", Voters: 2,
			Switchover: &api.SwitchoverResult{From: "n1", To: "n2", Term: 8, WriteGapMS: 71}}, nil
	}
	if req.IfTerm != 0 && req.IfTerm != f.view.Term {
		return api.MemberResult{}, api.Errorf(api.KindChanged, "it is term %d, not %d", f.view.Term, req.IfTerm)
	}
	return api.MemberResult{Name: req.Name, Message: req.Name + " is removed", Voters: 2}, nil
}

func (f *fake) Reinit(_ context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return api.MemberResult{Name: req.Name, Message: req.Name + " throws its data away", Voters: 3, Survives: 1}, nil
}

func (f *fake) Promote(ctx context.Context, req api.PromoteRequest) (api.MemberResult, error) {
	if len(req.Names) == 3 { // until the command line has said what it waits for
		select {
		case <-ctx.Done():
		case <-time.After(firstNotice + time.Second):
		}
	}
	return api.MemberResult{Message: fmt.Sprintf("in %v, to learner %v, out %v", req.Names, req.Demote, req.Remove),
		Voters: 3, Survives: 1}, nil
}

func (f *fake) Demote(_ context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return api.MemberResult{}, api.Errorf(api.KindNeeded, "%s is the last voter with healthy data", req.Name)
}

func (f *fake) ForceApply(ctx context.Context, req api.VoidRequest) (api.VoidReport, error) {
	return f.Void(ctx, req)
}

func (f *fake) Void(_ context.Context, req api.VoidRequest) (api.VoidReport, error) {
	if f.view.Blocked == nil {
		return api.VoidReport{}, api.Errorf(api.KindAlready, "not needed: no entry blocks this cluster")
	}
	rep := api.VoidReport{Loss: "Lost: " + strings.Repeat("everything ", 20), Entry: *f.view.Blocked}
	if !slices.Contains(req.Without, "n1") {
		rep.Problem, rep.ProblemKind, rep.Advice = "n1 does not answer", api.KindNotReady, "start it"
	}
	switch {
	case req.GTID == "":
	case rep.Problem != "" || req.GTID != rep.Entry.GTID:
		return rep, api.Errorf(api.KindChanged, "nothing is changed: the entry is %s", rep.Entry.GTID)
	default:
		f.view.Blocked, rep.Done = nil, true
	}
	return rep, nil
}

func (f *fake) ForceQuorum(_ context.Context, req api.ForceRequest) (api.ForceReport, api.Leader, error) {
	rep := api.ForceReport{Cluster: "prod", Generation: 1, Term: 7, Source: "n2", LastTerm: 7, LastIndex: 99, Commit: 90,
		GTIDs: "0c21cfc5-1c03-8b32-8001-000000000004:1-18", Loss: "May be lost: " + strings.Repeat("everything ", 20),
		Voters: []string{"n2"}, Learners: []string{"n5"}, Seen: "abc",
		Survivors: []api.ForceSurvivor{{Name: "n2", Role: "voter", Voter: true, Term: 7, LastTerm: 7, LastIndex: 99,
			Commit: 90},
			{Name: "n5", Role: "learner", Term: 7, LastTerm: 6, LastIndex: 98, Commit: 90,
				Drops: "0c21cfc5-1c03-8b32-8001-000000000004:19"}},
		GivenUp: []api.ForceMember{{Name: "n1", ID: 1, Role: "voter"}, {Name: "n3", ID: 3, Role: "logger"}}}
	if f.view.Leader != "" && f.view.Generation < 2 {
		rep.Problem, rep.ProblemKind, rep.Advice = "not needed: n2 follows a leader, n1", api.KindAlready,
			"see `trireme status`"
	}
	self := api.Leader{Self: true}
	switch {
	case req.Confirm == 0:
	case rep.Problem != "":
		return rep, self, api.Errorf(rep.ProblemKind, "nothing is changed: %s", rep.Problem)
	case req.Confirm != rep.Term:
		return rep, self, api.Errorf(api.KindChanged, "nothing is changed: the term is %d, not %d", rep.Term, req.Confirm).
			With("read the report of this moment")
	default:
		f.view.Generation, f.view.Leader = 2, "n2"
		rep.Done, rep.NewGeneration, rep.NewTerm = true, 2, 8
	}
	return rep, self, nil
}

func (f *fake) Join(context.Context, api.JoinRequest) (api.JoinResult, error) {
	return api.JoinResult{}, api.Errorf(api.KindUnauthorized, "the join token is wrong, used or expired").
		With("make a new one with `trireme add NAME`")
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":              {""},
		"a b c":         {"a b", "c"},
		"abcdef g":      {"abcdef", "g"},
		"ab  cd\nef gh": {"ab", "cd", "ef", "gh"},
		"a `b c`":       {"a", "`b", "c`"},
		"a `b`":         {"a", "`b`"},
		"a `b":          {"a", "`b"},
	} {
		if got := cli.Wrap(text, 3); !slices.Equal(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got, want := cli.Wrap("see (`trireme delay n2`) for it", 20), []string{"see", "(`trireme delay n2`)", "for it"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestVerbs: every verb has help that fits on a screen, and its name is the documented one.
func TestVerbs(t *testing.T) {
	for _, verb := range strings.Fields("node init join add remove reinit promote demote delay void status topology switchover restart upgrade why-not pause resume history force-apply force-quorum log config demo version") {
		var out strings.Builder
		if code := run([]string{verb, "--help"}, os.Stdin, &out, &out); code != 0 ||
			!strings.Contains(out.String(), "Usage: trireme "+verb) {
			t.Errorf("%s --help: %d %s", verb, code, out.String())
		}
	}
}
