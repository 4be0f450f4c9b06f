package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	bankAccounts = 64
	bankBalance  = 1000 // of each account at the beginning
)

// Transfer moves money between two accounts.
type Transfer struct {
	Span
	ID     int64 `json:"id"` // 0: not written into the ledger
	From   int   `json:"from"`
	To     int   `json:"to"`
	Amount int64 `json:"amount"`
}

// BankRead is one look at all accounts, through a node's own address or the read-write one (an empty name).
type BankRead struct {
	Span
	Node     string `json:"node"`
	Accounts int64  `json:"accounts"`
	Sum      int64  `json:"sum"`
}

// BankState is what one node holds at the end: the balances, and the transfers of the ledger by id.
type BankState struct {
	Balances []int64            `json:"balances"`
	Ledger   map[int64]Transfer `json:"ledger"`
	Twice    []int64            `json:"twice,omitempty"` // ids that stand in it more than once
}

// bankPart moves money through the read-write address, and looks at every node at all times: the sum never changes.
type bankPart struct {
	set       *Set
	transfers history[Transfer]
	reads     history[BankRead]
	id        atomic.Int64
	held      map[string]BankState
}

func bankSchema(database string) []string {
	rows := make([]string, bankAccounts)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d,%d)", i, bankBalance)
	}
	return []string{ // under its name only once the money is there: followers that lag are read as well
		"CREATE TABLE " + database + ".new_accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL)",
		"INSERT INTO " + database + ".new_accounts VALUES " + strings.Join(rows, ","),
		"RENAME TABLE " + database + ".new_accounts TO " + database + ".accounts",
	}
}

func (p *bankPart) name() string { return "bank" }

func (p *bankPart) schema() []string {
	return append(bankSchema(p.set.cfg.Database), "CREATE TABLE "+p.set.cfg.Database+
		".ledger (n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, id BIGINT NOT NULL, a INT NOT NULL, b INT NOT NULL, amount BIGINT NOT NULL)")
}

func (p *bankPart) clients() []client {
	var out []client
	for i := range p.set.cfg.Clients {
		out = append(out, p.set.loop(p.set.cfg.Login, nil, p.set.cfg.Rate, p.set.random(p.name(), i),
			func(s *session, rng *rand.Rand) error {
				t := Transfer{Span: Span{Client: i, Begin: p.set.now()}, ID: p.id.Add(1), From: rng.IntN(bankAccounts),
					To: rng.IntN(bankAccounts), Amount: rng.Int64N(50)}
				t.Outcome = t.run(s)
				t.End = p.set.now()
				p.set.measure(t.Span)
				return p.transfers.add(t)
			}))
	}
	return append(out, p.set.onNodes(p.name(), func(node string) func(*session, *rand.Rand) error {
		return func(s *session, _ *rand.Rand) error { return p.look(s, node) }
	}))
}

// run makes the transfer on a session.
func (t Transfer) run(s *session) Outcome {
	err := s.exec("BEGIN")
	if err == nil {
		err = s.exec("UPDATE accounts SET balance = balance - ? WHERE id = ?", t.Amount, t.From)
	}
	if err == nil {
		err = s.exec("UPDATE accounts SET balance = balance + ? WHERE id = ?", t.Amount, t.To)
	}
	if err == nil && t.ID != 0 {
		err = s.exec("INSERT INTO ledger (id, a, b, amount) VALUES (?, ?, ?, ?)", t.ID, t.From, t.To, t.Amount)
	}
	if err != nil {
		return Failed // without a COMMIT nothing of an open transaction stays
	}
	return commitOutcome(s.exec("COMMIT"))
}

func (p *bankPart) look(s *session, node string) error {
	r := BankRead{Span: Span{Client: -1, Begin: p.set.now(), Outcome: Acked}, Node: node}
	rows, err := s.query("SELECT COUNT(*), CAST(SUM(balance) AS SIGNED) FROM accounts")
	if err != nil {
		return nil // a node that does not answer shows nothing
	}
	r.End = p.set.now()
	var ok, ok2 bool
	if r.Accounts, ok = rows[0][0].(int64); ok {
		r.Sum, ok2 = rows[0][1].(int64)
	}
	if !ok || !ok2 {
		return fmt.Errorf("%w: sum of the accounts on %s: %v", errGarbled, node, rows[0])
	}
	return p.reads.add(r)
}

