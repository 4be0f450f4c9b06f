package tpcc

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	checkers        = 2  // connections of Check
	checkWarehouses = 10 // of one statement, so that what the server must sort or keep is bounded
	maxViolations   = 10 // shown per statement
)

// Violation of a consistency condition.
type Violation struct {
	Clause   string // 3.3.2.1 to 3.3.2.12; 1.2.1, of the numbers of rows
	Where    string // warehouse, district, order, customer
	Found    string
	Expected string
}

func (v Violation) String() string {
	return fmt.Sprintf("clause %s, %s: %s, expected %s", v.Clause, v.Where, v.Found, v.Expected)
}

// condition is one of clause 3.3.2. The query gives a row for each violation: where, what was found, what was expected.
// @ stands for the warehouses of the statement, as in "w_id BETWEEN 1 AND 10", $w for their number, $c and $i for those
// of customers per district and of items.
//
// Every query visits a table in the order of its primary key and looks the rest up: nothing large is sorted or kept.
type condition struct{ clause, query string }

const (
	inDistrict = "CONCAT('warehouse ', d_w_id, ' district ', d_id)"
	inOrder    = "CONCAT('warehouse ', o_w_id, ' district ', o_d_id, ' order ', o_id)"
	inCustomer = "CONCAT('warehouse ', c_w_id, ' district ', c_d_id, ' customer ', c_id)"

	// deliveredSum is what a customer has been delivered.
	deliveredSum = `(SELECT IFNULL(SUM(ol_amount), 0) FROM orders STRAIGHT_JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
		WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL)`
)

