package tpcc

import (
	"database/sql/driver"
	"errors"
	"fmt"
)

// Kind is a type of transaction.
type Kind int

// The five of clause 2.4 to 2.8.
const (
	NewOrder Kind = iota
	Payment
	OrderStatus
	Delivery
	StockLevel
	kinds
)

func (k Kind) String() string {
	return [...]string{"New-Order", "Payment", "Order-Status", "Delivery", "Stock-Level"}[k]
}

const (
	minOrderLines = 5
	maxOrderLines = 15
	carriers      = 10
	badCredit     = "BC"
)

// errUserRollback ends a New-Order with an unused item number.
var errUserRollback = errors.New("unused item number")

// transaction is the input of one, drawn once; attempt may be called again after a conflict. It leaves the transaction
// open: the caller commits, or rolls back on an error.
type transaction interface {
	attempt(s *session) error
}

// draw makes the input of a transaction at warehouse w; level is the district whose stock a Stock-Level of this
// terminal looks at.
func draw(k Kind, r *random, cfg *Config, w, level int) transaction {
	switch k {
	case NewOrder:
		return drawNewOrder(r, cfg, w)
	case Payment:
		return drawPayment(r, cfg, w)
	case OrderStatus:
		return &orderStatus{drawCustomer(r, cfg, w, r.between(1, districts))}
	case Delivery:
		return &delivery{w: w, carrier: r.between(1, carriers)}
	default:
		return &stockLevel{w: w, d: level, threshold: r.between(10, 20)}
	}
}

// otherWarehouse is any but w; w itself if it is the only one.
func otherWarehouse(r *random, cfg *Config, w int) int {
	if cfg.Warehouses == 1 {
		return w
	}
	o := r.between(1, cfg.Warehouses-1)
	if o >= w {
		o++
	}
	return o
}

type newOrder struct {
	w, d, c  int
	lines    []orderLine
	allLocal int
}

type orderLine struct{ item, supply, quantity int }

// drawNewOrder is clause 2.4.1.
func drawNewOrder(r *random, cfg *Config, w int) *newOrder {
	n := &newOrder{w: w, d: r.between(1, districts), c: r.customer(cfg.CustomersPerDistrict), allLocal: 1}
	n.lines = make([]orderLine, r.between(minOrderLines, maxOrderLines))
	for i := range n.lines {
		l := orderLine{item: r.item(cfg.Items), supply: w, quantity: r.between(1, 10)}
		if r.percent(1) {
			l.supply = otherWarehouse(r, cfg, w)
		}
		if l.supply != w {
			n.allLocal = 0
		}
		n.lines[i] = l
	}
	if r.percent(1) {
		n.lines[len(n.lines)-1].item = cfg.Items + 1
	}
	return n
}

// attempt is clause 2.4.2.2.
func (n *newOrder) attempt(s *session) error {
	if err := s.one(newOrderCustomer, ignore, int64(n.w), int64(n.d), int64(n.c)); err != nil {
		return err
	}
	var order int64
	next := func(row []driver.Value) { order, _ = row[0].(int64) }
	if err := s.one(newOrderDistrict, next, int64(n.w), int64(n.d)); err != nil {
		return err
	}
	if err := s.exec(newOrderNumber, order+1, int64(n.w), int64(n.d)); err != nil {
		return err
	}
	if err := s.exec(newOrderOrder, order, int64(n.d), int64(n.w), int64(n.c), int64(len(n.lines)), int64(n.allLocal)); err != nil {
		return err
	}
	if err := s.exec(newOrderNew, order, int64(n.d), int64(n.w)); err != nil {
		return err
	}
	for i, l := range n.lines {
		if err := n.line(s, order, i+1, l); err != nil {
			return err
		}
	}
	return nil
}

func (n *newOrder) line(s *session, order int64, number int, l orderLine) error {
	var price int64
	found, err := s.query(newOrderItem, func(row []driver.Value) { price = cents(row[0]) }, int64(l.item))
	if err != nil {
		return err
	}
	if found == 0 {
		return errUserRollback
	}
	var quantity int64
	var info string
	stock := func(row []driver.Value) {
		quantity, _ = row[0].(int64)
		b, _ := row[2].([]byte)
		info = string(b)
	}
	if err := s.one(newOrderStock+statement(n.d-1), stock, int64(l.supply), int64(l.item)); err != nil {
		return err
	}
	if quantity -= int64(l.quantity); quantity < 10 {
		quantity += 91
	}
	var remote int64
	if l.supply != n.w {
		remote = 1
	}
	if err := s.exec(newOrderStockUpdate, quantity, int64(l.quantity), remote, int64(l.supply), int64(l.item)); err != nil {
		return err
	}
	return s.exec(newOrderLine, order, int64(n.d), int64(n.w), int64(number), int64(l.item), int64(l.supply),
		int64(l.quantity), decimal(price*int64(l.quantity)), info)
}

// customer is chosen by its number or by its last name (clauses 2.5.1.2, 2.6.1.2).
type customer struct {
	w, d, id int
	last     string // if not empty
}

// drawCustomer takes the last name in 60 of 100 cases.
func drawCustomer(r *random, cfg *Config, w, d int) customer {
	if r.percent(60) {
		return customer{w: w, d: d, last: lastName(r.lastNumber(cfg.CustomersPerDistrict))}
	}
	return customer{w: w, d: d, id: r.customer(cfg.CustomersPerDistrict)}
}

