package robustness

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/needs"
)

// TestMySQLSuitesUnderKills runs the scripts of TestMySQLSuites while servers are killed, one in the course of each:
// the leader's mysqld, a follower's, the daemon of n3, whichever role that has. Nodes must be healthy and equal after
// each, and no follower may stop. The transcripts are those of one server: at once where a follower was killed and the
// script goes through 6446, else when the script, whose transactions a kill may have ended, runs again.
func TestMySQLSuitesUnderKills(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	r, list := newSuiteRun(t)
	n, again := 0, 0
	r.all(list, func(ctx context.Context, p plainRun) {
		to := r.onNodes[n/len(scriptKills)%len(r.onNodes)]
		how := scriptKills[n%len(scriptKills)]
		n++
		at := time.Duration(rand.Float64() * 0.7 * float64(p.took)) // the plain server is no quicker than the cluster
		victim, killed := how.victim(r), false
		got, err := r.onCluster(ctx, p, to, func(ended <-chan struct{}) {
			select {
			case <-time.After(at):
				how.kill(r.c, victim)
				killed = true
			case <-ended:
			}
		})
		if how.daemon && killed {
			r.c.start(victim)
		}
		r.nodes(ctx, p.script, to)
		unseen := !r.follow(ctx) && (!killed || to.name == "6446")
		t.Logf("%s through %s, %s of %s after %v: killed %v, as one server %v, %s leads", p, to.name, how.name, victim.Name,
			at.Round(time.Millisecond), killed, err == nil && got == p.transcript, r.leader)
		for range killedTries {
			if unseen || err == nil && got == p.transcript {
				break
			}
			again++
			got, err = r.onCluster(ctx, p, to, func(<-chan struct{}) {})
			r.nodes(ctx, p.script, to)
		}
		if why := r.known["kill "+p.String()]; why != "" {
			t.Logf("%s is not compared: %s", p, why)
			return
		}
		r.judge(ctx, p, to, got, err)
	})
	t.Logf("%d scripts, run again %d times", n, again)
}

// killedTries is how often a script runs again. EXPLAIN's estimates depend on what the server has purged, and one that
// has just started has purged less.
const killedTries = 2

// scriptKills are what is killed, in turns.
var scriptKills = []struct {
	name   string
	victim func(*suiteRun) *demo.Node
	kill   func(*cluster, *demo.Node)
	daemon bool // it has to be started again
}{
	{"mysqld", func(r *suiteRun) *demo.Node { return r.c.Node(r.leader) }, (*cluster).crash, false},
	{"mysqld", func(r *suiteRun) *demo.Node { return r.c.others(r.c.Node(r.leader))[0] }, (*cluster).crash, false},
	// Not n1 and n2, through whose routers the scripts go.
	{"daemon", func(r *suiteRun) *demo.Node { return r.c.Node("n3") }, func(c *cluster, n *demo.Node) { c.KillDaemon(n) },
		true},
}

// follow turns to the mysqld that leads now, and says whether that is another one than before. What can be set there is
// as it was made when it took over: scripts have set it on the former leader only.
func (r *suiteRun) follow(ctx context.Context) (moved bool) {
	r.t.Helper()
	leader := r.c.healthy()
	admin, err := r.c.Admin(leader)
	must(r.t, err)
	now, err := globals(ctx, admin)
	must(r.t, err)
	_ = r.node.db.Close()
	moved = now["server_uuid"] != r.node.globals["server_uuid"]
	r.leader, r.node.db = leader.Name, admin
	if moved {
		r.node.globals = now
	}
	return moved
}
