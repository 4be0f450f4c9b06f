package rivals

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/demo"
	"trireme/lab/verify"
)

func (g *galera) Login() verify.Login {
	g.clients.set(g.servers[0])
	return g.clients.login()
}

func (g *galera) Kill(hosts []string) error { return killServers(g.servers, hosts) }

// Recover: a minority's loss is the cluster's own affair. After that of a majority an operator stops what is left, and
// starts a new cluster from the most advanced node. (pc.bootstrap would spare the stop, but cannot be set while the
// wsrep-provider plugin is loaded, which Debian's MariaDB does.) The others would have to copy from it what they lack;
// the count of what is lost does not need them.
func (g *galera) Recover(ctx context.Context, back []string, lost string) (human string, err error) {
	dead := back
	if lost != "" {
		dead = append(slices.Clone(back), lost)
	}
	total := len(g.servers)
	alive := slices.DeleteFunc(slices.Clone(g.servers), func(s *server) bool { return slices.Contains(dead, s.host.name) })
	for _, s := range g.servers {
		if slices.Contains(dead, s.host.name) {
			s.stop()
		}
	}
	rest := without(g.servers, lost)
	serving := alive
	if 2*len(dead) > total {
		human = "stopped what was left, compared the positions of the nodes (--wsrep-recover), and started a new cluster from the most advanced one"
		for _, s := range alive {
			s.db.Close()
			s.proc.Stop(startLimit)
		}
		best, err := g.found(ctx, rest)
		if err != nil {
			return human, err
		}
		serving = []*server{best}
	}
	g.servers = append(serving, slices.DeleteFunc(rest, func(s *server) bool { return slices.Contains(serving, s) })...)
	err = poll(ctx, settleLimit, "a primary component", func(ctx context.Context) error {
		ready, err := serving[0].status(ctx, "wsrep_ready")
		if err == nil && ready != "ON" {
			err = fmt.Errorf("wsrep_ready of %s is %s", serving[0].host.name, ready)
		}
		return err
	})
	g.clients.set(serving[0])
	return human, err
}

// found starts a new cluster from the most advanced of nodes that do not run.
func (g *galera) found(ctx context.Context, nodes []*server) (best *server, err error) {
	most := int64(-1)
	for _, s := range nodes {
		n, err := s.wsrepPosition(ctx)
		if err != nil {
			return nil, err
		}
		if n > most {
			best, most = s, n
		}
	}
	state := filepath.Join(best.host.dir, "data", "grastate.dat")
	b, err := os.ReadFile(state)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(state, []byte(strings.Replace(string(b), "safe_to_bootstrap: 0", "safe_to_bootstrap: 1", 1)), 0o640); err != nil {
		return nil, err
	}
	best.command.Args = append(best.command.Args, "--wsrep-new-cluster")
	if err := best.launch(); err != nil {
		return nil, err
	}
	return best, best.waitUp(ctx)
}

var rePosition = regexp.MustCompile(`Recovered position: [0-9a-f-]+:(-?\d+)`)

// wsrepPosition recovers a node that does not run, and returns the number of its last write set.
func (s *server) wsrepPosition(ctx context.Context) (int64, error) {
	logFile := filepath.Join(s.host.dir, "error.log")
	before, err := os.ReadFile(logFile)
	if err != nil {
		return 0, err
	}
	p, err := s.host.start(demo.Command{Path: s.command.Path, Args: append(slices.Clone(s.command.Args), "--wsrep-recover"), LogFile: s.command.LogFile})
	if err != nil {
		return 0, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
	case <-time.After(startLimit):
	}
	p.Kill()
	log, err := os.ReadFile(logFile)
	if err != nil {
		return 0, err
	}
	m := rePosition.FindSubmatch(log[min(len(before), len(log)):])
	if m == nil {
		return 0, fmt.Errorf("%s does not tell its position: %s", s.host.name, lastLines(string(log), 3))
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

func (g *galera) Serving(context.Context) (verify.Endpoint, error) { return g.servers[0].endpoint() }
