package router

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// Limits of what is kept of a session to restore it. A session that exceeds them cannot be carried over.
const (
	maxSets          = 64
	maxSetBytes      = 16 << 10
	maxDialectBytes  = 1 << 10 // of which each prepared statement may keep another one
	maxPreparedBytes = 1 << 20
	maxPrepared      = 1024
)

// state is what a session has at the server, as far as it can be restored at another.
type state struct {
	status   uint16 // SERVER_STATUS_* of the last answer that told it
	schema   []byte // COM_INIT_DB's payload, or that of a USE; nil: the one of the login
	cleared  bool   // by COM_RESET_CONNECTION: what the login has set is gone
	sets     []string
	setBytes int
	firm     int    // so many of sets stay where they are: a later one has read what they set
	dialect  string // those of sets by which the text of a statement is read
	options  []byte // COM_SET_OPTION's payload; nil: as at login
	prepared map[uint32]*prepared
	bytes    int    // of texts in prepared
	nextID   uint32 // of a prepared statement, as the client sees it
	insertID uint64 // what LAST_INSERT_ID() should say; 0: nothing that matters
	hangs    bool   // the server may hold a prepared statement's parameters or cursor between two commands
	once     bool   // something holds for the next statement only, so this is no boundary
	guess    bool   // a statement failed, and no answer has told since whether a transaction is open: one counts as open
	unsure   bool   // likewise, and it may have committed the transaction that was open
	isNull   bool   // sql_auto_is_null was set: a SELECT may mean the row that was inserted last
	reason   string // not empty: why it cannot be carried over

	following bool // the server in use is a splitting session's follower
}

// prepared is a statement that the client has prepared.
type prepared struct {
	text   []byte
	effect sqlkind.Effect
	// schema and dialect are those of the session when it was prepared, which it keeps.
	schema  []byte
	dialect string
	params  int
	types   []byte // the block of types that the client sent last
	long    bool   // parameters were sent ahead
	// missing: of those some did not arrive, or were lost. The next execution fails, and what is sent ahead until then
	// is dropped.
	missing bool
	cursor  bool // rows wait to be fetched

	preparedAt            // at the present server
	following  bool       // which is the follower
	other      preparedAt // at a splitting session's other server
	access     sqlkind.Access
	judged     bool // access is known
}

// preparedAt is what hangs on a server.
type preparedAt struct {
	server   uint32 // the statement's id there; 0: it is not prepared there yet
	typed    bool   // the server has its block of types
	cursored bool   // it was executed with a cursor there, which leaves its mark (leavesCursor)
}

// turn makes what hangs on a server that of the server in use.
func (p *prepared) turn(following bool) {
	if p.following != following {
		p.preparedAt, p.other, p.following = p.other, p.preparedAt, following
	}
}

func (s *state) inTransaction() bool { return s.status&mysqlwire.StatusInTransaction != 0 }
func (s *state) autocommit() bool    { return s.status&mysqlwire.StatusAutocommit != 0 }

// boundary reports that everything that depends on the present server can be restored. It is called a few times for
// each command, so it looks at prepared statements only if one of them was used in a way that leaves something at the
// server between two commands.
func (s *state) boundary() bool {
	if s.inTransaction() || s.once || s.unsure {
		return false
	}
	if s.hangs {
		for _, p := range s.prepared {
			if p.long || p.cursor {
				return false
			}
		}
		s.hangs = false
	}
	return true
}

func (s *state) mark(reason string) {
	if s.reason == "" {
		s.reason = reason
	}
}

// reset is COM_RESET_CONNECTION: the schema stays.
func (s *state) reset() {
	*s = state{status: s.status &^ mysqlwire.StatusInTransaction, schema: s.schema, cleared: true, options: s.options,
		nextID: s.nextID, following: s.following}
}

// set notes a SET that has succeeded. The same text again replaces the first: what it sets, it sets again. reads says
// that its value hangs on what was set before.
func (s *state) set(text []byte, reads bool) {
	s.keepSet(string(text))
	if reads {
		s.firm = len(s.sets)
	}
	lower := strings.ToLower(string(text))
	s.isNull = s.isNull || strings.Contains(lower, "sql_auto_is_null")
	if containsAny(lower, unsafeCharsets) {
		s.mark(unsafeCharset)
	}
	if containsAny(lower, dialectWords) {
		s.dialect = ""
		for _, set := range s.sets {
			if containsAny(strings.ToLower(set), dialectWords) {
				s.dialect += set + "\n"
			}
		}
		if len(s.dialect) > maxDialectBytes {
			s.mark("more SET statements than are kept")
		}
	}
}

