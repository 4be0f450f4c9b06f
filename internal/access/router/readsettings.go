package router

import (
	"context"
	"strings"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// readSettings are the session variables that can change a read's result or end, and that any account may set. A
// session begins with its server's global values of them: on the splitting port it keeps those with which it began at
// the leader. The list leaves out variables for one table or one feature, and those that only privileged accounts can
// set, or no account: max_allowed_packet.
var readSettings = []string{"sql_mode", "time_zone", "group_concat_max_len", "optimizer_switch", "character_set_server",
	"collation_server", "lc_time_names",
	"div_precision_increment", "default_week_format", "block_encryption_mode", "cte_max_recursion_depth",
	"max_execution_time", "sql_select_limit", "sql_safe_updates", "max_sort_length", "windowing_use_high_precision",
	"transaction_isolation", "lock_wait_timeout", "innodb_lock_wait_timeout", "wait_timeout", "net_read_timeout",
	"net_write_timeout"}

// readSettingsQuery asks for all of them in one value, which a binary separator keeps from being converted for the
// client. The LIMIT stands above sql_select_limit.
var readSettingsQuery = "SELECT CONCAT_WS(0x0A, @@session." + strings.Join(readSettings, ", @@session.") + ") LIMIT 1"

// takeSettings gives the follower, which is in use and has just been logged in to, the leader's values. What was SET at
// the leader has been repeated here already. Without a leader the follower's own values stay.
func (s *session) takeSettings(ctx context.Context) error {
	if s.state.reason != "" { // nothing may happen to the leader's side
		return nil
	}
	s.turn()
	var want []string
	if s.link != nil && !s.link.cut.Load() {
		var err error
		if want, err = s.settings(ctx); err != nil { // it may be out of step
			s.drop()
			s.state.moved()
		}
	}
	s.turn()
	if want == nil {
		return nil
	}
	have, err := s.settings(ctx)
	if err != nil || have == nil {
		return err
	}
	conn := mysqlwire.NewConn(s.server, loginMaxPacket)
	for i, name := range readSettings {
		if have[i] == want[i] {
			continue
		}
		value := want[i]
		if strings.Trim(value, "0123456789") != "" || value == "" {
			value = "'" + value + "'"
		}
		status, err := s.exec(conn, s.query("SET SESSION "+name+" = "+value))
		if refused, lost := asRefused(err); lost != nil {
			return lost
		} else if refused != nil { // such as a time zone that is not known there
			s.r.cfg.Logger.Warn("router: a follower does not take the leader's value of a variable", "follower",
				s.link.target.Name, "variable", name,
				"value", want[i], "error", refused)
			continue
		}
		s.state.status = status
	}
	return nil
}

// settings asks the server in use for its values of readSettings; nil: it has other variables, or values that are not
// understood.
func (s *session) settings(ctx context.Context) (values []string, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.link.server.SetDeadline(deadline)
		defer s.link.server.SetDeadline(time.Time{})
	}
	status := s.state.status
	err = s.ask(mysqlwire.NewConn(s.server, loginMaxPacket), readSettingsQuery,
		func(row string) { values = strings.Split(row, "\n") })
	s.state.status = status
	if refused, lost := asRefused(err); lost != nil || refused != nil {
		return nil, lost
	}
	for _, v := range values {
		if strings.ContainsAny(v, `'\`) {
			return nil, nil
		}
	}
	if len(values) != len(readSettings) {
		return nil, nil
	}
	return values, nil
}
