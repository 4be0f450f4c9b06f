package tpcc

import "math/rand/v2"

// random makes the random values of clauses 2.1.6 and 4.3.2. It belongs to one goroutine.
type random struct {
	*rand.Rand
	c constants
}

// constants of the non-uniform distribution, C of clause 2.1.6: each in [0, A], the same for all terminals of a run.
type constants struct{ last, customer, item int }

// C of the last names at load time, and how far the one of a run may be from it (clause 2.1.6.1): 65 to 119, but
// neither 96 nor 112.
const (
	loadLast           = 123
	minDelta, maxDelta = 65, 119
	banned1, banned2   = 96, 112
)

func newRandom(seed, stream uint64, c constants) *random {
	return &random{rand.New(rand.NewPCG(seed, stream)), c}
}

func loadConstants() constants { return constants{last: loadLast} }

// runConstants are derived from the seed.
func runConstants(seed uint64) constants {
	r := newRandom(seed, 0, constants{})
	delta := r.between(minDelta, maxDelta)
	for delta == banned1 || delta == banned2 {
		delta = r.between(minDelta, maxDelta)
	}
	return constants{last: loadLast + delta, customer: r.between(0, 1023), item: r.between(0, 8191)}
}

// between is uniform in [x, y].
func (r *random) between(x, y int) int { return x + r.IntN(y-x+1) }

// percent is true in p of 100 cases.
func (r *random) percent(p int) bool { return r.IntN(100) < p }

// nuRand is the non-uniform distribution NURand(A, x, y) of clause 2.1.6.
func (r *random) nuRand(a, c, x, y int) int {
	return ((r.between(0, a)|r.between(x, y))+c)%(y-x+1) + x
}

func (r *random) customer(customers int) int { return r.nuRand(1023, r.c.customer, 1, customers) }

func (r *random) item(items int) int { return r.nuRand(8191, r.c.item, 1, items) }

// lastNumber draws the number of a last name that exists: the first customers of a district have the names 0, 1, 2 …
// (clause 4.3.3.1).
func (r *random) lastNumber(customers int) int {
	return r.nuRand(255, r.c.last, 0, min(customers, lastNames)-1)
}

const lastNames = 1000

var syllables = [10]string{"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

// lastName puts the syllables of the three digits of n together (clause 4.3.2.3).
func lastName(n int) string {
	return syllables[n/100%10] + syllables[n/10%10] + syllables[n%10]
}

const (
	alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	letters      = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits       = "0123456789"
	original     = "ORIGINAL"
)

// text appends from x to y random characters of set: an a-string or n-string of clause 4.3.2.2. Eight come from one
// random number, so that some are drawn slightly more often than others.
func (r *random) text(b []byte, set string, x, y int) []byte {
	n := r.between(x, y)
	for n > 0 {
		v := r.Uint64()
		for range min(n, 8) {
			b = append(b, set[int(v&0xff)*len(set)>>8])
			v >>= 8
		}
		n -= min(n, 8)
	}
	return b
}

// data appends 26 to 50 characters, of which 8 in every tenth case are ORIGINAL (clause 4.3.3.1, of ITEM and STOCK).
func (r *random) data(b []byte) []byte {
	start := len(b)
	b = r.text(b, alphanumeric, 26, 50)
	if r.percent(10) {
		copy(b[r.between(start, len(b)-len(original)):], original)
	}
	return b
}

// zip appends a code of clause 4.3.2.7.
func (r *random) zip(b []byte) []byte { return append(r.text(b, digits, 4, 4), "11111"...) }

// deck deals the types of transactions: 100 cards of the mix of clause 5.2.3, shuffled again when it is used up, so
// that the mix is exact.
type deck struct {
	cards [100]Kind
	next  int
}

var mix = [kinds]int{NewOrder: 45, Payment: 43, OrderStatus: 4, Delivery: 4, StockLevel: 4}

func newDeck() *deck {
	d := &deck{}
	i := 0
	for k, n := range mix {
		for range n {
			d.cards[i] = Kind(k)
			i++
		}
	}
	return d
}

func (d *deck) deal(r *random) Kind {
	if d.next == 0 {
		r.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
	}
	k := d.cards[d.next]
	d.next = (d.next + 1) % len(d.cards)
	return k
}
