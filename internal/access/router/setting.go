package router

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// Variables that the router answers for, as no server knows them.
const (
	varConsistency = "TRIREME_CONSISTENCY"
	varGroup       = "GROUP_REPLICATION_CONSISTENCY"
	varToken       = "TRIREME_TOKEN"
)

// longestSetting bounds the statements that are looked at for them.
const longestSetting = 512

// codes of mysqld for what is wrong with a setting.
const (
	codeParse      = 1064 // ER_PARSE_ERROR, which MySQL Router gives for ROUTER SET
	codeSession    = 1228 // ER_LOCAL_VARIABLE
	codeWrongValue = 1231 // ER_WRONG_VALUE_FOR_VAR
	codeWithin     = 1568 // ER_CANT_CHANGE_TX_CHARACTERISTICS
)

// own answers a statement that is the router's; done is false for all others.
func (s *session) own(c byte, length int) (done bool, err error) {
	if c != comQuery && c != comStmtPrepare || length > longestSetting || s.r1-s.r0 < 4+length {
		return false, nil
	}
	text := s.buf[s.r0+5 : s.r0+4+length]
	if c == comQuery {
		at, ok := s.attributes(s.buf[s.r0+4 : s.r0+4+length])
		if !ok {
			return false, nil
		}
		text = s.buf[s.r0+4+at.length : s.r0+4+length]
	}
	for len(text) > 0 && text[0] <= ' ' {
		text = text[1:]
	}
	if mayBeCluster(text) && s.r.cfg.Cluster != nil {
		if st, ok := sqlkind.ParseCluster(text); ok {
			return true, s.cluster(c, st)
		}
	}
	if c != comQuery || !mayBeOwn(text) {
		return false, nil
	}
	v, ok := sqlkind.ParseVariable(text)
	if !ok {
		return false, nil
	}
	name := strings.ToUpper(string(v.Name))
	var value string
	var failed *mysqlwire.ServerError
	switch {
	case v.Verb == sqlkind.RouterSet && s.split != nil:
		failed = s.routerSet(name, string(v.Value))
	case v.Verb == sqlkind.RouterSet, name != varConsistency && name != varGroup && name != varToken:
		return false, nil
	case v.Global:
		failed = &mysqlwire.ServerError{Code: codeSession, State: "HY000", Message: fmt.Sprintf(
			"Variable '%s' is a SESSION variable of Trireme's router; for all sessions set router.consistency in the router's configuration", strings.ToLower(name))}
	case v.Verb == sqlkind.GetVariable:
		value, failed = s.getVariable(name)
	default:
		failed = s.setVariable(name, string(v.Value))
	}
	column := string(v.Column)
	switch {
	case failed != nil:
		return true, s.answerError(failed)
	case v.Verb == sqlkind.GetVariable:
		return true, s.answerValue(column, value)
	}
	return true, s.answerOK()
}

// mayBeOwn is quick to say no. text does not begin with a blank.
func mayBeOwn(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	switch text[0] {
	case 's', 'S', '/', '#', '-':
		for rest := text; ; {
			i := bytes.IndexByte(rest, '_')
			if i < 0 {
				return false
			}
			if before := rest[:i]; endsIn(before, "TRIREME") || endsIn(before, "GROUP") {
				return true
			}
			rest = rest[i+1:]
		}
	case 'r', 'R':
		return len(text) > 6 && sqlkind.SameWord(text[:6], "ROUTER")
	}
	return false
}

func endsIn(p []byte, word string) bool {
	return len(p) >= len(word) && sqlkind.SameWord(p[len(p)-len(word):], word)
}

func (s *session) setVariable(name, value string) *mysqlwire.ServerError {
	wrong := func(err error) *mysqlwire.ServerError {
		return &mysqlwire.ServerError{Code: codeWrongValue, State: "42000",
			Message: fmt.Sprintf("Variable '%s': %v", strings.ToLower(name), err)}
	}
	if name == varToken {
		index, err := s.parseToken(value)
		if err != nil {
			return wrong(err)
		}
		s.known.token = max(s.known.token, index)
		return nil
	}
	level := s.r.cfg.level(s.login.response.User)
	if !strings.EqualFold(value, "DEFAULT") {
		var err error
		if level, err = ParseLevel(value); err != nil {
			return wrong(err)
		}
	}
	if s.state.inTransaction() {
		return within(strings.ToLower(name))
	}
	if level.waits() && s.r.cfg.Reads == nil {
		return wrong(errNoReads)
	}
	s.wish.level = level
	return nil
}

