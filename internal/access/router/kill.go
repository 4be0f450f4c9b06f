package router

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// place is one of a session's connections to servers.
type place struct {
	target Target
	thread uint32 // connection id there
}

// places are a session's connections: at the leader, or the only one, and at a splitting session's follower.
type places [2]*place

// at notes where the side in use is connected; nil: nowhere.
func (s *session) at(p *place) {
	now := *s.places.Load()
	i := 0
	if s.state.following {
		i = 1
	}
	now[i] = p
	s.places.Store(&now)
}

// erNoSuchThread is ER_NO_SUCH_THREAD.
const erNoSuchThread = 1094

// parseKill takes KILL [CONNECTION | QUERY] n apart; what has another form is mysqld's alone.
func parseKill(text []byte) (query bool, id uint32, ok bool) {
	if len(text) == 0 || text[0]|0x20 != 'k' || len(text) > longestSetting {
		return false, 0, false
	}
	words := strings.Fields(strings.TrimRight(strings.ToUpper(string(text)), "; \t\r\n"))
	if len(words) == 3 && (words[1] == "QUERY" || words[1] == "CONNECTION") {
		query = words[1] == "QUERY"
		words = append(words[:1], words[2])
	}
	if len(words) != 2 || words[0] != "KILL" {
		return false, 0, false
	}
	n, err := strconv.ParseUint(words[1], 10, 32)
	return query, uint32(n), err == nil
}

// killText is the text of a command that may be a KILL.
func (s *session) killText(c byte, length int) []byte {
	if c != comQuery || length > longestSetting || s.r1-s.r0 < 4+length {
		return nil
	}
	p := s.buf[s.r0+4 : s.r0+4+length]
	at, ok := s.attributes(p)
	if !ok {
		return nil
	}
	return bytes.TrimLeft(p[at.length:], " \t\r\n")
}

// kill carries a KILL out at those servers that the session of that id uses besides the one that this session would
// ask. A splitting session's statement may run on a follower, and a client knows the id that it was given at its login,
// or at the leader. done: nothing is left for mysqld to do. Whether the account may is judged by each mysqld.
func (s *session) kill(c byte, length int) (done bool, err error) {
	query, id, ok := parseKill(s.killText(c, length))
	if !ok {
		return false, nil
	}
	killed, here := false, false
	for _, p := range s.r.placesOf(id, s) {
		if s.link != nil && p.target == s.link.target && p.thread == id {
			here = true
			continue
		}
		switch said := s.killAt(p, query); {
		case said == nil:
			killed = true
		case said.Code != erNoSuchThread:
			return true, s.settle(s.answerError(said))
		}
	}
	if here || !killed {
		return false, nil
	}
	if err := s.discard(); err != nil {
		return true, err
	}
	ok41 := mysqlwire.AppendOK(nil, mysqlwire.OK{Status: s.ownStatus()})
	return true, s.settle(s.write(mysqlwire.AppendPacket(nil, s.next, ok41)))
}

// killAt carries a KILL out over a connection of its own, logged in as this session's account.
func (s *session) killAt(p place, query bool) *mysqlwire.ServerError {
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.LoginTimeout)
	defer cancel()
	failed := func(err error) *mysqlwire.ServerError {
		if said, ok := errors.AsType[*mysqlwire.ServerError](err); ok {
			return said
		}
		return &mysqlwire.ServerError{Code: codeUnknown, State: "HY000",
			Message: "Trireme: " + p.target.Name + " did not carry the KILL out: " + err.Error()}
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", p.target.Addr)
	if err != nil {
		return failed(err)
	}
	defer nc.Close()
	conn := mysqlwire.NewConn(nc, loginMaxPacket)
	if _, _, err := mysqlwire.LoginAs(ctx, conn, s.login.response, s.login.password, s.r.backend(p.target).
		secrecy(s.login)); err != nil {
		return failed(err)
	}
	_ = conn.NetConn().SetDeadline(time.Now().Add(s.r.cfg.LoginTimeout))
	text := "KILL "
	if query {
		text += "QUERY "
	}
	if _, err := s.exec(conn, s.query(text+strconv.FormatUint(uint64(p.thread), 10))); err != nil {
		return failed(err)
	}
	return nil
}

// placesOf finds the session that by means by an id: the one that has the id at the server that by uses; else the only
// one of the same port that has it at its leader now; else the only one that was given it at its login. Ids of
// different servers may be equal, so a session that is not the only one is not meant.
func (r *Router) placesOf(id uint32, by *session) []place {
	r.mu.Lock()
	defer r.mu.Unlock()
	var now, login []*session
	for s := range r.followed {
		at := s.places.Load()
		for _, p := range at.list() {
			if by.link != nil && p.target == by.link.target && p.thread == id {
				return at.list()
			}
		}
		switch {
		case s.port != by.port:
		case at[0] != nil && at[0].thread == id:
			now = append(now, s)
		case s.firstID == id:
			login = append(login, s)
		}
	}
	for _, meant := range [][]*session{now, login} {
		if len(meant) == 1 {
			return meant[0].places.Load().list()
		}
		if len(meant) > 1 {
			break
		}
	}
	return nil
}

func (p *places) list() (all []place) {
	for _, one := range p {
		if one != nil {
			all = append(all, *one)
		}
	}
	return all
}
