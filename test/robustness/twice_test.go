package robustness

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
)

// TestTwoAtOnce: two nodes are added before either is a member, and operators ask for the same from two terminals,
// through two nodes: one of them does it, the other one is told, and it is not done twice.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	c := create(t, 1, 0)
	n1 := c.healthy()
	s := c.session(n1)
	s.exec("CREATE DATABASE two", "CREATE TABLE two.t (id INT PRIMARY KEY)", "INSERT INTO two.t VALUES (1)")
	s.close()
	n2, err := c.Add(t.Context(), "n2", config.RoleVoter)
	must(t, err)
	n3, err := c.Add(t.Context(), "n3", config.RoleLogger)
	must(t, err)
	c.joined(n2)
	c.joined(n3)
	c.everywhere("SELECT COUNT(*) FROM two.t", "1")

	for _, verb := range []struct {
		args string
		node string   // that is named to who does it
		told api.Kind // what the other one is told; empty: any reason
	}{
		{"demote n2", "n2", api.KindAlready},
		{"promote n2", "n2", api.KindAlready},
		{"switchover --to n2", "n2", ""},
		{"failover --to n1 --force --yes", "n1", ""},
		{"remove n3", "n3", ""},
	} {
		done, told := c.both(n1, n2, verb.args)
		t.Logf("%s:\n%s\n%s", verb.args, done, told)
		var refusal api.Error
		if err := json.Unmarshal(told, &refusal); err != nil || refusal.Message == "" || verb.told != "" &&
			refusal.Kind != verb.told {
			t.Errorf("trireme %s tells the other one %v %+v, want %s", verb.args, err, refusal, verb.told)
		}
		if !strings.Contains(string(done), `"`+verb.node+`"`) {
			t.Errorf("trireme %s says %s", verb.args, done)
		}
		if strings.HasPrefix(verb.args, "remove") {
			c.Forget(n3)
		}
		if strings.HasPrefix(verb.args, "promote") {
			c.shows(n1, "n2", "is a voter", healthyVoter)
		}
		if verb.args == "demote n2" {
			continue // its vote is missing: not what healthy waits for
		}
		leader := c.healthy()
		s := c.session(leader)
		s.exec("INSERT INTO two.t SELECT MAX(id) + 1 FROM two.t")
		s.close()
	}
	c.equal()
}

// both runs a command on two nodes at once. One says that it is done and the other one why not, or that there is no
// leader at the moment.
func (c *cluster) both(a, b *demo.Node, args string) (done, told []byte) {
	c.t.Helper()
	codes, outs := make([]int, 2), make([][]byte, 2)
	var wg sync.WaitGroup
	for i, n := range []*demo.Node{a, b} {
		wg.Go(func() { codes[i], outs[i] = c.inJSON(n, args) })
	}
	wg.Wait()
	switch {
	case codes[0] == 0 && (codes[1] == 1 || codes[1] == 3):
		return outs[0], outs[1]
	case codes[1] == 0 && (codes[0] == 1 || codes[0] == 3):
		return outs[1], outs[0]
	}
	c.t.Fatalf("trireme %s from two terminals: exit codes %v\n%s\n%s", args, codes, outs[0], outs[1])
	return nil, nil
}
