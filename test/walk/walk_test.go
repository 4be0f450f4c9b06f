package walk

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

var paste = flag.Bool("paste", false, "put what is printed into the pages")

// A walk is one page, followed.
type walk struct {
	page  string // in docs
	hosts string // their names; empty: those of the walk before, as it leaves them
	// cluster are those of them that are a healthy cluster when the page begins; db1 leads. A name that begins with l is
	// a logger's.
	cluster    string
	failpoints bool // the daemons have the points of package failpoint
	// steps are what the page leaves to the reader, by the command before which it is done, once ("": at the end):
	//	HOST# COMMAND          is run until its end
	//	join HOST              with the token in its file (see join)
	//	healthy N              waits until so many nodes are, and another one of three could lead; without delayed ones
	//	slow HOST HOST TIME    gives the way between two hosts that round trip; 0s: what it had
	//	arm HOST POINT=ACTION  arms a point of package failpoint
	steps   map[string][]string
	instead map[string]string // what is run in place of a command
	skip    []string          // commands that are not run: they do not end, or are another case than those before
	fails   []string          // commands that end with another exit code than 0
}

// elsewhere puts what these hosts have in the place of what they do not have: a mysqld under its own name, a terminal,
// a password.
var elsewhere = strings.NewReplacer("$(pidof mysqld)", "$(pgrep -o -f defaults-file)", " -p ", " ",
	"PASSWORD=…", "PASSWORD=secret")

// TestWalksFit: what a walk says of a command is said of one that its page shows.
func TestWalksFit(t *testing.T) {
	for _, w := range walks {
		p, err := readPage(filepath.Join("../../docs", w.page))
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]bool{"": true}
		for _, c := range p.commands {
			shown[c.name] = true
		}
		said := slices.Concat(w.skip, w.fails, slices.Collect(maps.Keys(w.steps)), slices.Collect(maps.Keys(w.instead)))
		for _, name := range said {
			if !shown[name] {
				t.Errorf("%s shows no %q", w.page, name)
			}
		}
	}
}

// TestWalks follows the pages.
func TestWalks(t *testing.T) {
	needs.Long(t)
	for rest := walks; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].hosts == "" {
			n++
		}
		same := rest[:n]
		rest = rest[n:]
		var names []string
		for _, w := range same {
			names = append(names, strings.TrimSuffix(filepath.Base(w.page), ".md"))
		}
		t.Run(strings.Join(names, "+"), func(t *testing.T) {
			h := same[0].start(t)
			for _, w := range same {
				w.follow(t, h)
			}
		})
	}
}

// start starts the hosts, with the cluster that the page begins with.
func (w *walk) start(t *testing.T) *hosts {
	program := testkit.Trireme
	if w.failpoints {
		program = testkit.Failpoints
	}
	h := startHosts(t, program, strings.Fields(w.hosts)...)
	t.Cleanup(func() {
		if t.Failed() {
			for host := range h.pid {
				out, _ := h.run(host, "tail -n 10 "+unitLog, "")
				t.Logf("%s, the end of its log:\n%s", host, out)
			}
		}
	})
	w.makeCluster(h)
	return h
}

func (w *walk) follow(t *testing.T, h *hosts) {
	p, err := readPage(filepath.Join("../../docs", w.page))
	if err != nil {
		t.Fatal(err)
	}
	if *paste {
		defer func() { // as far as it came
			if err := p.write(); err != nil {
				t.Error(err)
			}
		}()
	}
	joins, steps := "", maps.Clone(w.steps)
	for _, c := range p.commands {
		name := c.name
		h.steps(steps[name])
		delete(steps, name)
		if slices.Contains(w.skip, name) || slices.Contains(w.skip, c.host+"# "+c.text) {
			continue
		}
		text := cmp.Or(w.instead[name], elsewhere.Replace(c.text))
		var out string
		switch {
		case c.takesToken():
			out, err = h.run(c.host, text, joins)
		case c.client:
			out, err = h.run(c.host, text, strings.ReplaceAll(strings.Join(c.typed, "\n"), "'…'", "'secret'"))
		default:
			out, err = h.answer(c.host, text, c.typed)
		}
		if t := tokens.FindString(out); t != "" {
			joins = t
		}
		waits := func(line string) bool { return strings.HasPrefix(line, "waiting for ") } // how far it is, while it lasts
		printed, want := slices.DeleteFunc(strings.Split(out, "\n"), waits), slices.DeleteFunc(p.wanted(c), waits)
		if (err != nil) != slices.Contains(w.fails, name) {
			t.Errorf("%s:%d: %s: %v: %s", w.page, c.line+1, name, err, out)
			continue
		}
		if c.takesToken() && len(want) > 0 && tokens.MatchString(want[0]) {
			printed = append(want[:1:1], printed...)
		}
		if c.client || len(want) == 0 || matches(trim(want), trim(printed)) {
			continue
		}
		if *paste {
			p.paste(c, trim(printed))
			continue
		}
		t.Errorf("%s:%d: %s prints\n%s\nand the page says\n%s", w.page, c.line+1, name, strings.Join(printed, "\n"),
			strings.Join(want, "\n"))
	}
	h.steps(steps[""])
}

