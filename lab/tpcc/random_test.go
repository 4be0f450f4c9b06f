package tpcc

import (
	"bytes"
	"strings"
	"testing"
)

// TestNURand: the values stay within their bounds, every one of a small range comes up, and they are as uneven as the
// formula makes them.
func TestNURand(t *testing.T) {
	r := newRandom(1, 1, constants{customer: 259})
	const draws = 300_000
	var seen [3001]int
	for range draws {
		n := r.customer(3000)
		if n < 1 || n > 3000 {
			t.Fatalf("customer %d", n)
		}
		seen[n]++
	}
	most, never := 0, 0
	for _, n := range seen[1:] {
		most = max(most, n)
		if n == 0 {
			never++
		}
	}
	// OR with ten random bits favours numbers with many ones: (3/4)^10 × 1024/1 times the even share for the last of a
	// block, and (1/4)^10 for its first.
	even := draws / 3000
	if most < 10*even || most > 60*even {
		t.Errorf("the most frequent customer came %d times, the even share is %d", most, even)
	}
	if never < 5 || never > 1000 {
		t.Errorf("%d customers of 3000 never came", never)
	}
}

func TestNURandSmall(t *testing.T) {
	r := newRandom(1, 1, constants{item: 7911})
	seen := map[int]bool{}
	for range 10_000 {
		seen[r.item(20)] = true
	}
	if len(seen) != 20 || seen[0] || seen[21] {
		t.Errorf("items %v", seen)
	}
}

// TestConstants: how far the last names of a run are from those of the load (clause 2.1.6.1).
func TestConstants(t *testing.T) {
	deltas := map[int]bool{}
	for seed := range uint64(2000) {
		c := runConstants(seed)
		delta := c.last - loadLast
		deltas[delta] = true
		if delta < 65 || delta > 119 || delta == 96 || delta == 112 || c.last > 255 || c.customer > 1023 || c.item > 8191 {
			t.Fatalf("seed %d: %+v", seed, c)
		}
	}
	if len(deltas) != 53 {
		t.Errorf("%d of 53 possible differences", len(deltas))
	}
}

func TestLastName(t *testing.T) {
	for n, want := range map[int]string{0: "BARBARBAR", 371: "PRICALLYOUGHT", 40: "BARPRESBAR", 999: "EINGEINGEING"} {
		if got := lastName(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	r := newRandom(1, 1, runConstants(1))
	for range 10_000 {
		if n := r.lastNumber(30); n < 0 || n >= 30 {
			t.Fatalf("name %d where only 30 customers are", n)
		}
	}
}

func TestText(t *testing.T) {
	r := newRandom(1, 1, constants{})
	lengths, characters := map[int]bool{}, map[byte]bool{}
	originals := 0
	const rows = 10_000
	for range rows {
		b := r.text([]byte("x"), alphanumeric, 14, 24)[1:]
		lengths[len(b)] = true
		for _, c := range b {
			characters[c] = true
		}
		d := r.data(nil)
		if len(d) < 26 || len(d) > 50 {
			t.Fatalf("data of %d characters", len(d))
		}
		if bytes.Contains(d, []byte(original)) {
			originals++
		}
	}
	if len(lengths) != 11 || lengths[13] || lengths[25] || len(characters) != len(alphanumeric) {
		t.Errorf("lengths %v, %d characters", lengths, len(characters))
	}
	if originals < rows*8/100 || originals > rows*12/100 {
		t.Errorf("%d of %d rows are original", originals, rows)
	}
	if z := string(r.zip(nil)); len(z) != 9 || !strings.HasSuffix(z, "11111") {
		t.Errorf("zip %s", z)
	}
}

// TestDeck: every hundred transactions have exactly the mix, and not in one order.
func TestDeck(t *testing.T) {
	r, d := newRandom(1, 1, constants{}), newDeck()
	var orders []string
	for range 3 {
		var n [kinds]int
		order := ""
		for range 100 {
			k := d.deal(r)
			n[k]++
			order += k.String()[:1]
		}
		if n != mix {
			t.Errorf("mix %v", n)
		}
		orders = append(orders, order)
	}
	if orders[0] == orders[1] || orders[1] == orders[2] {
		t.Error("two decks in the same order")
	}
}

// TestInputs: what clauses 2.4.1 and 2.5.1 say about New-Order and Payment.
func TestInputs(t *testing.T) {
	cfg := Config{Warehouses: 3, Items: DefaultItems, CustomersPerDistrict: DefaultCustomers}
	r := newRandom(1, 1, runConstants(1))
	const draws = 20_000
	lines, remote, unused, away, named := 0, 0, 0, 0, 0
	for range draws {
		n := drawNewOrder(r, &cfg, 2)
		local := 1
		for i, l := range n.lines {
			lines++
			if l.supply != 2 {
				remote++
				local = 0
			}
			if l.supply < 1 || l.supply > 3 || l.quantity < 1 || l.quantity > 10 {
				t.Fatalf("line %+v", l)
			}
			if l.item > cfg.Items {
				unused++
				if i != len(n.lines)-1 {
					t.Fatal("the unused item is not the last")
				}
			}
		}
		if len(n.lines) < 5 || len(n.lines) > 15 || n.allLocal != local {
			t.Fatalf("%+v", n)
		}
		p := drawPayment(r, &cfg, 2)
		if p.amount < 1_00 || p.amount > 5000_00 {
			t.Fatalf("%+v", p)
		}
		if p.customer.w != 2 {
			away++
		}
		if p.customer.last != "" {
			named++
		}
	}
	for name, c := range map[string]struct{ got, of, percent float64 }{
		"remote lines": {float64(remote), float64(lines), 1}, "unused items": {float64(unused), draws, 1},
		"remote payments": {float64(away), draws, 15}, "payments by name": {float64(named), draws, 60},
		"lines": {float64(lines), draws, 1000},
	} {
		if share := 100 * c.got / c.of; share < c.percent*0.85 || share > c.percent*1.15 {
			t.Errorf("%s: %.2f %%, want %v %%", name, share, c.percent)
		}
	}
}
