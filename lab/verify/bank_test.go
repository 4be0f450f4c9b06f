package verify

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bankAfter is a node that has carried out some transfers.
func bankAfter(done ...Transfer) BankState {
	b := BankState{Balances: slices.Repeat([]int64{bankBalance}, bankAccounts), Ledger: map[int64]Transfer{}}
	for _, t := range done {
		b.Balances[t.From] -= t.Amount
		b.Balances[t.To] += t.Amount
		b.Ledger[t.ID] = Transfer{ID: t.ID, From: t.From, To: t.To, Amount: t.Amount}
	}
	return b
}

func transfer(id int64, o Outcome) Transfer {
	return Transfer{Span: Span{Outcome: o}, ID: id, From: int(id), To: int(id) + 1, Amount: 10}
}

func TestJudgeBank(t *testing.T) {
	acked, unknown, failed := transfer(1, Acked), transfer(2, Unknown), transfer(3, Failed)
	all := []Transfer{acked, unknown, failed}
	for _, c := range []struct {
		name   string
		change func(*BankState)
		want   []Kind
	}{
		{"as it should be", func(*BankState) {}, nil},
		{"the one without an answer too", func(b *BankState) { *b = bankAfter(acked, unknown) }, nil},
		{"acknowledged, and lost", func(b *BankState) { *b = bankAfter() }, []Kind{Lost}},
		{"refused, and there", func(b *BankState) { *b = bankAfter(acked, failed) }, []Kind{Resurrected}},
		{"never attempted", func(b *BankState) { *b = bankAfter(acked, transfer(9, Acked)) }, []Kind{Resurrected}},
		{"half of one: the ledger only", func(b *BankState) { b.Ledger[2] = bankAfter(unknown).Ledger[2] }, []Kind{Broken}},
		{"half of one: an account only", func(b *BankState) { b.Balances[2] -= 10 }, []Kind{Broken}},
		{"twice in the ledger", func(b *BankState) { b.Twice = []int64{1} }, []Kind{Doubled}},
		{"another amount", func(b *BankState) {
			x := acked
			x.Amount = 11
			*b = bankAfter(x)
		}, []Kind{Broken}},
		{"an account is missing", func(b *BankState) { b.Balances = b.Balances[1:] }, []Kind{Broken}},
	} {
		b := bankAfter(acked)
		c.change(&b)
		if got := kinds(JudgeBank(all, nil, map[string]BankState{"n1": b}).Problems); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

func TestEverySumIsJudged(t *testing.T) {
	good := BankRead{Accounts: bankAccounts, Sum: bankAccounts * bankBalance, Node: "n2"}
	torn, short := good, good
	torn.Sum += 10
	short.Accounts--
	if p := JudgeBank(nil, []BankRead{good, good}, nil); len(p.Problems) > 0 || p.Figures["sums read"] != 2 {
		t.Errorf("%+v", p)
	}
	p := JudgeBank(nil, []BankRead{good, torn, short}, nil)
	if len(p.Problems) != 2 || p.Problems[0].Kind != Broken || p.Problems[0].Node != "n2" {
		t.Errorf("%+v", p)
	}
}

// TestBankProperty: nodes that did what was acknowledged, some of what was not answered and nothing else pass; with one
// change they do not.
func TestBankProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 4))
		var all, done []Transfer
		for id := range int64(1 + rng.IntN(40)) {
			x := Transfer{Span: Span{Outcome: Outcome(1 + rng.IntN(3))}, ID: id + 1, From: rng.IntN(bankAccounts),
				To: rng.IntN(bankAccounts), Amount: 1 + rng.Int64N(50)}
			all = append(all, x)
			if x.Outcome == Acked || x.Outcome == Unknown && rng.IntN(2) == 0 {
				done = append(done, x)
			}
		}
		b := bankAfter(done...)
		nodes := map[string]BankState{"n1": b}
		if p := JudgeBank(all, nil, nodes); len(p.Problems) > 0 {
			t.Fatal(p.Problems)
		}
		ids := slices.Collect(maps.Keys(b.Ledger))
		if len(ids) > 0 && rapid.Bool().Draw(t, "ledger") {
			delete(b.Ledger, ids[0])
			if x := all[ids[0]-1]; x.Outcome != Acked && x.From == x.To {
				return // left no trace
			}
		} else {
			b.Balances[rng.IntN(bankAccounts)]++
		}
		if p := JudgeBank(all, nil, nodes); len(p.Problems) == 0 {
			t.Fatal("not found")
		}
	})
}
