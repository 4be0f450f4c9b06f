package dashboard

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again")

// described is what the page of a source says after some looks.
func described(t *testing.T, f *fake) *state {
	t.Helper()
	var s series
	at := noon
	for range 4 {
		at = at.Add(time.Second)
		s.add(at, f.view, f.Loads(t.Context(), f.view))
	}
	return describe(f.view, f.here, f.events, f.err, &s, at)
}

// TestPages: what the page says of a healthy cluster, of one without a quorum, and of one with every trouble.
func TestPages(t *testing.T) {
	for name, f := range map[string]*fake{"healthy": healthy(), "headless": headless(), "troubled": troubled(),
		"silent": silent(), "fresh": fresh()} {
		st := described(t, f)
		var b bytes.Buffer
		for _, part := range sections {
			if part == "events" && name != "healthy" {
				continue
			}
			b.WriteString("=== " + part + "\n")
			if err := pages.ExecuteTemplate(&b, part, st); err != nil {
				t.Fatal(err)
			}
			b.WriteString("\n")
		}
		if text := b.String(); strings.Contains(text, "<script") || strings.Contains(text, "<img") ||
			strings.Contains(text, " onclick=\"alert") || strings.Contains(text, "ZgotmplZ") {
			t.Errorf("%s: what a name says is not escaped", name)
		}
		golden := filepath.Join("testdata", name+".html")
		if *rewrite {
			if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			got := strings.Split(b.String(), "\n")
			for i, line := range strings.Split(string(want), "\n") {
				if i >= len(got) || got[i] != line {
					t.Errorf("%s:%d: not %q; look at the page and run with -rewrite", golden, i+1, line)
					break
				}
			}
		}
	}
}

// TestStateInWords: the words that an operator has to find.
func TestStateInWords(t *testing.T) {
	texts := func(f *fake) string {
		var all []string
		for _, a := range described(t, f).Alerts {
			all = append(all, a.Level+" "+a.Word+": "+a.Text)
		}
		return strings.Join(all, "\n")
	}
	if got := texts(healthy()); got != "" {
		t.Errorf("of a healthy cluster: %s", got)
	}
	got := texts(headless())
	for _, want := range []string{"loud No leader known: Writes are refused until a majority of the voters is up (1 of 3 are, as far as l1 hears).", "bad In doubt: l1 hears 1 of 3", "n1, n2: no word from them"} {
		if !strings.Contains(got, want) {
			t.Errorf("without a quorum it does not say %q but\n%s", want, got)
		}
	}
	if !strings.HasPrefix(got, "loud") {
		t.Errorf("the worst is not the first: %s", got)
	}
	got = texts(silent())
	for _, want := range []string{"loud No leader: ", "bad Silent: n1:",
		"bad Disk full: n3: the disk of /srv/shop/mysql/relay"} {
		if !strings.Contains(got, want) {
			t.Errorf("with a silent leader and a full disk it does not say %q but\n%s", want, got)
		}
	}
	if got = texts(fresh()); !strings.HasPrefix(got, "loud No leader known: Who leads is not known: n4 has not heard from the cluster yet") || strings.Contains(got, "refused") {
		t.Errorf("of a node that has heard nothing: %s", got)
	}
	low := healthy()
	st := described(t, low)
	st.Nodes[1].Disks[0].Low = true
	if a := alertsOf(Problems(low.view, "below"), st.Nodes); len(a) != 1 ||
		!strings.Contains(a[0].Text, "n2: under a tenth of the disk with its log, data") {
		t.Errorf("a full disk: %+v", a)
	}
	for range 50 {
		low.view.Members[1].Warnings = append(low.view.Members[1].Warnings, "it is slow")
	}
	if a := alertsOf(Problems(low.view, "below"), st.Nodes); len(a) != maxAlerts+1 ||
		!strings.Contains(a[maxAlerts].Text, "39 more") {
		t.Errorf("many alerts: %+v", a)
	}
	broken := healthy()
	broken.err, broken.events = errors.New("disk"), nil
	if st := described(t, broken); st.NoHistory != "disk" || len(st.Reigns) != 0 {
		t.Errorf("%+v", st)
	}
	empty := &fake{here: "n1",
		view: api.ClusterView{Cluster: "shop",
			Members: []api.MemberView{{Name: "n1", Role: api.RoleFollower, State: api.StateStarting}}}}
	if st := described(t, empty); st.Nodes[0].Level != levelWarn || len(st.Alerts) == 0 ||
		st.Alerts[0].Level != levelLoud {
		t.Errorf("a node that has just begun: %+v", st)
	}
}