func (p *bankPart) counts() Counts { return p.transfers.counts() }

func (p *bankPart) looks() map[string]int64 {
	return byNode(p.reads.all(), func(r BankRead) string { return r.Node })
}

func (p *bankPart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	p.held, err = eachNode(ctx, nodes, func(ctx context.Context, db *sql.DB) (BankState, error) {
		return readBank(ctx, db, p.set.cfg.Database)
	})
	return err
}

func readBank(ctx context.Context, db *sql.DB, database string) (BankState, error) {
	b := BankState{Ledger: map[int64]Transfer{}}
	var balance int64
	err := eachRow(ctx, db, "SELECT balance FROM "+database+".accounts ORDER BY id",
		func() { b.Balances = append(b.Balances, balance) }, &balance)
	if err != nil {
		return b, err
	}
	var t Transfer
	err = eachRow(ctx, db, "SELECT id, a, b, amount FROM "+database+".ledger", func() {
		if _, twice := b.Ledger[t.ID]; twice {
			b.Twice = append(b.Twice, t.ID)
		}
		b.Ledger[t.ID] = t
	}, &t.ID, &t.From, &t.To, &t.Amount)
	return b, err
}

func (p *bankPart) judge() Part { return JudgeBank(p.transfers.ops, p.reads.ops, p.held) }

// JudgeBank checks that every look at the accounts saw the same sum, and that at the end each node's balances are those
// of its ledger, in which every acknowledged transfer stands once and no refused one.
func JudgeBank(transfers []Transfer, reads []BankRead, nodes map[string]BankState) Part {
	p, found := Part{Figures: map[string]int64{"sums read": int64(len(reads))}}, findings{}
	for _, r := range reads {
		for _, x := range judgeSum(r.Node, r.Accounts, r.Sum) {
			found.report(x.Kind, x.Node, Attempt{}, "at %v: %s", time.Duration(r.Begin), x.Detail)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		judgeLedger(transfers, nodes[node], func(k Kind, format string, args ...any) {
			found.report(k, node, Attempt{}, format, args...)
		})
	}
	p.Problems = found.all()
	return p
}

// judgeSum says what is wrong with the sum of all accounts.
func judgeSum(node string, accounts, sum int64) []Problem {
	if accounts == bankAccounts && sum == bankAccounts*bankBalance {
		return nil
	}
	return []Problem{{Kind: Broken, Node: node,
		Detail: fmt.Sprintf("transfers: %d accounts with %d in all, want %d with %d",
			accounts, sum, bankAccounts, bankAccounts*bankBalance)}}
}

func judgeLedger(transfers []Transfer, b BankState, report func(k Kind, format string, args ...any)) {
	attempted := map[int64]bool{}
	for _, t := range transfers {
		attempted[t.ID] = true
		got, there := b.Ledger[t.ID]
		switch {
		case t.Outcome == Acked && !there:
			report(Lost, "transfer %d", t.ID)
		case t.Outcome == Failed && there:
			report(Resurrected, "transfer %d was refused", t.ID)
		case there && (got.From != t.From || got.To != t.To || got.Amount != t.Amount):
			report(Broken, "transfer %d is %d from %d to %d, was to be %d from %d to %d", t.ID, got.Amount, got.From, got.To,
				t.Amount, t.From, t.To)
		}
	}
	for _, id := range b.Twice {
		report(Doubled, "transfer %d", id)
	}
	want := slices.Repeat([]int64{bankBalance}, bankAccounts)
	for id, t := range b.Ledger {
		if !attempted[id] {
			report(Resurrected, "transfer %d was never attempted", id)
		}
		if t.From >= 0 && t.From < bankAccounts && t.To >= 0 && t.To < bankAccounts {
			want[t.From] -= t.Amount
			want[t.To] += t.Amount
		}
	}
	if !slices.Equal(want, b.Balances) {
		report(Broken, "balances %v, the ledger gives %v", b.Balances, want)
	}
}

func (p *bankPart) save(dir string) error {
	return errors.Join(p.transfers.saveTo(dir, "bank.jsonl"), p.reads.saveTo(dir, "bank.reads.jsonl"),
		saveJSON(dir, "bank.end.json", p.held))
}
