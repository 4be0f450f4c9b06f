package sqlkind

import "bytes"

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

// token is one lexical element; text lies in the statement. In this order it fits in registers.
type token struct {
	text  []byte
	kind  tokenKind
	quote byte // that text stands between, or 0
}

// is reports whether t is the keyword, given in upper case.
func (t token) is(keyword string) bool {
	if t.kind != tokenWord || len(t.text) != len(keyword) {
		return false
	}
	for i, c := range t.text {
		if fold[c] != keyword[i] {
			return false
		}
	}
	return true
}

// among reports whether t is one of the keywords.
func (t token) among(keywords ...string) bool {
	if t.kind != tokenWord || len(t.text) == 0 {
		return false
	}
	first := fold[t.text[0]]
	for _, w := range keywords {
		if w[0] == first && t.is(w) {
			return true
		}
	}
	return false
}

// op reports whether t is the byte c, which is no part of a name.
func (t token) op(c byte) bool { return t.kind == tokenOther && t.text[0] == c }

// scanner splits a statement into tokens, byte by byte, in whatever character set the client used: keywords are ASCII
// in all of them. In GBK and SJIS the second byte of a character can be a quote or backslash, which misleads it: Classify
// only after a DEFINER's name in such characters; AccessOf looks for such bytes first; the router does not carry over a
// session with such a character set.
//
// The text may come in parts. Then ahead is not 0, and a tokenEnd is the end of a part: what follows pos has to be given
// once more, in front of the next part. A string that reaches into another part is a token in each of them. Of a word
// that does, what comes after its first longWord letters may be missing.
type scanner struct {
	src []byte
	pos int // may be beyond src, by what is to be skipped of the next part
	// versioned is set inside /*! … */, whose closing mark is then skipped.
	versioned bool
	// plainBackslash is the sql_mode NO_BACKSLASH_ESCAPES: a backslash between quotes is a letter like others.
	plainBackslash bool
	ahead          int  // so many bytes have to follow the one that is looked at outside of quotes and comments
	open           byte // a quote, or what else the part before ended in
}

// Values of scanner.open that are no quotes.
const (
	openComment = '*'
	openLine    = '\n'
	openVersion = '!' // the digits of a version comment
	openWord    = 'w' // the rest of a long word
)

const (
	lookahead = 2  // the value of scanner.ahead in all parts but the last
	longWord  = 16 // no keyword is told from another by letters after these
)

// next returns the next token, a tokenEnd past the last one.
func (s *scanner) next() token {
	if s.open != 0 && s.pos < len(s.src) {
		if open := s.resume(); open != 0 {
			return token{s.quoted(open), tokenString, open}
		}
	}
	src, i := s.src, s.pos
	for i < len(src) && src[i] == ' ' {
		i++
	}
	if s.pos = i; i < len(src) && fold[src[i]] == 0 {
		s.skipBlank()
		i = s.pos
	}
	if i+s.ahead >= len(src) {
		return token{}
	}
	if start, c := i, src[i]; fold[c] != 0 {
		for i++; i < len(src) && fold[src[i]] != 0; {
			i++
		}
		s.pos = i
		if c > '9' && (i < len(src) && src[i] != '\'' || i == len(src) && s.ahead == 0) {
			return token{kind: tokenWord, text: src[start:i]}
		}
		return s.literal(start)
	}
	s.pos = i + 1
	switch c := src[i]; c {
	case '\'', '"':
		return token{s.quoted(c), tokenString, c}
	case '`':
		return token{s.quoted(c), tokenName, c}
	}
	return token{kind: tokenOther, text: src[i : i+1]}
}

// literal returns what was read from start on and may be no word: X'…' and B'…', whose quote comes next, and numbers,
// which are digits, 0x… or 0b…; what follows without a break (1e5, 3rd) belongs to them.
func (s *scanner) literal(start int) token {
	text := s.src[start:s.pos]
	if s.cut(openWord); s.open != 0 && len(text) < longWord {
		s.pos, s.open = start, 0
		return token{}
	}
	t := token{kind: tokenWord, text: text}
	switch first := fold[text[0]]; {
	case len(text) == 1 && s.at(0) == '\'' && (first == 'X' || first == 'B'):
		s.pos++
		t = token{s.quoted('\''), tokenHex, '\''}
		if first == 'B' {
			t.kind = tokenBits
		}
	case first == '0' && len(text) > 1 && text[1] == 'x':
		t = token{kind: tokenHex, text: text[2:]}
	case first == '0' && len(text) > 1 && text[1] == 'b':
		t = token{kind: tokenBits, text: text[2:]}
	case first >= '0' && first <= '9':
		t.kind = tokenNumber
	}
	return t
}