// TestSeries: rates by the nodes' own clocks, nothing across a restart, nothing kept of who is no member, and a bounded
// past.
func TestSeries(t *testing.T) {
	f := healthy()
	var s series
	loads := func(age float64, transactions uint64) map[string]api.LoadView {
		return map[string]api.LoadView{"n1": {Node: "n1", AgeS: age, Transactions: transactions}}
	}
	at := noon
	for i, step := range []struct {
		age          float64
		transactions uint64
		known        bool
		rate         float64
	}{{100, 1000, false, 0}, {102, 1500, true, 250}, {103, 1500, true, 0}, {1, 10, false, 0}, {2, 30, true, 20}} {
		at = at.Add(time.Second)
		s.add(at, f.view, loads(step.age, step.transactions))
		if p := s.rate[i]; p.known != step.known || p.value != step.rate {
			t.Errorf("look %d: %+v", i, p)
		}
	}
	for range 1000 {
		at = at.Add(time.Second)
		s.add(at, f.view, loads(at.Sub(noon).Seconds()+10, 1))
	}
	if len(s.rate) > 125 || len(s.nodes["n1"]) > 13 {
		t.Errorf("%d points, %d samples are kept", len(s.rate), len(s.nodes["n1"]))
	}
	f.view.Members = f.view.Members[1:]
	s.add(at, f.view, nil)
	if _, kept := s.nodes["n1"]; kept {
		t.Error("samples of a node that was removed")
	}
}

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		bytesText(0): "0 B", bytesText(1023): "1023 B", bytesText(1 << 20): "1.0 MiB", bytesText(999 << 30): "999 GiB",
		bytesText(1023 << 30): "1.0 TiB", seconds(0): "0.0 s", seconds(59.94): "59.9 s", seconds(600): "10 min",
		seconds(7200): "2.0 h", millis(0.00012): "0.12", millis(0.0123): "12.3", millis(1.3124): "1312", rate(0): "0",
		rate(3.25): "3.2", rate(1234.5): "1\u202f235", grouped(999): "999", grouped(1000): "1\u202f000",
		shorten("äöü", 3): "ä…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestReigns: a day's strip is filled without gaps or overlaps, also when clocks of nodes disagree.
func TestReigns(t *testing.T) {
	lead := func(node string, ago time.Duration) api.Event { return api.Event{To: node, Time: noon.Add(-ago)} }
	got := reigns([]api.Event{lead("n1", 48*time.Hour), lead("n2", 12*time.Hour), {Kind: "fence"},
		lead("n3", 6*time.Hour)}, noon)
	if len(got) != 3 || got[0].X != "0.000%" || got[0].Width != "50.000%" || got[1].X != "50.000%" ||
		got[2].Node != "n3" || got[2].Width != "25.000%" {
		t.Errorf("%+v", got)
	}
	if got := reigns([]api.Event{lead("n1", time.Hour), lead("n2", 2*time.Hour), lead("n3", -time.Hour)}, noon); len(got) != 1 {
		t.Errorf("clocks that disagree: %+v", got)
	}
	if got := reigns(nil, noon); got != nil {
		t.Errorf("%+v", got)
	}
}

// TestText: what is between backticks is code; a backtick alone stays; nothing gets past escaping.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"run `trireme why-not n1`, then `a`": "run <code>trireme why-not n1</code>, then <code>a</code>",
		"plain <b>":                          "plain &lt;b&gt;",
		"`<script>` and <i>":                 "<code>&lt;script&gt;</code> and &lt;i&gt;",
		"one ` alone, `two`":                 "one <code> alone, </code>two`",
		"a `b":                               "a `b",
		"":                                   "",
	} {
		if got := string(text(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
