package sqlkind

import "strings"

// GetDiagnostics takes GET [CURRENT | STACKED] DIAGNOSTICS apart, if it stands alone and all that it sets are user
// variables: it returns their names with @ and in backquotes, in lower case. ok is false for every other statement, and
// for names that are not of ASCII. Whether the rest of it is right is for the server to say.
func GetDiagnostics(sql []byte) (targets []string, ok bool) {
	s := scanner{src: sql}
	if !s.next().is("GET") {
		return nil, false
	}
	for _, c := range sql {
		if c >= 0x80 {
			return nil, false
		}
	}
	t := s.next()
	if t.is("CURRENT") || t.is("STACKED") {
		t = s.next()
	}
	if !t.is("DIAGNOSTICS") {
		return nil, false
	}
	save := s
	if s.next().is("CONDITION") {
		save = s
		switch t := s.next(); {
		case t.kind == tokenNumber, t.kind == tokenHex, t.kind == tokenString, t.is("NULL"):
		default:
			s = save
			if _, ok := s.userVariable(); !ok {
				return nil, false
			}
		}
		save = s
	}
	for s = save; ; {
		name, ok := s.userVariable()
		if !ok {
			return nil, false
		}
		targets = append(targets, name)
		if t := s.next(); t.kind != tokenOther || t.text[0] != '=' {
			return nil, false
		}
		if s.next().kind != tokenWord {
			return nil, false
		}
		save = s
		if t := s.next(); t.kind != tokenOther || t.text[0] != ',' {
			if s = save; !s.ends() {
				return nil, false
			}
			return targets, true
		}
	}
}

// userVariable reads @name.
func (s *scanner) userVariable() (name string, ok bool) {
	if t := s.next(); t.kind != tokenOther || t.text[0] != '@' {
		return "", false
	}
	var text []byte
	switch c := s.at(0); {
	case c == '\'' || c == '"' || c == '`':
		text = s.quoted(c)
	default:
		start := s.pos
		for isNameByte(s.at(0)) {
			s.pos++
		}
		text = s.src[start:s.pos]
	}
	if len(text) == 0 || strings.ContainsAny(string(text), "\\'\"`") {
		return "", false
	}
	return "@`" + strings.ToLower(string(text)) + "`", true
}