func within(name string) *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: codeWithin, State: "25001", Message: name +
		" can't be changed while a transaction is in progress"}
}

func (s *session) getVariable(name string) (string, *mysqlwire.ServerError) {
	if name != varToken {
		return s.wish.level.String(), nil
	}
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.ConsistencyTimeout)
	defer cancel()
	token, err := s.token(ctx)
	if err != nil {
		return "", &mysqlwire.ServerError{Code: codeNotCurrent, State: "HYT00", Message: "Trireme: there is no token now: " +
			err.Error()}
	}
	return token, nil
}

// token names a point after everything that this session has written or seen: what was visible to it is committed by
// now.
func (s *session) token(ctx context.Context) (string, error) {
	if s.r.cfg.Reads == nil {
		return "", errNoReads
	}
	index, err := s.r.cfg.Reads.Barrier(ctx)
	if err != nil {
		return "", err
	}
	return s.r.cfg.Reads.Log() + ":" + strconv.FormatUint(index, 10), nil
}

// parseToken reads a token of the same log. Empty: none.
func (s *session) parseToken(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	if s.r.cfg.Reads == nil {
		return 0, errNoReads
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return 0, fmt.Errorf("%.128q is no token; take one from SELECT @@trireme_token", text)
	}
	if log := s.r.cfg.Reads.Log(); text[:i] != log {
		return 0, fmt.Errorf("the token is of %.64q, this is %q", text[:i], log)
	}
	index, err := strconv.ParseUint(text[i+1:], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.128q is no token; take one from SELECT @@trireme_token", text)
	}
	return index, nil
}

// Longest wait_for_my_writes_timeout, as MySQL Router has it.
const mostOwnWait = 3600

func (s *session) routerSet(name, value string) *mysqlwire.ServerError {
	bad := func(expected string) *mysqlwire.ServerError {
		return &mysqlwire.ServerError{Code: codeParse, State: "42000",
			Message: fmt.Sprintf("parse error in 'ROUTER SET %s = <...>'. Expected %s", strings.ToLower(name), expected)}
	}
	switch name {
	case "ACCESS_MODE":
		mode, err := parseAccessMode([]byte(value))
		switch {
		case err != nil:
			return bad("'auto', 'read_only' or 'read_write'")
		case s.state.inTransaction():
			return within("access_mode")
		case mode == accessReadOnly && s.state.reason != "":
			return &mysqlwire.ServerError{Code: codeNotSupported, State: "42000",
				Message: "Trireme: " + s.state.reason + " keep this session on the leader; access_mode cannot be read_only"}
		}
		s.wish.access = mode
	case "WAIT_FOR_MY_WRITES":
		if value != "0" && value != "1" {
			return bad("a number in the range 0..1 inclusive")
		}
		s.wish.ownWrites = value == "1"
	case "WAIT_FOR_MY_WRITES_TIMEOUT":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > mostOwnWait {
			return bad("a number between 0 and 3600 inclusive")
		}
		s.wish.ownWait = time.Duration(n) * time.Second
	default:
		return &mysqlwire.ServerError{Code: codeParse, State: "42000",
			Message: fmt.Sprintf("parse error in 'ROUTER SET <...>'. %.64q is unknown; there are access_mode, wait_for_my_writes, wait_for_my_writes_timeout", strings.ToLower(name))}
	}
	return nil
}

// ownStatus is the session's status for a packet of the router's own, without the flags that announce more in that
// packet or after it.
func (s *session) ownStatus() uint16 {
	return s.state.status & (mysqlwire.StatusInTransaction | mysqlwire.StatusAutocommit | statusNoBackslash)
}

// answerOK answers a command that no server sees.
func (s *session) answerOK() error {
	if err := s.discard(); err != nil {
		return err
	}
	return s.write(mysqlwire.AppendPacket(nil, s.next, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: s.ownStatus()})))
}

// answerValue answers such a command with one row of one column.
func (s *session) answerValue(column, value string) error {
	if err := s.discard(); err != nil {
		return err
	}
	return s.write(mysqlwire.AppendRow(nil, s.next, column, value, s.ownStatus(), !s.legacy))
}
