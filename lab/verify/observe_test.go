package verify

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// alive fills a set with one acknowledged write of each workload, and looks at both nodes.
func alive(t *testing.T) *Set {
	s := keepSet(t, "")
	s.everyNode, s.nodes = true, []string{"n1", "n2"}
	for _, p := range s.parts {
		switch p := p.(type) {
		case *registerPart:
			_ = p.history.add(writeAt(0, 1, 1))
		case *appendPart:
			_ = p.levels[0].history.add(txn(0, 1, Acked, "a1:1"))
			_ = p.levels[1].history.add(txn(0, 1, Acked, "a1:2"))
		case *bankPart:
			_ = p.transfers.add(transfer(1, Acked))
			for _, n := range s.nodes {
				_ = p.reads.add(BankRead{Node: n, Accounts: bankAccounts, Sum: bankAccounts * bankBalance})
			}
		case *rowsPart:
			p.log.Settle(0, p.log.Begin(0), Acked)
		case *mixedPart:
			p.sumUp(Acked)
		case *largePart:
			_ = p.history.add(LargeTrx{Span: Span{Outcome: Acked}, Number: 1, Rows: 5})
		case *vanishPart:
			_ = p.writes.add(seen(1, Acked))
			for _, n := range s.nodes {
				_ = p.views.add(view(n, "a", 50, 1))
			}
		case *causalPart:
			_ = p.history.add(CausalOp{Span: Span{Outcome: Acked}, Write: true, Value: 1})
			for range leastPromised {
				_ = p.history.add(CausalOp{Span: Span{Outcome: Acked}, Value: 1, Own: 1})
				_ = p.history.add(CausalOp{Span: Span{Client: 1, Outcome: Acked}, Value: 1, Told: 1})
			}
		case *levelsPart:
			_ = p.history.add(LevelOp{Span: Span{Outcome: Acked}, Write: true, Value: 1, After: true})
			for range leastPromised {
				_ = p.history.add(LevelOp{Span: Span{Client: 1, Begin: 1, End: 2, Outcome: Acked}, Value: 1, Before: true})
				_ = p.history.add(LevelOp{Span: Span{Client: 1, Begin: 1, End: 2, Outcome: Acked}, Value: 1, After: true})
			}
		}
	}
	return s
}

func partOf[T part](s *Set) T {
	for _, p := range s.parts {
		if p, ok := p.(T); ok {
			return p
		}
	}
	panic("no such part")
}

// TestWhatDidNothingIsUndecided: a workload whose clients got nothing done proves nothing, nor does a node that was
// never read.
func TestWhatDidNothingIsUndecided(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Set)
		want   []string // how what is undecided begins
	}{
		{"all alive", func(*Set) {}, nil},
		{"only reads of registers", func(s *Set) { partOf[*registerPart](s).history.ops = []RegisterOp{readAt(0, 1, 0)} },
			[]string{"register: no write"}},
		{"one level of transactions only", func(s *Set) { partOf[*appendPart](s).levels[1].history.ops = nil },
			[]string{"append: no write"}},
		{"transfers refused", func(s *Set) {
			p := partOf[*bankPart](s)
			p.transfers = history[Transfer]{}
			_ = p.transfers.add(transfer(1, Failed))
		}, []string{"bank: no write was acknowledged: 1 attempts, 1 refused"}},
		{"large ones never", func(s *Set) { partOf[*largePart](s).history = history[LargeTrx]{} },
			[]string{"large: no write"}},
		{"statements never", func(s *Set) {
			for _, p := range s.parts {
				if p, ok := p.(*mixedPart); ok {
					p.sum = Counts{}
				}
			}
		}, []string{"ddl: no write", "acl: no write", "xa: no write", "objects: no write"}},
		{"sums of one node", func(s *Set) {
			p := partOf[*bankPart](s)
			p.reads.ops = slices.DeleteFunc(p.reads.ops, func(r BankRead) bool { return r.Node == "n2" })
		}, []string{"bank: n2 was never read"}},
		{"views of none", func(s *Set) {
			partOf[*vanishPart](s).views = history[View]{}
			s.blind.note("vanish", "n1", context.DeadlineExceeded)
		}, []string{"vanish: n1 was never read: context deadline", "vanish: n2 was never read"}},
		{"a node that joined", func(s *Set) { s.nodes = append(s.nodes, "n3") },
			[]string{"bank: n3 was never read", "vanish: n3 was never read"}},
		{"one token too few", func(s *Set) { partOf[*causalPart](s).history.ops[2].Told = 0 },
			[]string{"causal: 10 reads of what the session had written, and 9 of others after a token"}},
		{"the client's own token", func(s *Set) { partOf[*causalPart](s).history.ops[2].Client = 0 },
			[]string{"causal: 10 reads of what the session had written, and 9 of others after a token"}},
		{"one read of its own too few", func(s *Set) { partOf[*causalPart](s).history.ops[1].Own = 0 },
			[]string{"causal: 9 reads of what the session had written, and 10 of others after a token"}},
		{"one read at BEFORE that had nothing to show", func(s *Set) { partOf[*levelsPart](s).history.ops[1].Begin = 0 },
			[]string{"levels: 9 reads at BEFORE of what was answered before; 10 are needed"}},
		{"one read at AFTER too few", func(s *Set) { partOf[*levelsPart](s).history.ops[2].After = false },
			[]string{"levels: 9 reads at AFTER of what was answered at AFTER before; 10 are needed"}},
		{"no list of nodes, nothing read", func(s *Set) { s.everyNode = false }, []string{"bank: the leader was never read",
			"vanish: the leader was never read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := alive(t)
			c.change(s)
			var r Report
			s.judge(&r)
			s.cfg.Nodes = func() (out []NodeLogin) {
				for _, n := range s.nodes {
					out = append(out, NodeLogin{Name: n})
				}
				return out
			}
			if early := s.Unproven(); !slices.Equal(early, r.Undecided) {
				t.Errorf("before the end %q is said to be missing, in the report %q", early, r.Undecided)
			}
			ok := len(r.Undecided) == len(c.want)
			for i, u := range r.Undecided {
				ok = ok && strings.HasPrefix(u, c.want[i])
			}
			if !ok || c.want != nil && (r.OK() || !strings.Contains(r.String(), "NOT DECIDED")) {
				t.Fatalf("undecided %q, want %q", r.Undecided, c.want)
			}
		})
	}
	p := alive(t)
	var r Report
	p.judge(&r)
	for _, v := range r.Parts {
		if v.Counts.Acked == 0 || v.Workload == "bank" && (v.Reads["n1"] != 1 || v.Reads["n2"] != 1) {
			t.Errorf("%s: counts %+v, reads %v", v.Workload, v.Counts, v.Reads)
		}
	}
}

