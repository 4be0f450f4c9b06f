package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// Level is how current what a session reads must be. The names and meanings are those of group_replication_consistency.
type Level int

const (
	Eventual Level = iota // whatever the server has
	// like Eventual: a leader opens writes only when it has applied all that was committed before it
	BeforeOnFailover
	Before // everything that was answered, anywhere, before the statement or transaction began
	// a write is answered when every server that counts as live shows it, and only such servers are read
	After
	BeforeAndAfter
	numLevels
)

// levelNames are as clients write them.
var levelNames = [numLevels]string{"EVENTUAL", "BEFORE_ON_PRIMARY_FAILOVER", "BEFORE", "AFTER", "BEFORE_AND_AFTER"}

func (l Level) String() string { return levelNames[l] }

// waits reports whether a level is more than a server keeps by itself.
func (l Level) waits() bool { return l.before() || l.after() }

// level is an account's, until a session sets another.
func (c *Config) level(user string) Level {
	if l, own := c.Levels[user]; own {
		return l
	}
	return c.Consistency
}

// waits reports whether some account's level is more than a server keeps by itself.
func (c *Config) waits() bool {
	for _, l := range c.Levels {
		if l.waits() {
			return true
		}
	}
	return c.Consistency.waits()
}

// noLevel tells a client whose session is not followed.
func noLevel(l Level) *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: codeNoLevel, State: "HY000", Message: "Trireme: " + l.String() +
		" cannot be kept here: this session's login, or what it asks for, cannot be followed; use caching_sha2_password over TLS, or EVENTUAL"}
}

