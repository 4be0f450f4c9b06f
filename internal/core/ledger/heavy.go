package ledger

import (
	"cmp"
	"time"

	"trireme/internal/mysql/binlog"
)

// Heavy is what takes a mysqld long to apply, and what a count of entries does not show.
type Heavy struct {
	Bytes int64         // of transactions that are larger than an entry
	DDL   time.Duration // that statements among it took where they ran first: about as long as they take elsewhere
}

// Plus is both.
func (h Heavy) Plus(o Heavy) Heavy { return Heavy{h.Bytes + o.Bytes, h.DDL + o.DDL} }

// Time is about how long a follower applies it. rate is what it applies of large transactions, in bytes per second; 0:
// that was not measured, and is taken to be little, so that the first estimate is not too good.
func (h Heavy) Time(rate float64) time.Duration {
	return h.DDL + time.Duration(float64(h.Bytes)/cmp.Or(rate, 16<<20)*float64(time.Second))
}

// maxStatement bounds what is believed of a statement: a session that sets `timestamp` makes the server reckon from
// there.
const maxStatement = 7 * 24 * time.Hour

// ddlTime is how long the statements took that are a transaction each, among the events of an entry. Whole seconds are
// all that is logged.
func ddlTime(events []byte) (d time.Duration) {
	begun := false
	for h, ev := range binlog.Events(events) { // the checks of the log are elsewhere
		if begun && h.Type == binlog.TypeQuery {
			d += statementTime(ev)
		}
		begun = h.Type.StartsTransaction()
	}
	return d
}

func statementTime(ev []byte) time.Duration {
	q, err := binlog.ParseQuery(ev)
	d := time.Duration(q.Seconds) * time.Second
	if err != nil || d > maxStatement || string(q.SQL) == "BEGIN" {
		return 0
	}
	return d
}