// resume goes on within what the part before has left open, and returns the quote if it is a string.
func (s *scanner) resume() (quote byte) {
	open := s.open
	s.open = 0
	switch open {
	case openComment:
		s.skipComment()
	case openLine:
		s.skipLine()
	case openVersion:
		s.skipVersion()
	case openWord:
		s.skipWord()
	default:
		return open
	}
	return 0
}

// cut notes what the text ends in, if that is only the end of a part.
func (s *scanner) cut(open byte) {
	if s.pos >= len(s.src) && s.ahead > 0 {
		s.open = open
	}
}

// at returns the byte n places ahead, 0 past the end.
func (s *scanner) at(n int) byte {
	if s.pos+n < len(s.src) {
		return s.src[s.pos+n]
	}
	return 0
}

func (s *scanner) skipWord() {
	for s.pos < len(s.src) && fold[s.src[s.pos]] != 0 {
		s.pos++
	}
	s.cut(openWord)
}

// quoted reads a string, whose quote was read, and returns what stands between the quotes, with doubled quotes and
// backslash escapes left as they are. A string without an end reaches to the end of the text.
func (s *scanner) quoted(quote byte) []byte {
	start, i := s.pos, s.pos
	for ; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '\\' && quote != '`' && !s.plainBackslash:
			i++
		case c != quote:
		case i+1 < len(s.src) && s.src[i+1] == quote:
			i++
		default:
			s.pos = i + 1
			return s.src[start:i]
		}
	}
	s.pos = len(s.src)
	if s.cut(quote); s.open != 0 {
		s.pos = i // beyond src after a backslash
	}
	return s.src[start:]
}

// skipBlank skips white space, comments and the marks of a version comment.
func (s *scanner) skipBlank() {
	for s.pos+s.ahead < len(s.src) {
		switch c := s.src[s.pos]; {
		case isSpace(c):
			s.pos++
		case c == '#', c == '-' && s.at(1) == '-' && s.at(2) <= ' ':
			s.skipLine()
		case c == '/' && s.at(1) == '*' && s.at(2) == '!':
			s.versioned = true
			s.pos += 3
			s.skipVersion()
		case c == '/' && s.at(1) == '*':
			s.pos += 2
			s.skipComment()
		case c == '*' && s.at(1) == '/' && s.versioned:
			s.versioned = false
			s.pos += 2
		default:
			return
		}
	}
}

func (s *scanner) skipLine() {
	if i := bytes.IndexByte(s.src[s.pos:], '\n'); i >= 0 {
		s.pos += i
		return
	}
	s.pos = len(s.src)
	s.cut(openLine)
}

// skipVersion skips the digits of a version comment (/*!80011), of which nothing else is skipped: mysqld writes one to
// its binary log only when it has run what is inside.
func (s *scanner) skipVersion() {
	for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
	}
	s.cut(openVersion)
}

func (s *scanner) skipComment() {
	if i := bytes.Index(s.src[s.pos:], []byte("*/")); i >= 0 {
		s.pos += i + 2
		return
	}
	s.pos = len(s.src)
	if s.cut(openComment); s.open != 0 && s.src[s.pos-1] == '*' {
		s.pos--
	}
}

// skipAccount skips what may follow DEFINER: = user, as 'u'@'h', u@h, u or CURRENT_USER[()]. The name may be any word,
// USER among them. Without = it is SQL SECURITY DEFINER, and nothing is skipped.
func (s *scanner) skipAccount() {
	if !s.takes('=') {
		return
	}
	s.next() // the account's name
	if s.takes('@') || s.takes('(') {
		s.next() // the host, or the closing parenthesis
	}
}

// takes goes past the byte c, if it is what comes next.
func (s *scanner) takes(c byte) bool {
	before := *s
	if s.next().op(c) {
		return true
	}
	*s = before
	return false
}

// takesWord goes past the keyword, if it is what comes next.
func (s *scanner) takesWord(keyword string) bool {
	before := *s
	if s.next().is(keyword) {
		return true
	}
	*s = before
	return false
}

func isSpace(c byte) bool { return c == ' ' || (c >= '\t' && c <= '\r') }

// fold has the bytes that names, words and numbers consist of, in upper case; 0 are all others.
var fold = func() (folded [256]byte) {
	for i := range folded {
		switch c := byte(i); {
		case c >= 'a' && c <= 'z':
			folded[c] = c - ('a' - 'A')
		case c == '_', c == '$', c >= 0x80, c >= '0' && c <= '9', c >= 'A' && c <= 'Z':
			folded[c] = c
		}
	}
	return folded
}()
