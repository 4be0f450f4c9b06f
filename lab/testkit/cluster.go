package testkit

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
)

const createLimit = 4 * time.Minute

// smallServer is what every mysqld begins with, unless the test says otherwise: one that touches less memory takes a
// sixth less CPU to start, and a run of all tests starts some thousand.
var smallServer = map[string]string{"innodb_buffer_pool_size": "64M", "innodb_log_buffer_size": "1M",
	"innodb_redo_log_capacity": "64M", "max_allowed_packet": "64M", "max_connections": "200",
	"performance_schema_accounts_size": "50", "performance_schema_digests_size": "500",
	"performance_schema_hosts_size": "20", "performance_schema_users_size": "50", "table_definition_cache": "400",
	"table_open_cache": "400"}

// Clusters starts clusters of real servers for the tests of one package. Its methods may be called at the same time.
type Clusters struct {
	Name         string             // of each, followed by a number
	Dir          string             // scratch of this test process
	MySQLOptions map[string]string  // of all, above those of a small server
	Tune         func(*config.Node) // of all, before that of demo.Options; nil: nothing

	mu       sync.Mutex
	made     int
	template *demo.Template // nil: not made yet
}

// NewDir names the directory of the next cluster; it is not made yet.
func (k *Clusters) NewDir() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made++
	return filepath.Join(k.Dir, fmt.Sprintf("%s%d", k.Name, k.made))
}

// Credential is the file with the operator's credential of a cluster.
func (k *Clusters) Credential(c *demo.Cluster) string {
	return filepath.Join(k.credentials(), c.State().Cluster)
}

func (k *Clusters) credentials() string { return filepath.Join(k.Dir, "credentials") }

// Start makes a cluster. The options say what is particular to it; Dir may be one from NewDir. It is the caller's to
// end.
func (k *Clusters) Start(t testing.TB, o demo.Options) *demo.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), createLimit)
	defer cancel()
	var err error
	if o.PortBase, err = demo.FreePortBase(o.Nodes + o.Loggers + o.Learners); err != nil {
		t.Fatal(err)
	}
	if o.Dir == "" {
		o.Dir = k.NewDir()
	}
	if o.Binary == "" {
		o.Binary = Program(t, Trireme)
	}
	if o.Template, err = k.data(ctx); err != nil {
		t.Fatal(err)
	}
	o.Name, o.CredentialDir, o.Say = filepath.Base(o.Dir), k.credentials(), t.Logf
	options, particular := maps.Clone(smallServer), o.Tune
	maps.Copy(options, k.MySQLOptions)
	maps.Copy(options, o.MySQLOptions)
	o.MySQLOptions = options
	o.Tune = func(n *config.Node) {
		for _, tune := range []func(*config.Node){k.Tune, particular} {
			if tune != nil {
				tune(n)
			}
		}
	}
	c, err := demo.Create(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// data is what the data directories of all nodes begin with.
func (k *Clusters) data(ctx context.Context) (*demo.Template, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.template == nil {
		made, err := demo.NewTemplate(ctx, "")
		if err != nil {
			return nil, err
		}
		k.template = made
	}
	return k.template, nil
}

// logLines of each daemon are shown after a failure.
const logLines = 40

// ShowLogs prints the end of every daemon's log if the test has failed, and keeps the logs where TRIREME_KEEP says.
func ShowLogs(t testing.TB, c *demo.Cluster) {
	if !t.Failed() {
		return
	}
	for _, n := range c.Nodes() {
		b, err := os.ReadFile(c.LogFile(n))
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		t.Logf("%s:\n%s", c.LogFile(n), strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
		if keep := os.Getenv("TRIREME_KEEP"); keep != "" {
			name := filepath.Join(keep, strings.ReplaceAll(t.Name(), "/", "-")+"-"+n.Name)
			_ = os.MkdirAll(keep, 0o755)
			_ = os.WriteFile(name+".log", b, 0o644)
			if e, err := os.ReadFile(filepath.Join(n.Dir, "mysql", "log", "mysqld.err")); err == nil {
				_ = os.WriteFile(name+".err", e, 0o644)
			}
		}
	}
}

// Quiet says that a test of clusters measures time, and what of it: it runs alone (needs.Quiet), before those that call
// t.Parallel, which it cannot call any more.
func Quiet(t *testing.T, what string) {
	t.Helper()
	needs.Quiet(t)
	t.Setenv("TRIREME_QUIET", what)
}
