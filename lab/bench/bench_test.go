package bench

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/tpcc"
	"trireme/lab/wan"
)

func TestMain(m *testing.M) {
	child.Main(wan.Forwarder, faultfs.Server, tpcc.Generator)
	os.Exit(testkit.Run(m))
}

// needServers marks a test that runs a suite on real servers.
func needServers(t *testing.T) {
	t.Helper()
	needs.Long(t)
	needs.MySQL(t)
	needs.Program(t, "sysbench")
}

// withSysbench lets a plan be made where there is no sysbench: none is started.
func withSysbench(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sysbench"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

// TestSuite runs a suite on real servers, with short runs, and checks that its figures make sense and that a report
// comes of them.
func TestSuite(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out := t.TempDir()
	err := Run(ctx, RunOptions{Suites: []string{"cpu"}, Quick: true, Out: out, Dir: t.TempDir(), Say: testWriter{t},
		Settings: Settings{Systems: []string{"standalone", "semisync"},
			Topologies: []string{noTopology}, Threads: []int{8}, Rounds: 1, WarmupSeconds: 1, Seconds: 2, CPUs: -1, Tables: 2,
			Rows: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readResults(resultsPath(out, "cpu"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Records) != 2 {
		t.Fatalf("%d cells, want 2", len(r.Records))
	}
	for _, c := range r.Records {
		v := c.Values
		if c.NotRun != "" || v[valTPS] <= 0 || v[valSustained] > v[valTPS] || v[valClientUS] <= 0 || v[valCPULeader] <= 0 ||
			v[valCPUAll] < v[valCPULeader] || v[valWritten] <= 0 {
			t.Errorf("%s: figures make no sense: %+v", c.Key, c)
		}
		if c.System == "semisync" && (len(c.Hosts) != 3 || c.Hosts[1].MySQLus <= 0 || c.Hosts[2].MySQLus <= 0) {
			t.Errorf("semi-sync replicas did no work: %+v", c.Hosts)
		}
	}
	for _, name := range []string{"report.html", "report.md", "cpu.md"} {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}
