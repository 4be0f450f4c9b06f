package router

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// table is a result set about the cluster. Its columns have the names of the fields of api.ClusterView and api.Event.
// Fields of a nested object get its name as a prefix if their own name is not clear by itself. Columns are only added.
type table struct {
	columns []mysqlwire.Column
	rows    [][]mysqlwire.Value
}

// add puts a cell into the last row; the first row makes the columns.
func (t *table) add(name string, typ mysqlwire.ColumnType, v mysqlwire.Value) {
	last := len(t.rows) - 1
	if last == 0 {
		t.columns = append(t.columns, mysqlwire.Column{Name: name, Type: typ})
	}
	t.rows[last] = append(t.rows[last], v)
}

func (t *table) text(name, v string) { t.add(name, mysqlwire.Text, mysqlwire.Value{Text: v}) }

// known is text that is NULL when empty.
func (t *table) known(name, v string) {
	t.add(name, mysqlwire.Text, mysqlwire.Value{Text: v, Null: v == ""})
}

// number is NULL unless it is known.
func (t *table) number(name string, v uint64, known bool) {
	t.add(name, mysqlwire.Unsigned, mysqlwire.Value{Text: strconv.FormatUint(v, 10), Null: !known})
}

func (t *table) double(name string, v float64, known bool) {
	v = math.Round(v*1e6) / 1e6
	t.add(name, mysqlwire.Double, mysqlwire.Value{Text: strconv.FormatFloat(v, 'f', -1, 64), Null: !known})
}

func (t *table) yes(name string, v, known bool) {
	n := uint64(0)
	if v {
		n = 1
	}
	t.number(name, n, known)
}

// at is a point in time, as JSON has it.
func (t *table) at(name string, v *time.Time) {
	if v == nil {
		t.known(name, "")
		return
	}
	t.text(name, v.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// object is a value within as JSON; NULL when it is null or empty.
func (t *table) object(name string, v any, known bool) {
	b, err := json.Marshal(v)
	t.add(name, mysqlwire.Text, mysqlwire.Value{Text: string(b), Null: !known || err != nil})
}

func (t *table) row() { t.rows = append(t.rows, nil) }

// statusTable is the cluster in one row.
func statusTable(v api.ClusterView) (t table) {
	t.row()
	t.text("cluster", v.Cluster)
	t.number("generation", v.Generation, true)
	t.number("term", v.Term, true)
	t.known("leader", v.Leader)
	t.number("commit_index", v.CommitIndex, true)
	var since, until *time.Time
	if v.Pause != nil {
		since, until = &v.Pause.Since, v.Pause.Until
	}
	t.at("pause_since", since)
	t.at("pause_until", until)
	t.known("failover_to", v.Failover.To)
	t.double("failover_seconds", v.Failover.Seconds, v.Failover.To != "")
	t.double("failover_host_lost_seconds", v.Failover.HostLostSeconds, v.Failover.To != "")
	t.known("failover_problem", v.Failover.Problem)
	t.object("commit_rules", v.CommitRules, v.CommitRules != nil)
	tied := v.TiedSessions()
	t.object("tied_sessions", tied, tied != nil)
	return t
}

// membersTable is a row for each node.
func membersTable(v api.ClusterView) (t table) {
	if len(v.Members) == 0 { // a result set has columns all the same
		t = membersTable(api.ClusterView{Members: []api.MemberView{{}}})
		t.rows = nil
		return t
	}
	for _, m := range v.Members {
		t.row()
		t.text("name", m.Name)
		t.text("role", m.Role)
		t.text("state", m.State)
		my, data := api.MySQLView{}, m.MySQL != nil
		if data {
			my = *m.MySQL
		}
		lag, bytes, known := m.Lag()
		t.double("lag_seconds", lag, known)
		t.number("lag_bytes", bytes, known)
		heard := m.Raft.Term != 0 // once, of a node that is down
		t.yes("voter", m.Raft.Voter, true)
		t.number("weight", uint64(max(0, m.Raft.Weight)), true)
		t.known("zone", m.Raft.Zone)
		t.number("term", m.Raft.Term, heard)
		t.number("last", m.Raft.Last, heard)
		t.number("commit", m.Raft.Commit, heard)
		t.number("applied", m.Raft.Applied, heard)
		t.number("durable", m.Raft.Durable, heard)
		t.known("host", my.Host)
		t.number("port", uint64(max(0, my.Port)), data)
		t.known("version", my.Version)
		t.yes("read_only", my.ReadOnly, data && m.Answers())
		t.known("api", m.Daemon.API)
		t.known("reason", m.Reason)
		t.known("warnings", strings.Join(m.Warnings, "; "))
	}
	return t
}

// historyTable is the newest events, of which limit are wanted if it is not negative, oldest first.
func historyTable(events []api.Event, limit int) (t table) {
	if limit >= 0 && limit < len(events) {
		events = events[len(events)-limit:]
	}
	if len(events) == 0 { // likewise
		t = historyTable([]api.Event{{}}, -1)
		t.rows = nil
		return t
	}
	for _, e := range events {
		t.row()
		t.at("time", &e.Time)
		t.text("kind", e.Kind)
		t.text("node", e.Node)
		t.number("term", e.Term, true)
		t.number("index", e.Index, e.Index != 0)
		t.text("message", e.Message)
		t.double("gap_ms", e.GapMS, e.GapMS != 0)
		t.known("from", e.From)
		t.known("to", e.To)
		t.known("cause", e.Cause)
		t.known("gtids", e.GTIDs)
	}
	return t
}
