package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// CausalOp is one write or read of a counter, through a splitting port. Each counter is written by one client only,
// upwards.
type CausalOp struct {
	Span
	Key   int64 `json:"k"` // the client whose counter it is
	Write bool  `json:"w,omitempty"`
	Value int64 `json:"v"`
	// Own and Told are what a read has to show at least: by what its session has written, and by the tokens that it was
	// given.
	Own  int64 `json:"own,omitempty"`
	Told int64 `json:"told,omitempty"`
}

// NotCausal is a read that shows less than its session has written, or was told of with a token.
const NotCausal Kind = "older than promised"

// causalPart: clients count upwards, read each other's counters on followers, and hand tokens to each other, together
// with the state that the token stands for. A session reads everything that it has written itself; after it got a
// token, also everything that the token's session had written or seen.
type causalPart struct {
	set     *Set
	history history[CausalOp]
	held    map[string]map[int64]int64 // counters by node

	mu   sync.Mutex
	told []told // the newest of each client
}

// told is a token and the values of counters that it stands for.
type told struct {
	token string
	seen  map[int64]int64
}

func (p *causalPart) name() string { return workloadCausal }

func (p *causalPart) schema() []string {
	return []string{countersTable(p.set.cfg.Database, "counters")}
}

func (p *causalPart) clients() []client {
	if p.set.cfg.Split == nil {
		return []client{func(context.Context) error { return errors.New("there is no splitting port to connect to") }}
	}
	login := p.set.cfg.Login
	login.Addr = p.set.cfg.Split
	p.told = make([]told, p.set.cfg.Clients)
	var out []client
	for i := range p.set.cfg.Clients {
		c := &causalClient{part: p, id: int64(i)}
		out = append(out, p.set.loop(login, nil, p.set.cfg.Rate, p.set.random(p.name(), i), c.step))
	}
	return out
}

// causalClient is one session after the other.
type causalClient struct {
	part  *causalPart
	id    int64
	value int64 // the last one that it has tried to write
	conn  any   // of the session
	// Of this session: what it has written, was told of, and has written, read or was told of.
	own        int64
	told, seen map[int64]int64
}

func (c *causalClient) step(s *session, rng *rand.Rand) error {
	if c.conn != any(s.conn) {
		c.conn, c.own, c.told, c.seen = s.conn, 0, map[int64]int64{}, map[int64]int64{}
	}
	switch choice := rng.IntN(10); {
	case choice < 3:
		return c.write(s)
	case choice < 5:
		return c.pass(s)
	case choice < 7:
		return c.listen(s, rng)
	}
	return c.read(s, rng)
}

func (c *causalClient) write(s *session) error {
	c.value++
	op := CausalOp{Span: Span{Client: int(c.id), Begin: c.part.set.now()}, Key: c.id, Write: true, Value: c.value}
	op.Outcome = s.countTo("counters", "", c.id, c.value)
	op.End = c.part.set.now()
	if op.Outcome == Acked {
		c.own = c.value
		c.see(c.id, c.value)
	}
	c.part.set.measure(op.Span)
	return c.part.history.add(op)
}

func (c *causalClient) see(key, value int64) { c.seen[key] = max(c.seen[key], value) }

// pass leaves a token for the others, with what it stands for.
func (c *causalClient) pass(s *session) error {
	rows, err := s.query("SELECT @@trireme_token")
	if err != nil {
		return nil // no splitting port: nothing is promised
	}
	token, ok := rows[0][0].(string)
	if !ok {
		return fmt.Errorf("%w: a token that is %v", errGarbled, rows[0][0])
	}
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	c.part.told[c.id] = told{token, maps.Clone(c.seen)}
	return nil
}

// listen takes another client's token.
func (c *causalClient) listen(s *session, rng *rand.Rand) error {
	c.part.mu.Lock()
	t := c.part.told[rng.IntN(len(c.part.told))]
	c.part.mu.Unlock()
	if t.token == "" || s.exec("SET @@trireme_token = '"+t.token+"'") != nil {
		return nil
	}
	for key, value := range t.seen {
		c.told[key] = max(c.told[key], value)
		c.see(key, value)
	}
	return nil
}

