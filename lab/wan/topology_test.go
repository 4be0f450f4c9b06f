package wan

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestPresets(t *testing.T) {
	want := map[string][3]string{ // links of hosts 1-2, 1-3, 2-3
		"lan":          {"100µs", "100µs", "100µs"},
		"city":         {"1ms", "1ms", "1ms"},
		"10ms":         {"10ms", "10ms", "10ms"},
		"30ms":         {"30ms", "30ms", "30ms"},
		"two-regions":  {"1ms", "30ms", "30ms"},
		"three-cities": {"5ms", "30ms", "30ms"},
	}
	for _, name := range Presets() {
		topo, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]string{topo.Link(0, 1).String(), topo.Link(0, 2).String(), topo.Link(2, 1).String()}; got != want[name] {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
		if n := len(topo.Sites); topo.Link(0, n) != topo.Within {
			t.Errorf("%s: host %d is not in the site of the first", name, n+1)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestParse(t *testing.T) {
	topo, err := parseTopology("dir/x.toml", []byte(`
sites = ["a", "b", "a"]
[within]
rtt = "1ms"
[[between]]
sites = ["b", "a"]
rtt = "30ms"
jitter = "2ms"
loss = 0.001
rate = "2.5Mbit"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Link{RTT: 30 * time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.001, Rate: 2500 * kbit}
	if topo.Link(0, 1) != want || topo.Link(1, 2) != want || topo.Link(0, 2).RTT != time.Millisecond || topo.Name != "x" {
		t.Errorf("%+v", topo)
	}
	if s := want.String(); s != "30ms + 2ms jitter, 0.1 % lost, 2.5Mbit" {
		t.Error(s)
	}
	if l := topo.Links(); len(l) != 2 || l[1] != want {
		t.Error(l)
	}
	for text, problem := range map[string]string{
		"":                       "sites is missing",
		"sites = 1":              "incompatible types",
		"sites = [\"a\"]\nx = 1": "unknown key x",
		"sites = [\"a\", \"b\"]": "what lies between sites \"a\" and \"b\"",
		"sites = [\"a\"]\nwithin = { rtt = \"1\" }":                                                        "invalid duration",
		"sites = [\"a\"]\nwithin = { rtt = \"-1ms\" }":                                                     "rtt -1ms",
		"sites = [\"a\"]\nwithin = { loss = 2.0 }":                                                         "loss 2",
		"sites = [\"a\"]\nwithin = { rate = \"5\" }":                                                       "not a rate",
		"sites = [\"a\"]\nwithin = { rate = \"-5Mbit\" }":                                                  "not a rate",
		"sites = [\"a\", \"b\"]\n[[between]]\n[[between]]":                                                 "two [[between]]",
		"sites = [\"a\", \"b\"]\n[[between]]\nsites = [\"a\"]":                                             "two different",
		"sites = [\"a\", \"b\"]\n[[between]]\nsites = [\"a\", \"c\"]":                                      "no host is in site \"c\"",
		"sites = [\"a\", \"b\"]\n[[between]]\nsites = [\"a\", \"b\"]\n[[between]]\nsites = [\"b\", \"a\"]": "given twice",
	} {
		if _, err := parseTopology("f", []byte(text)); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %q", text, err, problem)
		}
	}
	if _, err := Load("no-such"); err == nil || !strings.Contains(err.Error(), "two-regions") {
		t.Error(err)
	}
}

// TestQueue: what comes out is what went in, in order, whatever the sizes, and chunks are used again.
func TestQueue(t *testing.T) {
	var pool chunkPool
	var q queue
	chance := rand.New(rand.NewPCG(1, 2))
	sizes := []int{}
	next, seen := 0, 0
	packet := make([]byte, largestPacket)
	for range 20000 {
		if chance.IntN(2) == 0 || q.empty() {
			n := 20 + chance.IntN(largestPacket-20)
			if chance.IntN(3) > 0 {
				n = 100
			}
			packet[0], packet[n-1] = byte(next), byte(next>>8)
			q.push(&pool, int64(next), packet[:n])
			sizes = append(sizes, n)
			next++
			continue
		}
		deadline, p := q.head()
		if deadline != int64(seen) || len(p) != sizes[seen] || p[0] != byte(seen) || p[len(p)-1] != byte(seen>>8) {
			t.Fatalf("packet %d: deadline %d, %d bytes", seen, deadline, len(p))
		}
		q.pop(&pool)
		seen++
	}
	for !q.empty() {
		q.pop(&pool)
		seen++
	}
	if seen != next || q.first != nil {
		t.Errorf("%d packets out of %d, first chunk %v", seen, next, q.first)
	}
}

// TestAdmit: the arithmetic of a path, on a clock of its own.
func TestAdmit(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	p := &path{state: new(linkState)}
	ms := int64(time.Millisecond)
	p.state.store(Link{RTT: 10 * time.Millisecond, Rate: 8 * mbit}, false) // 1 byte is 1 µs
	for i, want := range []int64{6, 7, 8} {                                // each waits for those before it
		if d, v := p.admit(0, 1000, chance); v != pass || d != want*ms {
			t.Errorf("packet %d: %d ns, %v", i, d, v)
		}
	}
	if d, _ := p.admit(100*ms, 1000, chance); d != 106*ms {
		t.Errorf("on an idle link: %d", d)
	}
	for range 100 {
		p.admit(100*ms, 1000, chance)
	}
	if _, v := p.admit(100*ms, 1000, chance); v != overflow {
		t.Errorf("after 100 ms of waiting data: %v", v)
	}
	p.state.store(Link{RTT: time.Millisecond}, false)
	if d, v := p.admit(110*ms, 1000, chance); v != pass || d != p.last || d < 200*ms {
		t.Errorf("on a link made faster it overtakes: %d", d)
	}
	p.state.store(Link{}, true)
	if _, v := p.admit(0, 1, chance); v != cut {
		t.Error("not cut")
	}
	p.state.store(Link{Loss: 1}, false)
	if _, v := p.admit(0, 1, chance); v != lost {
		t.Error("not lost")
	}
}
