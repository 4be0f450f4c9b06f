package sqlkind

// tokenKind is the little that matters about a token.
type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // an unquoted name or keyword
	tokenNumber           // digits first
	tokenString           // '…' or "…", text is what stands between the quotes
	tokenHex              // X'…' or 0x…, text is the digits
	tokenBits             // B'…' or 0b…, text is the digits
	tokenName             // `…`
	tokenOther            // one byte of anything else
)

// token is one lexical element; text lies in the statement.
type token struct {
	kind  tokenKind
	text  []byte
	quote byte // of a tokenString
}

// is reports whether t is the keyword, given in upper case.
func (t token) is(keyword string) bool {
	if t.kind != tokenWord || len(t.text) != len(keyword) {
		return false
	}
	for i, c := range t.text {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != keyword[i] {
			return false
		}
	}
	return true
}

var objectTypes = [...]string{
	"TABLE", "TABLES", "VIEW", "DATABASE", "SCHEMA", "INDEX", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "SERVER",
	"TABLESPACE", "UNDO", "LOGFILE", "SPATIAL", "RESOURCE", "INSTANCE", "LIBRARY",
}

// isObjectType reports whether t names a type of object that CREATE, ALTER or DROP takes, USER and ROLE aside.
func (t token) isObjectType() bool {
	for _, name := range objectTypes {
		if t.is(name) {
			return true
		}
	}
	return false
}

// scanner splits a statement into tokens, byte by byte, in whatever character set the client used: keywords are ASCII
// in all of them. (In GBK and SJIS the second byte of a character can be a quote or backslash. That can only mislead it
// after a DEFINER's name in such characters, where it costs the word CreateIfNotExists for DDL.)
type scanner struct {
	src []byte
	pos int
	// versioned is set inside /*! … */, whose closing mark is then skipped.
	versioned bool
	// plainBackslash is the sql_mode NO_BACKSLASH_ESCAPES: a backslash between quotes is a letter like others.
	plainBackslash bool
}

// next returns the next token, a tokenEnd past the last one.
func (s *scanner) next() token {
	s.skipBlank()
	if s.pos >= len(s.src) {
		return token{}
	}
	start := s.pos
	c := s.src[start]
	switch {
	case c == '\'' || c == '"':
		return token{tokenString, s.quoted(c), c}
	case c == '`':
		return token{kind: tokenName, text: s.quoted(c)}
	case (c == 'x' || c == 'X') && s.at(1) == '\'':
		s.pos++
		return token{kind: tokenHex, text: s.quoted('\'')}
	case (c == 'b' || c == 'B') && s.at(1) == '\'':
		s.pos++
		return token{kind: tokenBits, text: s.quoted('\'')}
	case c >= '0' && c <= '9':
		return s.number()
	case isNameByte(c):
		for s.pos < len(s.src) && isNameByte(s.src[s.pos]) {
			s.pos++
		}
		return token{kind: tokenWord, text: s.src[start:s.pos]}
	}
	s.pos++
	return token{kind: tokenOther, text: s.src[start:s.pos]}
}

// at returns the byte n places ahead, 0 past the end.
func (s *scanner) at(n int) byte {
	if s.pos+n < len(s.src) {
		return s.src[s.pos+n]
	}
	return 0
}

// number reads digits, 0x… or 0b…; what follows without a break (1e5, 3rd) belongs to it.
func (s *scanner) number() token {
	start, kind := s.pos, tokenNumber
	if s.src[s.pos] == '0' {
		switch s.at(1) {
		case 'x':
			kind = tokenHex
		case 'b':
			kind = tokenBits
		}
	}
	for s.pos < len(s.src) && isNameByte(s.src[s.pos]) {
		s.pos++
	}
	text := s.src[start:s.pos]
	if kind != tokenNumber {
		text = text[2:]
	}
	return token{kind: kind, text: text}
}

// quoted reads a quoted string whose quote is at pos and returns what stands between the quotes, with doubled quotes
// and backslash escapes left as they are. A string without an end reaches to the end of the statement.
func (s *scanner) quoted(quote byte) []byte {
	s.pos++
	start := s.pos
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '\\' && quote != '`' && !s.plainBackslash:
			s.pos += 2
			continue
		case c == quote:
			if s.at(1) == quote {
				s.pos += 2
				continue
			}
			text := s.src[start:s.pos]
			s.pos++
			return text
		}
		s.pos++
	}
	s.pos = len(s.src)
	return s.src[start:]
}

// skipBlank skips white space, comments and the marks of a version comment.
func (s *scanner) skipBlank() {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case isSpace(c):
			s.pos++
		case c == '#':
			s.skipLine()
		case c == '-' && s.at(1) == '-' && (s.pos+2 >= len(s.src) || s.at(2) <= ' '):
			s.skipLine()
		case c == '/' && s.at(1) == '*':
			s.enterComment()
		case c == '*' && s.at(1) == '/' && s.versioned:
			s.versioned = false
			s.pos += 2
		default:
			return
		}
	}
}

func (s *scanner) skipLine() {
	for s.pos < len(s.src) && s.src[s.pos] != '\n' {
		s.pos++
	}
}

// enterComment skips a comment as a whole, but of a version comment (/*! or /*!80011) only the opening: mysqld
// writes one to its binary log only when it has run what is inside.
func (s *scanner) enterComment() {
	if s.at(2) == '!' {
		s.versioned = true
		s.pos += 3
		for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
			s.pos++
		}
		return
	}
	for s.pos += 2; s.pos < len(s.src); s.pos++ {
		if s.src[s.pos] == '*' && s.at(1) == '/' {
			s.pos += 2
			return
		}
	}
}

// skipAccount skips what may follow DEFINER: = user, as 'u'@'h', u@h, u or CURRENT_USER[()]. The name may be any word,
// USER among them. Without = it is SQL SECURITY DEFINER, and nothing is skipped.
func (s *scanner) skipAccount() {
	save := *s
	if t := s.next(); t.kind != tokenOther || t.text[0] != '=' {
		*s = save
		return
	}
	s.next() // the account's name
	save = *s
	if t := s.next(); t.kind == tokenOther && (t.text[0] == '@' || t.text[0] == '(') {
		s.next() // the host, or the closing parenthesis
		return
	}
	*s = save
}

func isSpace(c byte) bool { return c == ' ' || (c >= '\t' && c <= '\r') }

func isNameByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}
