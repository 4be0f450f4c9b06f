package binlog

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"trireme/internal/mysql/sqlkind"
)

// Summary says what a transaction does, without the values of its rows: for people who decide about it.
type Summary struct {
	Statement string // of a single QUERY, its beginning
	tables    map[uint64]string
	counts    map[Change]int
}

// Change is what a transaction does to one table.
type Change struct {
	Table  string `json:"table"`     // schema.table
	Op     string `json:"operation"` // insert, update, delete
	Events int    `json:"events"`    // row events, each of one row or more
}

// maxSummaryText is what is kept of a statement.
const maxSummaryText = 300

var rowOps = map[EventType]string{
	TypeWriteRows: "insert", TypeWriteRowsV1: "insert", TypeUpdateRows: "update", TypeUpdateRowsV1: "update",
	TypePartialUpdateRows: "update", TypeDeleteRows: "delete", TypeDeleteRowsV1: "delete",
}

// Add takes the next event of the transaction, with its checksum.
func (s *Summary) Add(ev []byte) error {
	h, err := ParseHeader(ev)
	if err != nil {
		return err
	}
	if h.Type != TypeTransactionPayload {
		return s.add(h.Type, Body(ev))
	}
	p, err := ParsePayload(ev)
	if err != nil {
		return err
	}
	return s.payload(p)
}

// payload takes the events of a compressed transaction, of the rows no more than which table they are of.
func (s *Summary) payload(p PayloadEvent) error {
	var r payloadReader
	return r.each(p, func(h Header, in *io.LimitedReader) error {
		body := make([]byte, min(in.N, maxPayloadControl))
		if _, err := io.ReadFull(in, body); err != nil {
			return inPayload(err)
		}
		return s.add(h.Type, body)
	})
}

func (s *Summary) add(t EventType, body []byte) error {
	switch op := rowOps[t]; {
	case t == TypeTableMap:
		return s.tableMap(body)
	case op != "":
		f := fields{b: body}
		id := f.uint(6)
		if f.failed {
			return fmt.Errorf("%w: %v event of %d bytes", ErrMalformed, t, len(body))
		}
		s.count(Change{Table: s.tables[id], Op: op})
	case t == TypeQuery:
		q, err := parseQueryBody(body)
		if err != nil {
			return err
		}
		switch text := strings.ToValidUTF8(string(q.SQL[:min(len(q.SQL), maxSummaryText)]), "?"); text {
		case "BEGIN", "COMMIT", "ROLLBACK":
		default:
			s.Statement = text
			if sqlkind.Classify(q.SQL) == sqlkind.Account { // which may hold what a password was made into
				s.Statement = strings.Join(strings.Fields(text)[:min(2, len(strings.Fields(text)))], " ") + " …"
			}
			if db := string(q.Schema); db != "" {
				s.Statement += " (schema " + db + ")"
			}
		}
	}
	return nil
}

// tableMap: table id u48, flags u16, then schema and table, each with its length before it and a zero after it.
func (s *Summary) tableMap(body []byte) error {
	f := fields{b: body}
	id := f.uint(6)
	f.uint(2)
	schema := f.take(f.uint(1))
	f.uint(1)
	table := f.take(f.uint(1))
	if f.failed {
		return fmt.Errorf("%w: TABLE_MAP event of %d bytes", ErrMalformed, len(body))
	}
	if s.tables == nil {
		s.tables = map[uint64]string{}
	}
	s.tables[id] = string(schema) + "." + string(table)
	return nil
}

func (s *Summary) count(c Change) {
	if s.counts == nil {
		s.counts = map[Change]int{}
	}
	s.counts[c]++
}

// Changes lists them by table and operation.
func (s *Summary) Changes() []Change {
	out := make([]Change, 0, len(s.counts))
	for c, n := range s.counts {
		out = append(out, Change{c.Table, c.Op, n})
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.Op, b.Op))
	})
	return out
}

// String is for people: "update app.parent, delete app.child", or the statement.
func (s *Summary) String() string {
	var parts []string
	if s.Statement != "" {
		parts = append(parts, s.Statement)
	}
	for _, c := range s.Changes() {
		parts = append(parts, c.Op+" "+c.Table)
	}
	return strings.Join(parts, ", ")
}