var conditions = []condition{
	// The tables that do not grow. Without this an empty database would violate nothing.
	{"1.2.1", `SELECT '', CONCAT(n, ' rows in ', name), expected FROM (
		SELECT 'WAREHOUSE' AS name, COUNT(*) AS n, $w AS expected FROM warehouse WHERE w_id @
		UNION ALL SELECT 'DISTRICT', COUNT(*), $w * 10 FROM district WHERE d_w_id @
		UNION ALL SELECT 'CUSTOMER', COUNT(*), $w * 10 * $c FROM customer WHERE c_w_id @
		UNION ALL SELECT 'STOCK', COUNT(*), $w * $i FROM stock WHERE s_w_id @
		UNION ALL SELECT 'ITEM', COUNT(*), $i FROM item) AS t WHERE n <> expected`},

	{"3.3.2.1", `SELECT CONCAT('warehouse ', w_id), CONCAT('W_YTD = ', w_ytd), CONCAT('sum(D_YTD) = ', IFNULL(s, 'NULL')) FROM warehouse
		LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS s FROM district WHERE d_w_id @ GROUP BY d_w_id) AS d ON d_w_id = w_id
		WHERE w_id @ AND NOT (w_ytd <=> s)`},

	// A district without new orders has no max(NO_O_ID).
	{"3.3.2.2", `SELECT ` + inDistrict + `, CONCAT('D_NEXT_O_ID - 1 = ', d_next_o_id - 1),
			CONCAT('max(O_ID) = ', IFNULL(o, 'NULL'), ', max(NO_O_ID) = ', IFNULL(n, 'NULL'))
		FROM (SELECT d_w_id, d_id, d_next_o_id, (SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o,
			(SELECT MAX(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS n FROM district WHERE d_w_id @) AS d
		WHERE NOT (d_next_o_id - 1 <=> o) OR n <> d_next_o_id - 1`},

	{"3.3.2.3", `SELECT CONCAT('warehouse ', no_w_id, ' district ', no_d_id), CONCAT(COUNT(*), ' rows in NEW-ORDER'),
			CONCAT('max(NO_O_ID) - min(NO_O_ID) + 1 = ', MAX(no_o_id) - MIN(no_o_id) + 1)
		FROM new_order WHERE no_w_id @ GROUP BY no_w_id, no_d_id HAVING COUNT(*) <> MAX(no_o_id) - MIN(no_o_id) + 1`},

	{"3.3.2.4", `SELECT ` + inDistrict + `, CONCAT(l, ' rows in ORDER-LINE'), CONCAT('sum(O_OL_CNT) = ', o)
		FROM (SELECT d_w_id, d_id, (SELECT IFNULL(SUM(o_ol_cnt), 0) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o,
			(SELECT COUNT(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id) AS l FROM district WHERE d_w_id @) AS d
		WHERE o <> l`},

	{"3.3.2.5", `SELECT ` + inOrder + `, CONCAT('O_CARRIER_ID ', IFNULL(o_carrier_id, 'NULL')),
			IF(no_o_id IS NULL, 'a carrier: not in NEW-ORDER', 'NULL: it is in NEW-ORDER')
		FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
		WHERE o_w_id @ AND (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)`},

	{"3.3.2.6", `SELECT ` + inOrder + `, CONCAT(l, ' rows in ORDER-LINE'), CONCAT('O_OL_CNT = ', o_ol_cnt)
		FROM (SELECT o_w_id, o_d_id, o_id, o_ol_cnt, (SELECT COUNT(*) FROM order_line
			WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id) AS l FROM orders WHERE o_w_id @) AS o
		WHERE o_ol_cnt <> l`},

	{"3.3.2.7", `SELECT CONCAT(` + inOrder + `, ' line ', ol_number), CONCAT('OL_DELIVERY_D ', IFNULL(ol_delivery_d, 'NULL')),
			IF(o_carrier_id IS NULL, 'NULL: the order has no carrier', 'a date: the order has a carrier')
		FROM orders STRAIGHT_JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
		WHERE o_w_id @ AND (o_carrier_id IS NULL) <> (ol_delivery_d IS NULL)`},

	{"3.3.2.8", `SELECT CONCAT('warehouse ', w_id), CONCAT('W_YTD = ', w_ytd), CONCAT('sum(H_AMOUNT) = ', IFNULL(s, 'NULL')) FROM warehouse
		LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS s FROM history WHERE h_w_id @ GROUP BY h_w_id) AS h ON h_w_id = w_id
		WHERE w_id @ AND NOT (w_ytd <=> s)`},

	{"3.3.2.9", `SELECT ` + inDistrict + `, CONCAT('D_YTD = ', d_ytd), CONCAT('sum(H_AMOUNT) = ', IFNULL(s, 'NULL')) FROM district
		LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS s FROM history WHERE h_w_id @ GROUP BY h_w_id, h_d_id) AS h
			ON h_w_id = d_w_id AND h_d_id = d_id
		WHERE d_w_id @ AND NOT (d_ytd <=> s)`},

	{"3.3.2.10", `SELECT ` + inCustomer + `, CONCAT('C_BALANCE = ', c_balance),
			CONCAT('delivered ', delivered, ' - paid ', paid, ' = ', delivered - paid)
		FROM (SELECT c_w_id, c_d_id, c_id, c_balance, ` + deliveredSum + ` AS delivered, IFNULL(paid, 0) AS paid FROM customer
			LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history WHERE h_c_w_id @ GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h
				ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id WHERE c_w_id @) AS c
		WHERE c_balance <> delivered - paid`},

	// 2100 of a fresh district's 3000 orders are delivered; every Delivery since then has counted one at a customer.
	{"3.3.2.11", `SELECT ` + inDistrict + `, CONCAT('rows in ORDER - rows in NEW-ORDER = ', o, ' - ', n, ' = ', o - n),
			CONCAT(customers - FLOOR(customers * 3 / 10), ' at first + ', delivered, ' delivered since (sum(C_DELIVERY_CNT))')
		FROM (SELECT d_w_id, d_id, (SELECT COUNT(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o,
			(SELECT COUNT(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS n,
			(SELECT COUNT(*) FROM customer WHERE c_w_id = d_w_id AND c_d_id = d_id) AS customers,
			(SELECT IFNULL(SUM(c_delivery_cnt), 0) FROM customer WHERE c_w_id = d_w_id AND c_d_id = d_id) AS delivered
			FROM district WHERE d_w_id @) AS d
		WHERE o - n <> customers - FLOOR(customers * 3 / 10) + delivered`},

	{"3.3.2.12", `SELECT ` + inCustomer + `, CONCAT('C_BALANCE + C_YTD_PAYMENT = ', total), CONCAT('delivered ', delivered)
		FROM (SELECT c_w_id, c_d_id, c_id, c_balance + c_ytd_payment AS total, ` + deliveredSum + ` AS delivered FROM customer WHERE c_w_id @) AS c
		WHERE total <> delivered`},
}

