package tpcc

import "fmt"

// statement is one of the prepared ones.
type statement int

const (
	newOrderCustomer statement = iota
	newOrderDistrict
	newOrderNumber
	newOrderOrder
	newOrderNew
	newOrderItem
	newOrderStockUpdate
	newOrderLine

	customersByName

	paymentWarehouseUpdate
	paymentWarehouse
	paymentDistrictUpdate
	paymentDistrict
	paymentCustomer
	paymentData
	paymentCustomerUpdate
	paymentCustomerDataUpdate
	paymentHistory

	statusCustomer
	statusOrder
	statusLines

	deliveryOldest
	deliveryRemove
	deliveryOrder
	deliveryOrderUpdate
	deliveryLines
	deliverySum
	deliveryCustomer

	levelDistrict
	levelStock

	newOrderStock // of district 1; those of the other districts follow
	statements    = newOrderStock + districts
)

// texts of the statements. Wherever a plain SELECT follows a locking one in a transaction, it reads what the locks or
// the transaction's own changes have fixed, because its snapshot may be older than the locked rows.
var texts = func() (t [statements]string) {
	copy(t[:], []string{
		newOrderCustomer: "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = ? AND c_w_id = w_id AND c_d_id = ? AND c_id = ?",
		newOrderDistrict: "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE",
		newOrderNumber:   "UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?",
		newOrderOrder: "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) " +
			"VALUES (?, ?, ?, ?, NOW(), ?, ?)",
		newOrderNew:  "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)",
		newOrderItem: "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?",
		newOrderStockUpdate: "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, " +
			"s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
		newOrderLine: "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) " +
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",

		customersByName: "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",

		paymentWarehouseUpdate: "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?",
		paymentWarehouse:       "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?",
		paymentDistrictUpdate:  "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?",
		paymentDistrict:        "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = ? AND d_id = ?",
		paymentCustomer: "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, " +
			"c_credit_lim, c_discount, c_balance FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
		paymentData: "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
		paymentCustomerUpdate: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1 " +
			"WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
		paymentCustomerDataUpdate: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, " +
			"c_payment_cnt = c_payment_cnt + 1, c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
		paymentHistory: "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)",

		statusCustomer: "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
		statusOrder: "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? " +
			"ORDER BY o_id DESC LIMIT 1",
		statusLines: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",

		deliveryOldest:      "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE",
		deliveryRemove:      "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
		deliveryOrderUpdate: "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
		deliveryOrder:       "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
		deliveryLines:       "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
		deliverySum:         "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
		deliveryCustomer: "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 " +
			"WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",

		levelDistrict: "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?",
		levelStock: "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ? " +
			"AND s_w_id = ? AND s_i_id = ol_i_id AND s_quantity < ?",
	})
	for d := range districts {
		t[int(newOrderStock)+d] =
			fmt.Sprintf("SELECT s_quantity, s_data, s_dist_%02d FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE", d+1)
	}
	return t
}()