// number is the customer's; of those with the same last name, sorted by first name, the one in the middle, rounded up
// (clause 2.5.2.2).
func (c *customer) number(s *session) (int64, error) {
	if c.last == "" {
		return int64(c.id), nil
	}
	var ids []int64
	err := s.one(customersByName, func(row []driver.Value) {
		id, _ := row[0].(int64)
		ids = append(ids, id)
	}, int64(c.w), int64(c.d), c.last)
	if err != nil {
		return 0, err
	}
	return ids[(len(ids)+1)/2-1], nil
}

type payment struct {
	w, d     int
	customer customer
	amount   int64 // hundredths
}

// drawPayment is clause 2.5.1.
func drawPayment(r *random, cfg *Config, w int) *payment {
	p := &payment{w: w, d: r.between(1, districts), amount: int64(r.between(1_00, 5000_00))}
	cw, cd := p.w, p.d
	if r.percent(15) && cfg.Warehouses > 1 {
		cw, cd = otherWarehouse(r, cfg, w), r.between(1, districts)
	}
	p.customer = drawCustomer(r, cfg, cw, cd)
	return p
}

// attempt is clause 2.5.2.2.
func (p *payment) attempt(s *session) error {
	w, d, cw, cd := int64(p.w), int64(p.d), int64(p.customer.w), int64(p.customer.d)
	amount := decimal(p.amount)
	var data []byte // W_NAME, four spaces, D_NAME
	name := func(row []driver.Value) {
		b, _ := row[0].([]byte)
		data = append(data, b...)
	}
	if err := s.exec(paymentWarehouseUpdate, amount, w); err != nil {
		return err
	}
	if err := s.one(paymentWarehouse, name, w); err != nil {
		return err
	}
	data = append(data, "    "...)
	if err := s.exec(paymentDistrictUpdate, amount, w, d); err != nil {
		return err
	}
	if err := s.one(paymentDistrict, name, w, d); err != nil {
		return err
	}
	id, err := p.customer.number(s)
	if err != nil {
		return err
	}
	bad := false
	credit := func(row []driver.Value) {
		b, _ := row[0].([]byte)
		bad = string(b) == badCredit
	}
	if err := s.one(paymentCustomer, credit, cw, cd, id); err != nil {
		return err
	}
	if bad {
		err = p.updateBadCredit(s, id, amount)
	} else {
		err = s.exec(paymentCustomerUpdate, amount, amount, cw, cd, id)
	}
	if err != nil {
		return err
	}
	return s.exec(paymentHistory, id, cd, cw, d, w, amount, data)
}

// updateBadCredit notes the payment at the front of C_DATA as well.
func (p *payment) updateBadCredit(s *session, id int64, amount driver.Value) error {
	cw, cd := int64(p.customer.w), int64(p.customer.d)
	note := fmt.Appendf(nil, "%d %d %d %d %d %s|", id, cd, cw, p.d, p.w, amount)
	keep := func(row []driver.Value) {
		b, _ := row[0].([]byte)
		note = append(note, b...)
	}
	if err := s.one(paymentData, keep, cw, cd, id); err != nil {
		return err
	}
	return s.exec(paymentCustomerDataUpdate, amount, amount, note[:min(len(note), 500)], cw, cd, id)
}

type orderStatus struct{ customer customer }

// attempt is clause 2.6.2.2.
func (o *orderStatus) attempt(s *session) error {
	w, d := int64(o.customer.w), int64(o.customer.d)
	id, err := o.customer.number(s)
	if err != nil {
		return err
	}
	if err := s.one(statusCustomer, ignore, w, d, id); err != nil {
		return err
	}
	var order int64
	last := func(row []driver.Value) { order, _ = row[0].(int64) }
	if err := s.one(statusOrder, last, w, d, id); err != nil {
		return err
	}
	return s.one(statusLines, ignore, w, d, order)
}

type delivery struct {
	w, carrier int
	skipped    int // districts without a new order, at the last attempt
}

// attempt is clause 2.7.4.2.
func (d *delivery) attempt(s *session) error {
	d.skipped = 0
	for district := 1; district <= districts; district++ {
		if err := d.deliver(s, int64(d.w), int64(district)); err != nil {
			return err
		}
	}
	return nil
}

func (d *delivery) deliver(s *session, w, district int64) error {
	var order, customer int64
	var sum []byte
	found, err := s.query(deliveryOldest, func(row []driver.Value) { order, _ = row[0].(int64) }, w, district)
	if err != nil {
		return err
	}
	if found == 0 {
		d.skipped++
		return nil
	}
	if err := s.exec(deliveryRemove, w, district, order); err != nil {
		return err
	}
	if err := s.exec(deliveryOrderUpdate, int64(d.carrier), w, district, order); err != nil {
		return err
	}
	if err := s.one(deliveryOrder, func(row []driver.Value) { customer, _ = row[0].(int64) }, w, district, order); err != nil {
		return err
	}
	if err := s.exec(deliveryLines, w, district, order); err != nil {
		return err
	}
	keep := func(row []driver.Value) {
		b, _ := row[0].([]byte)
		sum = append(sum, b...)
	}
	if err := s.one(deliverySum, keep, w, district, order); err != nil {
		return err
	}
	return s.exec(deliveryCustomer, sum, w, district, customer)
}

type stockLevel struct{ w, d, threshold int }

// attempt is clause 2.8.2.2.
func (l *stockLevel) attempt(s *session) error {
	var next int64
	if err := s.one(levelDistrict, func(row []driver.Value) { next, _ = row[0].(int64) }, int64(l.w), int64(l.d)); err != nil {
		return err
	}
	return s.one(levelStock, ignore, int64(l.w), int64(l.d), next, next-20, int64(l.w), int64(l.threshold))
}
