package router

import (
	"slices"
	"strings"
	"time"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// targets are the user variables that the next command sets, if it is a GET DIAGNOSTICS, which runs where the last
// statement ran.
func (s *session) targets(c byte, length int) []string {
	if c != comQuery {
		return nil
	}
	p := s.buf[s.r0+4 : s.r0+4+length]
	at, ok := s.attributes(p)
	if !ok {
		return nil
	}
	targets, _ := sqlkind.GetDiagnostics(p[at.length:])
	return targets
}

// owe notes the user variables that a GET DIAGNOSTICS has set on the follower. Asking for their values would end what
// the follower knows of the statement before, and another GET DIAGNOSTICS may follow: they are carried over later.
func (s *session) owe(names []string) {
	for _, name := range names {
		if !slices.Contains(s.split.owed, name) {
			s.split.owed = append(s.split.owed, name)
		}
	}
}

// carryVariables gives the leader the user variables that only the follower has, before a command that may use them or
// ends what the follower knows of the last statement. The session keeps them as it keeps a SET. If the follower was
// lost with them it ends.
func (s *session) carryVariables(c byte) error {
	if len(s.split.owed) == 0 || keepsDiagnostics(c) {
		return nil
	}
	s.turn()
	text, ok := s.variables(s.split.owed)
	if text != "" {
		s.state.keepSet(text)
		s.split.here.sets = slices.Clone(s.state.sets)
	}
	s.turn()
	if !ok {
		s.state.mark(sqlkind.UserVariables)
		return s.cannot()
	}
	s.split.owed = nil
	if s.catchUp() != nil {
		s.drop() // and made again, with them
	}
	return nil
}

// variables is a SET of user variables to the values and types that they have at the server in use; empty: none has
// one.
func (s *session) variables(names []string) (set string, ok bool) {
	if s.link == nil || s.link.cut.Load() {
		return "", false
	}
	_ = s.link.server.SetDeadline(time.Now().Add(s.r.cfg.LoginTimeout))
	defer func() { _ = s.link.server.SetDeadline(time.Time{}) }()
	var row string
	err := s.ask(mysqlwire.NewConn(s.server, loginMaxPacket), variablesQuery(names), func(v string) { row = v })
	values := strings.Split(row, ",")
	if err != nil || len(values) != len(names) {
		return "", false
	}
	var sets []string
	for i, v := range values {
		kind, digits, _ := strings.Cut(v, ":")
		if len(digits)%2 == 1 {
			digits = "0" + digits
		}
		switch kind { // those that GET DIAGNOSTICS gives (measured with 9.7: its strings are utf8mb3)
		case "NULL": // it has not been set: that it sets nothing is a warning, and no error
		case "INTEGER":
			sets = append(sets, names[i]+" = CAST(X'"+digits+"' AS SIGNED)")
		case "UNSIGNED INTEGER":
			sets = append(sets, names[i]+" = CAST(X'"+digits+"' AS UNSIGNED)")
		case "STRING":
			sets = append(sets, names[i]+" = CONVERT(X'"+digits+"' USING utf8mb3)")
		default:
			return "", false
		}
	}
	if len(sets) == 0 {
		return "", true
	}
	return "SET " + strings.Join(sets, ", "), true
}

// variablesQuery asks for types and values, for each variable as TYPE:HEX, in a form that no character set of the
// session changes.
func variablesQuery(names []string) string {
	var q strings.Builder
	q.WriteString("SELECT CONCAT_WS(0x2C")
	for _, name := range names {
		q.WriteString(", CONVERT(CONCAT_WS(':', JSON_TYPE(JSON_EXTRACT(JSON_ARRAY(" + name + "), '$[0]')), HEX(" + name +
			")) USING ascii)")
	}
	q.WriteString(") LIMIT 1")
	return q.String()
}
