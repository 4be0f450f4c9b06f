package transport

import "testing"

// Nodes of two generations tell each other theirs, both ways round, and exchange nothing else.
func TestGenerationsStayApart(t *testing.T) {
	second := Generation{Number: 2, ID: 7, Claim: "who is in"}
	for name, c := range map[string][2]Generation{
		"left behind":      {{}, second},
		"ahead":            {second, {}},
		"two second ones":  {second, {Number: 2, ID: 8, Claim: "others"}},
		"several in a row": {second, {Number: 5, ID: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			a := startNode(t, 1, func(cfg *Config) { cfg.Generation = c[0] })
			b := startNode(t, 2, func(cfg *Config) { cfg.Generation = c[1] })
			a.SetPeers(map[uint64]string{2: b.Addr()}) // b dials no peer: it learns from being dialed
			wants := map[*node]Generation{a: b.cfg.Generation, b: a.cfg.Generation}
			for n, want := range wants {
				eventually(t, "told of the other generation", func() bool {
					n.mu.Lock()
					defer n.mu.Unlock()
					return n.strangers[3-n.cfg.ID] == want
				})
			}
			a.Broadcast([]byte("hello"))
			for _, n := range []*node{a, b} {
				n.with(func() {
					if len(n.events)+len(n.statuses)+len(n.msgs) > 0 || n.Connected(3-n.cfg.ID) {
						t.Errorf("%d: %v %v %v", n.cfg.ID, n.events, n.statuses, n.msgs)
					}
				})
			}
		})
	}
}

// A node of the same generation is let in, also by one that says nothing of it.
func TestSameGeneration(t *testing.T) {
	g := Generation{Number: 2, ID: 7, Claim: "who is in"}
	a := startNode(t, 1, func(cfg *Config) { cfg.Generation = g })
	b := startNode(t, 2, func(cfg *Config) { cfg.Generation = g })
	connect(a, b)
	if g, err := decodeGeneration(nil); err != nil || !g.same(Generation{Number: 1}) {
		t.Fatalf("%v, %v", g, err)
	}
}