// ParseLevel reads a level's name, in upper or lower case.
func ParseLevel(name string) (Level, error) {
	for l, n := range levelNames {
		if strings.EqualFold(n, name) {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("%q is not a level of consistency; there are %s", name, strings.Join(levelNames[:], ", "))
}

// before reports whether statements wait before they begin, after whether those that wrote do before they are answered.
func (l Level) before() bool { return l == Before || l == BeforeAndAfter }
func (l Level) after() bool  { return l == After || l == BeforeAndAfter }

// Reads tells how current what the servers show is. An index is a place in the cluster's log.
type Reads interface {
	// Answered returns an index that covers what a node's server has answered through this router before the call. It
	// costs less than Barrier if it can.
	Answered(ctx context.Context, node string) (uint64, error)
	// Barrier returns an index: a server that has applied it shows all that was answered before the call.
	Barrier(ctx context.Context) (uint64, error)
	// Applied waits until a node's server has applied an index.
	Applied(ctx context.Context, node string, index uint64) error
	// Everywhere waits until all servers that count as live have applied an index. The error names who has not.
	Everywhere(ctx context.Context, index uint64) error
	// Live asks the leader, after the call, which nodes count as live, and may be read at After for api.LiveFor.
	Live(ctx context.Context) (api.ReadIndexView, error)
	// Log names the log that indexes belong to.
	Log() string
}

// accessMode is MySQL Router's access_mode.
type accessMode int

const (
	accessAuto accessMode = iota
	accessReadOnly
	accessReadWrite
)

// wishes are what a client may set for its session.
type wishes struct {
	level     Level
	access    accessMode
	ownWrites bool          // reads show what the session has written
	ownWait   time.Duration // for a follower to show it
}

func (c *Config) wishes(user string) wishes {
	return wishes{level: c.level(user), ownWrites: true, ownWait: c.OwnWritesTimeout}
}

// known is what a session must see, as far as it is known.
type known struct {
	wrote bool   // it may have committed something after index
	by    string // node that has answered that; empty: it was not answered
	index uint64 // all that it has written and seen before lies below
	token uint64 // what it was told to see
}

// Error codes of the router's own, in addition to those that mean what mysqld's mean. MySQL has no codes in this range.
const (
	codeNotCurrent    = 45801 // a statement could not be made as current as asked for; it was not carried out
	codeNotEverywhere = 45802 // a statement was carried out, and committed, and is not applied everywhere yet
	codeNoLevel       = 45803 // the session cannot be followed, so its level cannot be kept
)

// wanted is the index that the server of the next statement must have applied.
func (s *session) wanted(ctx context.Context, level Level, ownWrites bool) (uint64, error) {
	k := &s.known
	if level.before() || ownWrites && k.wrote {
		if s.r.cfg.Reads == nil {
			return 0, errNoReads
		}
		index, err := s.answered(ctx, level)
		if err != nil {
			return 0, err
		}
		k.wrote, k.index = false, max(index, k.index)
		if level.before() {
			return max(k.index, k.token), nil
		}
	}
	if !ownWrites {
		return k.token, nil
	}
	return max(k.index, k.token), nil
}

// answered is an index that covers what a level asks for, and at least what this session has written.
func (s *session) answered(ctx context.Context, level Level) (uint64, error) {
	if level.before() || s.known.by == "" {
		return s.r.cfg.Reads.Barrier(ctx)
	}
	return s.r.cfg.Reads.Answered(ctx, s.known.by)
}

// shows makes sure that the server in use has applied an index. The connection is open already: should its server end
// and come back with less, the connection is gone.
func (s *session) shows(ctx context.Context, index uint64) error {
	if s.link.applied >= index {
		return nil
	}
	if s.r.cfg.Reads == nil {
		return errNoReads
	}
	if err := s.r.cfg.Reads.Applied(ctx, s.link.target.Name, index); err != nil {
		return err
	}
	s.link.applied = index
	return nil
}

// current waits until the server in use shows what a level and the session's token ask for, before a statement or
// transaction begins there. Own writes are on a leader, and a read-only port promises none. If that server ends or
// loses its role meanwhile, the wait for it is given up; the session continues at the next server, and waits there.
// Like find, current tells the client itself why there is no server.
func (s *session) current(level Level) (found bool, err error) {
	if !level.before() && level != After && s.link.applied >= s.known.token {
		return true, nil
	}
	s.leave() // nothing has begun that a switchover should wait for
	until := time.Now().Add(s.r.cfg.ConsistencyTimeout)
	index, late := s.wantedUntil(until, level)
	for late == nil {
		l := s.link
		late = s.awaitHere(until, level, index)
		if found, err := s.find(); !found || err != nil {
			return false, err
		}
		switch {
		case s.link != l:
			s.leave()
			until, late = time.Now().Add(s.r.cfg.ConsistencyTimeout), nil
		case late == nil:
			return true, nil
		}
	}
	what := level.String()
	if !level.before() && level != After {
		what = "its token"
	}
	return false, s.settle(s.answerError(&mysqlwire.ServerError{Code: codeNotCurrent, State: "HYT00", Message: fmt.Sprintf(
		"Trireme: %s could not be kept on %s within %v, and the statement was not carried out: %v", what, s.link.target.Name,
		s.r.cfg.ConsistencyTimeout, late)}))
}

func (s *session) wantedUntil(until time.Time, level Level) (uint64, error) {
	ctx, cancel := context.WithDeadline(s.r.ctx, until)
	defer cancel()
	return s.wanted(ctx, level, false)
}

// awaitHere waits until the server in use may be read at a level and shows an index, as long as it keeps its role. A
// server that does not answer is asked again.
func (s *session) awaitHere(until time.Time, level Level, index uint64) error {
	ctx, cancel := s.link.until(s.r.ctx, until)
	defer cancel()
	for {
		live, err := s.live(ctx, level)
		if err == nil {
			err = s.shows(ctx, max(index, live))
		}
		if err == nil || errors.Is(err, errNoReads) || ctx.Err() != nil {
			return err
		}
		if poll.Pause(ctx, retryPause) != nil {
			return err
		}
	}
}

// waitOnAll waits, after a statement that may have committed, until all servers that count as live show what this
// session has written.
func (s *session) waitOnAll() *mysqlwire.ServerError {
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.ConsistencyTimeout)
	defer cancel()
	err := errNoReads
	if s.r.cfg.Reads != nil {
		var index uint64
		if index, err = s.wanted(ctx, After, true); err == nil {
			err = s.r.cfg.Reads.Everywhere(ctx, index)
		}
	}
	if err == nil {
		return nil
	}
	return &mysqlwire.ServerError{Code: codeNotEverywhere, State: "HYT00", Message: fmt.Sprintf(
		"Trireme: this statement was carried out, what it committed will stay, and not all servers show it after %v. Do not repeat it: %s",
		s.r.cfg.ConsistencyTimeout, strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// hold delays the end of an answer as long as the statement's level requires. The answer ends with piece, and begins,
// or would begin, with packet number first. If the level cannot be kept, hold sends an error instead. taken: the client
// has got its answer.
func (s *session) hold(j *job, a *answer, first byte, piece []byte) (taken bool, err error) {
	if !j.level.after() || a.failed || s.state.following || !j.effect.MayCommit(j.sinceTrx, j.autocommit) {
		return false, nil
	}
	late := s.waitOnAll()
	if late == nil {
		return false, nil
	}
	switch {
	case !j.told:
		s.next = first
	case len(piece) == mysqlwire.HeaderLen+a.packet:
		s.next = a.seq
	default:
		return true, errEnd // in the middle of a result: nothing can be said
	}
	return true, s.tell(late)
}

// levelOf is the level that holds for a statement: a query attribute's, a hint's, or the session's. Of a long statement
// the part at hand is looked at.
func (s *session) levelOf(c byte, length int) (Level, error) {
	p := s.buf[s.r0+4 : s.r0+min(4+length, s.r1-s.r0)]
	var text []byte
	switch c {
	case comQuery:
		at, ok := s.attributes(p)
		switch {
		case !ok && bytes.Contains(p, []byte(attrConsistency)): // names stand before all values
			return 0,
				fmt.Errorf("query attribute %s: the attributes of a statement that has it must end within its first %d bytes",
					attrConsistency, inBytes)
		case !ok:
			return s.wish.level, nil
		case at.wrong != nil:
			return 0, at.wrong
		case at.level != nil:
			return *at.level, nil
		}
		text = p[at.length:]
	case comStmtExecute:
		if len(p) >= 5 {
			if st := s.state.prepared[getID(p[1:])]; st != nil {
				text = st.text
			}
		}
	}
	if bytes.Contains(text, []byte("/*")) {
		if name, found := sqlkind.Hint(text, varConsistency); found {
			return ParseLevel(string(name))
		}
	}
	return s.wish.level, nil
}