func (c *causalClient) read(s *session, rng *rand.Rand) error {
	op := CausalOp{Span: Span{Client: int(c.id), Begin: c.part.set.now()}, Key: rng.Int64N(int64(len(c.part.told)))}
	op.Told = c.told[op.Key]
	if op.Key == c.id {
		op.Own = c.own
	}
	var err error
	op.Value, op.Outcome, err = s.counter("counters", "", op.Key)
	op.End = c.part.set.now()
	if err != nil {
		return err
	}
	if op.Outcome != Acked {
		return c.part.history.add(op)
	}
	c.see(op.Key, op.Value)
	return c.part.history.add(op)
}

func (p *causalPart) counts() Counts { return p.history.counts() }

// ackedWrites leaves reads out.
func (p *causalPart) ackedWrites() int64 {
	return p.history.count(func(op CausalOp) bool { return op.Write && op.Outcome == Acked })
}

// leastPromised is how many reads of each kind of promise show something: one of them may have been right by chance.
const leastPromised = 10

// lack: reads that nothing was promised for show nothing, and a token of the client itself promises nothing new.
func (p *causalPart) lack() string {
	own, told := 0, 0
	for _, op := range p.history.all() {
		if op.Write || op.Outcome != Acked {
			continue
		}
		if op.Own > 0 {
			own++
		}
		if op.Told > 0 && op.Key != int64(op.Client) {
			told++
		}
	}
	if own < leastPromised || told < leastPromised {
		return fmt.Sprintf("%d reads of what the session had written, and %d of others after a token; %d of each are needed",
			own, told, leastPromised)
	}
	return ""
}

func (p *causalPart) collect(ctx context.Context, nodes []Endpoint) (err error) {
	p.held, err = countersOf(ctx, nodes, p.set.cfg.Database, "counters")
	return err
}

func (p *causalPart) judge() Part {
	ops, unanswered, problems := p.set.committed.resolveCausal(p.history.ops, p.held)
	v := JudgeCausal(ops, p.held)
	v.lookedUp(unanswered)
	v.Problems = append(v.Problems, problems...)
	return v
}

// JudgeCausal checks that no read shows less than it has to, or more than was ever tried, and that at the end each node
// holds of each counter the last acknowledged value, or a later one that was tried.
func JudgeCausal(ops []CausalOp, nodes map[string]map[int64]int64) Part {
	p, found := Part{Figures: map[string]int64{}}, findings{}
	tried, acked := map[int64]int64{}, map[int64]int64{}
	for _, op := range ops {
		if !op.Write {
			continue
		}
		tried[op.Key] = max(tried[op.Key], op.Value)
		if op.Outcome == Acked {
			acked[op.Key] = max(acked[op.Key], op.Value)
		}
	}
	for _, op := range ops {
		if op.Write || op.Outcome != Acked {
			continue
		}
		if op.Own > 0 {
			p.Figures["reads of what the session had written"]++
		}
		if op.Told > 0 {
			p.Figures["reads after a token"]++
		}
		at := time.Duration(op.Begin)
		switch {
		case op.Value < op.Own:
			found.report(NotCausal, "", Attempt{}, "at %v client %d reads %d and has written %d before in the same session", at,
				op.Client, op.Value, op.Own)
		case op.Value < op.Told:
			found.report(NotCausal, "", Attempt{}, "at %v client %d reads %d of client %d after a token that stands for %d", at,
				op.Client, op.Value, op.Key, op.Told)
		case op.Value > tried[op.Key]:
			found.report(Resurrected, "", Attempt{}, "at %v client %d reads %d of client %d, which has written no more than %d",
				at, op.Client, op.Value, op.Key, tried[op.Key])
		}
	}
	found.judgeCounters(nodes, tried, acked)
	p.Problems = found.all()
	return p
}

func (p *causalPart) save(dir string) error {
	return errors.Join(p.history.saveTo(dir, "causal.jsonl"), saveJSON(dir, "causal.end.json", p.held))
}