// keepSet keeps a SET to be repeated.
func (s *state) keepSet(text string) {
	if i := slices.Index(s.sets[s.firm:], text); i >= 0 {
		s.setBytes -= len(text)
		s.sets = slices.Delete(s.sets, s.firm+i, s.firm+i+1)
	}
	s.sets = append(s.sets, text)
	s.setBytes += len(text)
	if len(s.sets) > maxSets || s.setBytes > maxSetBytes {
		s.mark("more SET statements than are kept")
	}
}

// dialectWords are in every SET by which the text of a statement comes to mean something else.
var dialectWords = []string{"sql_mode", "names", "character", "charset", "collation"}

// unsafeCharsets have letters whose last byte is that of a backslash, which hides the end of a string from the scanner.
var unsafeCharsets = []string{"big5", "cp932", "gb18030", "gbk", "sjis"}

// unsafeCharset is the reason of a session that uses one.
const unsafeCharset = "a character set whose letters may contain a backslash"

func containsAny(s string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// ran notes a text statement that has succeeded.
func (s *state) ran(e sqlkind.Effect, text []byte, whole bool) {
	if e.Verb == sqlkind.VerbSet && !e.Once && !e.Global && e.Reason == "" {
		if whole {
			s.set(text, e.Reads)
		} else {
			s.mark("a long SET")
		}
	}
	if e.Verb == sqlkind.VerbUse {
		if whole {
			s.schema = append([]byte{comQuery}, text...)
		} else {
			s.mark("a long USE")
		}
	}
}

// keeps reports whether one more prepared statement, with a text of so many bytes, is within what is kept.
func (s *state) keeps(length int) bool {
	return len(s.prepared) < maxPrepared && s.bytes+length <= maxPreparedBytes
}

// prepare notes a statement that the server has prepared, and gives it the id that the client is to see.
func (s *state) prepare(text []byte, e sqlkind.Effect, serverID uint32, params int) uint32 {
	if s.prepared == nil {
		s.prepared = map[uint32]*prepared{}
	}
	if e.Sets() {
		e.Reason = "SET or USE as a prepared statement"
	}
	keeps := s.keeps(len(text))
	s.nextID++
	s.prepared[s.nextID] = &prepared{text: bytes.Clone(text), effect: e, schema: s.schema, dialect: s.dialect,
		preparedAt: preparedAt{server: serverID}, params: params, following: s.following}
	if s.bytes += len(text); !keeps {
		s.mark("more prepared statements than are kept")
		s.prepared[s.nextID].text = nil
		s.bytes -= len(text)
	}
	return s.nextID
}

func (s *state) close(id uint32) {
	if p := s.prepared[id]; p != nil {
		s.bytes -= len(p.text)
		delete(s.prepared, id)
	}
}

// moved is called when the session goes on at another server.
func (s *state) moved() {
	for _, p := range s.prepared {
		p.missing = p.missing || p.long
		p.turn(s.following)
		p.preparedAt, p.long, p.cursor = preparedAt{}, false, false
	}
}

// told records that the client knows that it has to send a statement's parameters again.
func (s *state) told(p *prepared) {
	if p != nil {
		p.missing = false
	}
}

// execute is COM_STMT_EXECUTE's payload taken apart.
type execute struct {
	flag  int // where the byte stands that says whether types follow; 0: there are no parameters
	types int // length of the block after it
}

// parseExecute finds the types of a COM_STMT_EXECUTE of a statement with params parameters. ok is false when they lie
// beyond the bytes at hand, or do not follow the protocol.
func parseExecute(p []byte, params int, attributes bool) (e execute, ok bool) {
	if len(p) < 10 {
		return e, false
	}
	count, rest := params, p[10:]
	if attributes && p[5]&0x08 != 0 {
		v, r, ok := mysqlwire.Lenenc(rest)
		if !ok || v > 1<<16 {
			return e, false
		}
		count, rest = int(v), r
	}
	if count == 0 {
		return e, true
	}
	if bitmap := (count + 7) / 8; len(rest) > bitmap {
		rest = rest[bitmap:]
	} else {
		return e, false
	}
	e.flag = len(p) - len(rest)
	if rest[0] == 0 {
		return e, true
	}
	rest = rest[1:]
	begin := len(rest)
	for range count {
		if len(rest) < 2 {
			return e, false
		}
		rest = rest[2:]
		if attributes {
			n, r, ok := mysqlwire.Lenenc(rest)
			if !ok || n > uint64(len(r)) {
				return e, false
			}
			rest = r[n:]
		}
	}
	e.types = begin - len(rest)
	return e, true
}

func putID(p []byte, id uint32) { binary.LittleEndian.PutUint32(p, id) }
func getID(p []byte) uint32     { return binary.LittleEndian.Uint32(p) }
