package demo

import (
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// refusals are server errors after which a statement has certainly not been, and will never be, committed. Source:
// MySQL 9.x error reference. Everything else that comes from a commit (1053, 1180, 1317, 3100 ...) leaves the outcome
// open.
var refusals = []uint16{
	1040, // too many connections
	1044, // access denied to database
	1045, // access denied
	1049, // unknown database
	1062, // duplicate entry
	1146, // no such table
	1205, // lock wait timeout
	1213, // deadlock, rolled back
	1290, // read only
	1792, // read-only transaction
	1836, // read-only mode
	3032, // offline mode
}

// NotCommitted says that an error of a statement that commits leaves no doubt: it was not committed, and never will be.
func NotCommitted(err error) bool {
	my, ofServer := errors.AsType[*mysql.MySQLError](err)
	return errors.Is(err, driver.ErrBadConn) || // the driver's promise: nothing was sent
		ofServer && slices.Contains(refusals, my.Number)
}

// wasCommitted is the error, with state HY000, by which a router says that a statement was committed, and that its
// result was lost with the server (docs/router.md). With 08007 it says that the outcome is not known.
const wasCommitted = 3168

// SaysCommitted: the answer is an error, and the statement is acknowledged: the client relies on the write.
func SaysCommitted(err error) bool {
	my, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && my.Number == wasCommitted && my.SQLState == [5]byte([]byte("HY000"))
}