// Check evaluates the twelve consistency conditions of clause 3.3.2 on a server: of every warehouse, district,
// order and customer, not of a sample; and it counts the rows of the tables that do not grow. Up to ten violations of a
// condition are returned per ten warehouses, in the order of the clauses.
//
// It only reads. Every statement sees one snapshot in which each condition must hold by itself, so that Check may run
// on a replica that is still applying, if it applies in commit order, and while terminals work.
//
// Condition 11 asks for 2100 delivered orders per district, which is true until the first Delivery; here it asks for
// 2100 and those that customers have counted since.
func Check(ctx context.Context, cfg Config, db *sql.DB) ([]Violation, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	type piece struct {
		condition
		from, to int // warehouses
	}
	var pieces []piece
	for from := 1; from <= cfg.Warehouses; from += checkWarehouses {
		for _, c := range slices.Backward(conditions) { // the expensive ones first, for an even end
			pieces = append(pieces, piece{c, from, min(from+checkWarehouses-1, cfg.Warehouses)})
		}
	}
	var mu sync.Mutex // of what follows
	var found []Violation
	next := 0
	err = parallel(ctx, checkers, func(ctx context.Context, _ int) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("tpcc: %w", err)
		}
		// Not given back to the caller's pool: it has a default database.
		defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
		if _, err := conn.ExecContext(ctx, "USE `"+cfg.Database+"`"); err != nil {
			return fmt.Errorf("tpcc: %w", err)
		}
		for {
			mu.Lock()
			i := next
			next++
			mu.Unlock()
			if i >= len(pieces) {
				return nil
			}
			v, err := pieces[i].evaluate(ctx, conn, cfg, pieces[i].from, pieces[i].to)
			if err != nil {
				return fmt.Errorf("tpcc: condition %s: %w", pieces[i].clause, err)
			}
			mu.Lock()
			found = append(found, v...)
			mu.Unlock()
		}
	})
	order := func(v Violation) int {
		return slices.IndexFunc(conditions, func(c condition) bool { return c.clause == v.Clause })
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return order(a) - order(b) })
	return found, err
}

// querier is a database, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// evaluate the condition for some warehouses.
func (c condition) evaluate(ctx context.Context, q querier, cfg Config, from, to int) ([]Violation, error) {
	query := strings.NewReplacer("@", fmt.Sprintf("BETWEEN %d AND %d", from, to), "$w", strconv.Itoa(to-from+1),
		"$c", strconv.Itoa(cfg.CustomersPerDistrict), "$i", strconv.Itoa(cfg.Items)).Replace(c.query)
	rows, err := q.QueryContext(ctx, query+fmt.Sprintf(" LIMIT %d", maxViolations))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []Violation
	for rows.Next() {
		v := Violation{Clause: c.clause}
		if err := rows.Scan(&v.Where, &v.Found, &v.Expected); err != nil {
			return nil, err
		}
		if v.Where == "" {
			v.Where = fmt.Sprintf("warehouses %d to %d", from, to)
		}
		found = append(found, v)
	}
	return found, rows.Err()
}
