package tpcc

import "context"

// The rows of clause 4.3.3.1, in the order of the columns in schema.go.

// Initial amounts. Those of warehouses and districts are the sums of their customers' first payments, so that the
// consistency conditions hold for any number of customers: 300,000.00 and 30,000.00 with 3000.
const firstPayment = 10_00 // hundredths

func (l *loader) items(ctx context.Context, from, to int) error {
	b := l.into("item")
	for i := from; i <= to; i++ {
		b.row()
		b.ints(i, l.r.between(1, 10_000))
		b.random(alphanumeric, 14, 24)
		b.hundredths(l.r.between(1_00, 100_00))
		b.data()
		if err := b.end(ctx); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// warehouse makes the row of a warehouse and those of its districts.
func (l *loader) warehouse(ctx context.Context, w int) error {
	b := l.into("warehouse")
	b.row()
	b.ints(w)
	b.random(alphanumeric, 6, 10)
	b.address()
	b.tenThousandths(l.r.between(0, 2000))
	b.hundredths(firstPayment * l.cfg.CustomersPerDistrict * districts)
	if err := b.end(ctx); err != nil {
		return err
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	b = l.into("district")
	for d := 1; d <= districts; d++ {
		b.row()
		b.ints(w, d)
		b.random(alphanumeric, 6, 10)
		b.address()
		b.tenThousandths(l.r.between(0, 2000))
		b.hundredths(firstPayment * l.cfg.CustomersPerDistrict)
		b.ints(l.cfg.CustomersPerDistrict + 1)
		if err := b.end(ctx); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

func (l *loader) stock(ctx context.Context, w, from, to int) error {
	b := l.into("stock")
	for i := from; i <= to; i++ {
		b.row()
		b.ints(w, i, l.r.between(10, 100))
		for range districts {
			b.random(alphanumeric, 24, 24)
		}
		b.ints(0, 0, 0)
		b.data()
		if err := b.end(ctx); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// customers makes the customers of a district, and the payment that each has made.
func (l *loader) customers(ctx context.Context, w, d int) error {
	c := l.into("customer")
	h := l.into("history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)")
	for id := 1; id <= l.cfg.CustomersPerDistrict; id++ {
		last := id - 1
		if last >= lastNames {
			last = l.r.lastNumber(l.cfg.CustomersPerDistrict)
		}
		c.row()
		c.ints(w, d, id)
		c.random(alphanumeric, 8, 16)
		c.text("OE")
		c.text(lastName(last))
		c.address()
		c.random(digits, 16, 16)
		c.raw(l.now)
		if l.r.percent(10) {
			c.text(badCredit)
		} else {
			c.text("GC")
		}
		c.hundredths(50_000_00)
		c.tenThousandths(l.r.between(0, 5000))
		c.hundredths(-firstPayment)
		c.hundredths(firstPayment)
		c.ints(1, 0)
		c.random(alphanumeric, 300, 500)
		if err := c.end(ctx); err != nil {
			return err
		}
		h.row()
		h.ints(id, d, w, d, w)
		h.raw(l.now)
		h.hundredths(firstPayment)
		h.random(alphanumeric, 12, 24)
		if err := h.end(ctx); err != nil {
			return err
		}
	}
	if err := c.flush(ctx); err != nil {
		return err
	}
	return h.flush(ctx)
}

// orders makes one order of each customer of a district, in random order; the last ones are new.
func (l *loader) orders(ctx context.Context, w, d int) error {
	o, lines, fresh := l.into("orders"), l.into("order_line"), l.into("new_order")
	for i, c := range l.r.Perm(l.cfg.CustomersPerDistrict) {
		id := i + 1
		n := l.r.between(minOrderLines, maxOrderLines)
		delivered := id < l.cfg.firstNew()
		o.row()
		o.ints(w, d, id, c+1)
		o.raw(l.now)
		if delivered {
			o.ints(l.r.between(1, carriers))
		} else {
			o.raw("NULL")
		}
		o.ints(n, 1)
		if err := o.end(ctx); err != nil {
			return err
		}
		for number := 1; number <= n; number++ {
			if err := l.orderLine(ctx, lines, w, d, id, number, delivered); err != nil {
				return err
			}
		}
		if delivered {
			continue
		}
		fresh.row()
		fresh.ints(w, d, id)
		if err := fresh.end(ctx); err != nil {
			return err
		}
	}
	for _, b := range []*batch{o, lines, fresh} {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) orderLine(ctx context.Context, b *batch, w, d, order, number int, delivered bool) error {
	b.row()
	b.ints(w, d, order, number, l.r.between(1, l.cfg.Items), w)
	if delivered {
		b.raw(l.now)
	} else {
		b.raw("NULL")
	}
	b.ints(5)
	if delivered {
		b.hundredths(0)
	} else {
		b.hundredths(l.r.between(1, 9999_99))
	}
	b.random(alphanumeric, 24, 24)
	return b.end(ctx)
}