// makeCluster makes the hosts the cluster that the page begins with.
func (w *walk) makeCluster(h *hosts) {
	members := strings.Fields(w.cluster)
	if len(members) == 0 {
		return
	}
	h.mustRun("db1", "trireme init --cluster shop --name db1 --host db1 && systemctl enable --now trireme", "")
	h.steps([]string{"healthy 1"})
	for _, host := range members[1:] {
		h.steps(join(host))
	}
	h.steps([]string{fmt.Sprint("healthy ", len(members))})
	for _, host := range members[1:] { // whose page says that somebody there has a credential
		h.mustRun(host, "umask 077; mkdir -p /root/.config/trireme && cat >/root/.config/trireme/shop",
			h.mustRun("db1", "cat /root/.config/trireme/shop", ""))
	}
}

// steps does what a page leaves to the reader.
func (h *hosts) steps(steps []string) {
	h.t.Helper()
	for _, s := range steps {
		if as, is := strings.CutPrefix(s, "join "); is {
			host, role, _ := strings.Cut(as, " ")
			h.mustRun(host, "trireme join "+role+" --name "+host+" --host "+host+" -",
				tokens.FindString(h.mustRun("db1", "cat /tmp/"+host, "")))
			continue
		}
		if n, is := strings.CutPrefix(s, "healthy "); is {
			h.awaitHealthy(n)
			continue
		}
		if link, is := strings.CutPrefix(s, "slow "); is {
			h.slow(strings.Fields(link))
			continue
		}
		if point, is := strings.CutPrefix(s, "arm "); is {
			host, spec, _ := strings.Cut(point, " ")
			h.arm(host, spec)
			continue
		}
		host, command, _ := strings.Cut(s, "# ")
		h.mustRun(host, command, "")
	}
}

// slow gives the way between two hosts a round trip.
func (h *hosts) slow(link []string) {
	h.t.Helper()
	rtt, err := time.ParseDuration(link[2])
	if err == nil && rtt == 0 {
		err = h.network.Restore(link[0], link[1])
	} else if err == nil {
		err = h.network.Slow(link[0], link[1], rtt, 0)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// arm arms a point of a host's daemon.
func (h *hosts) arm(host, spec string) {
	h.t.Helper()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/%d/root/var/lib/trireme/failpoints.sock", h.pid[host]))
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	_, err = fmt.Fprintln(c, "arm", spec)
	answer, readErr := bufio.NewReader(c).ReadString('\n')
	if err := errors.Join(err, readErr); err != nil || strings.HasPrefix(answer, "error") {
		h.t.Fatalf("%s: arm %s: %v %s", host, spec, err, answer)
	}
}

// awaitHealthy waits until n nodes, and no others, are healthy and have their roles.
func (h *hosts) awaitHealthy(n string) {
	h.t.Helper()
	err := poll.Within(h.t.Context(), 2*commandLimit, n+" healthy nodes", func(context.Context) error {
		out, err := h.run("db1", "trireme status --json", "")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var v api.ClusterView
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			return err
		}
		up, delayed := 0, 0
		for _, m := range v.Members {
			if m.Delay != nil {
				delayed++
			}
			if m.State == api.StateHealthy && m.Role != api.RoleLearner && len(m.Warnings) == 0 {
				up++
			}
		}
		safe := up < 3 || v.Failover.To != "" || v.Pause != nil
		if fmt.Sprint(up) != n || len(v.Members)-delayed != up || v.Leader == "" || !safe {
			text, _ := h.run("db1", "trireme status", "")
			return fmt.Errorf("there are %d:\n%s", up, text)
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// takesToken: it reads a join token.
func (c *command) takesToken() bool {
	return strings.HasPrefix(c.text, "trireme join ") ||
		strings.HasPrefix(c.text, "trireme adopt ") && strings.Contains(c.text, " - ")
}

// trim leaves empty lines out at the beginning and the end.
func trim(lines []string) []string {
	return strings.Split(strings.Trim(strings.Join(lines, "\n"), "\n"), "\n")
}