// TestReadersThatAreRefusedAreSeen: readers with a wrong login never read, and the report says why.
func TestReadersThatAreRefusedAreSeen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			const said = "\xff\x15\x04Access denied" // an error packet instead of a greeting: 1045
			_, _ = conn.Write(append([]byte{byte(len(said)), 0, 0, 0}, said...))
			conn.Close()
		}
	}()
	login := Login{Addr: Fixed(l.Addr().String())}
	s, err := NewSet(SetConfig{Login: login, Workloads: []string{"bank", "vanish"},
		Nodes: func() []NodeLogin { return []NodeLogin{{"n1", login}} }})
	if err != nil {
		t.Fatal(err)
	}
	s.Start(t.Context())
	for _, w := range []string{"bank", "vanish"} {
		for begin := time.Now(); s.blind.last(w, "n1") == nil; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 10*time.Second {
				t.Fatalf("%s: nothing was refused", w)
			}
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.nodes = []string{"n1"}
	var r Report
	s.judge(&r)
	for _, w := range []string{"bank", "vanish"} {
		if !slices.ContainsFunc(r.Undecided, func(u string) bool {
			return strings.HasPrefix(u, w+": n1 was never read") && strings.Contains(u, "Access denied")
		}) {
			t.Errorf("%s: undecided %q", w, r.Undecided)
		}
	}
}

// TestReadersFollowTheirNode: a node that was replaced has its name and other ports. Its reader is begun again, once
// the old one has ended.
func TestReadersFollowTheirNode(t *testing.T) {
	var mu sync.Mutex
	var log []string
	say := func(what string) {
		mu.Lock()
		log = append(log, what)
		mu.Unlock()
	}
	o := observers{running: map[string]*observer{}}
	keep := func(addr string) {
		began := make(chan struct{})
		before := o.running["n1"]
		o.keep(t.Context(), NodeLogin{"n1", Login{Addr: Fixed(addr)}}, func() client {
			return func(ctx context.Context) error {
				say("begin " + addr)
				close(began)
				<-ctx.Done()
				say("end " + addr)
				return nil
			}
		})
		if o.running["n1"] != before {
			<-began
		}
	}
	keep("a:1")
	keep("a:1")
	keep("a:2")
	o.keepOnly(nil)
	keep("a:2")
	if err := o.end(); err != nil {
		t.Fatal(err)
	}
	want := []string{"begin a:1", "end a:1", "begin a:2", "end a:2", "begin a:2", "end a:2"}
	if !slices.Equal(log, want) {
		t.Fatalf("%q, want %q", log, want)
	}
}
