package sqlkind

// VariableVerb is what is done with a variable.
type VariableVerb uint8

const (
	// SetVariable is SET name = value, with or without SESSION, LOCAL, GLOBAL, PERSIST or the same after @@.
	SetVariable VariableVerb = iota + 1
	// GetVariable is SELECT @@name.
	GetVariable
	// RouterSet is ROUTER SET name = value, which no server knows.
	RouterSet
)

// Variable is a statement that sets, or asks for, one variable and does nothing else.
type Variable struct {
	Verb   VariableVerb
	Global bool   // GLOBAL, PERSIST or PERSIST_ONLY
	Name   []byte // as written
	Value  []byte // of a set: the word, number or string, without its quotes
	Column []byte // of a get: the name of its column
}

// ParseVariable takes such a statement apart; ok is false for every other. The slices lie in sql.
func ParseVariable(sql []byte) (v Variable, ok bool) {
	s := scanner{src: sql}
	switch t := s.next(); {
	case t.is("SET"):
		v.Verb = SetVariable
	case t.is("SELECT"):
		v.Verb = GetVariable
	case t.is("ROUTER"):
		if v.Verb = RouterSet; !s.next().is("SET") {
			return v, false
		}
	default:
		return v, false
	}
	s.skipBlank()
	begin := s.pos
	if ok = v.name(&s); !ok {
		return v, false
	}
	if v.Verb == GetVariable {
		v.Column = sql[begin:s.pos]
		return v, v.rest(&s)
	}
	s.takes(':') // :=
	if !s.takes('=') {
		return v, false
	}
	t := s.next()
	if t.kind == tokenEnd || t.kind == tokenOther {
		return v, false
	}
	v.Value = t.text
	return v, s.ends()
}

// name reads [SESSION|LOCAL|GLOBAL|...] name, or @@[session.]name.
func (v *Variable) name(s *scanner) bool {
	system := s.takes('@')
	if system != s.takes('@') || !system && v.Verb == GetVariable {
		return false
	}
	t := s.next()
	if v.Verb != RouterSet {
		session := t.is("SESSION") || t.is("LOCAL")
		if v.Global = t.is("GLOBAL") || t.is("PERSIST") || t.is("PERSIST_ONLY"); session || v.Global {
			if system && !s.takes('.') {
				return false
			}
			t = s.next()
		}
	}
	v.Name = t.text
	return t.kind == tokenWord || t.kind == tokenName
}

// rest reads what may follow the name in a SELECT.
func (v *Variable) rest(s *scanner) bool {
	as := s.takesWord("AS")
	before := *s
	switch t := s.next(); {
	case !t.is("LIMIT") && (t.kind == tokenWord || t.kind == tokenName || t.kind == tokenString):
		v.Column = t.text
	case as:
		return false
	default:
		*s = before
	}
	if s.takesWord("LIMIT") && s.next().kind != tokenNumber {
		return false
	}
	return s.ends()
}

// ends reports whether nothing follows but a semicolon.
func (s *scanner) ends() bool {
	s.takes(';')
	return s.next().kind == tokenEnd
}

// Hint returns the text between the parentheses after name in a comment of sql: /*+ name(text) */ or /* name(text) */.
// It looks for comments anywhere but between quotes.
func Hint(sql []byte, name string) (text []byte, ok bool) {
	s := scanner{src: sql}
	for {
		before := s.pos
		s.skipBlank()
		if text, ok := hintIn(sql[before:s.pos], name); ok {
			return text, true
		}
		if s.next().kind == tokenEnd {
			return nil, false
		}
	}
}

// hintIn looks for name(text) within the comments of what separates two tokens.
func hintIn(gap []byte, name string) ([]byte, bool) {
	for i := 0; i+4 < len(gap); i++ {
		if gap[i] != '/' || gap[i+1] != '*' {
			continue
		}
		c := scanner{src: gap[i+2:]}
		if c.at(0) == '+' {
			c.pos++
		}
		if !c.next().is(name) || !c.takes('(') {
			continue
		}
		if value := c.next(); value.kind == tokenWord && c.takes(')') {
			return value.text, true
		}
	}
	return nil, false
}

// SameWord reports whether p is word, which is in upper case, in whatever case.
func SameWord(p []byte, word string) bool { return token{kind: tokenWord, text: p}.is(word) }
