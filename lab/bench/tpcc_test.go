package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"trireme/lab/rivals"
)

// TestTPCCSuite measures one warehouse on a primary and its replicas, and holds both sides against the conditions; then
// it spoils a replica.
func TestTPCCSuite(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := Settings{Systems: []string{"semisync"}, Topologies: []string{noTopology}, Cases: []string{"1"}, Threads: []int{4},
		Rounds: 1, WarmupSeconds: 1, Seconds: 2}
	if err := s.check(tpccSuite); err != nil {
		t.Fatal(err)
	}
	groups, err := tpccSuite.Plan(s)
	if err != nil || len(groups) != 1 || len(groups[0].Cells) != 1 {
		t.Fatalf("plan %+v, %v", groups, err)
	}
	g := groups[0]
	l, err := rivals.New(ctx, rivals.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	g.Shape.Dir = t.TempDir()
	running, err := g.System.Start(ctx, l, g.Shape)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	b := &Bed{Running: running, Lab: l, System: g.System, Shape: g.Shape, Settings: s}
	if err := g.Prepare(ctx, b); err != nil {
		t.Fatal(err)
	}
	rec, err := g.Cells[0].Measure(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	v := rec.Values
	if v[valTpmC] <= 0 || v[valTpmC] > 60*v[valTPS] || v[valNewOrder] <= 0 || v[valClientUS] <= 0 ||
		v[valCPUAll] <= v[valCPULeader] || len(rec.Series[valTPS]) != 2 {
		t.Errorf("figures make no sense: %+v", rec)
	}
	if violations, has := v[valViolations]; !has || violations != 0 ||
		!strings.Contains(rec.Note, "leader and a replica") {
		t.Errorf("%v violations; %s", violations, rec.Note)
	}

	replica := b.Hosts()[1].Name
	for _, statement := range []string{"SET GLOBAL super_read_only = OFF, read_only = OFF",
		"DELETE FROM sbtest.history ORDER BY h_id DESC LIMIT 1"} {
		if _, err := b.DB(replica).ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	found, err := checkTPCC(ctx, b, &tpccLoad{warehouses: 1})
	if err != nil || len(found) != 3 || !strings.HasPrefix(found[0], replica+": clause 3.3.2.8") {
		t.Errorf("a payment is missing on %s: found %q, %v", replica, found, err)
	}
}

func TestTPCCSettings(t *testing.T) {
	for _, c := range []string{"", "x", "0", "1001"} {
		if err := tpccSuite.Check(Settings{Cases: []string{"10", c}}); err == nil ||
			!strings.Contains(err.Error(), "warehouses") {
			t.Errorf("%q: %v", c, err)
		}
	}
	full, quick := tpccSuite.Defaults(false), tpccSuite.Defaults(true)
	if tpccSuite.Check(full) != nil || tpccSuite.Check(quick) != nil || len(full.Workloads) > 0 {
		t.Errorf("%+v %+v", full, quick)
	}
}
