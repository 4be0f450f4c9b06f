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
	if !s.takesWord("CURRENT") {
		s.takesWord("STACKED")
	}
	if !s.takesWord("DIAGNOSTICS") {
		return nil, false
	}
	if s.takesWord("CONDITION") {
		before := s
		if t := s.next(); t.kind != tokenNumber && t.kind != tokenHex && t.kind != tokenString && !t.is("NULL") {
			s = before
			if _, ok := s.userVariable(); !ok {
				return nil, false
			}
		}
	}
	for {
		name, ok := s.userVariable()
		if !ok || !s.takes('=') || s.next().kind != tokenWord {
			return nil, false
		}
		targets = append(targets, name)
		switch {
		case s.takes(','):
		case s.ends():
			return targets, true
		default:
			return nil, false
		}
	}
}

// userVariable reads @name.
func (s *scanner) userVariable() (name string, ok bool) {
	if !s.takes('@') {
		return "", false
	}
	start, c := s.pos, s.at(0)
	var text []byte
	if c == '\'' || c == '"' || c == '`' {
		s.pos++
		text = s.quoted(c)
	} else {
		s.skipWord()
		text = s.src[start:s.pos]
	}
	if len(text) == 0 || strings.ContainsAny(string(text), "\\'\"`") {
		return "", false
	}
	return "@`" + strings.ToLower(string(text)) + "`", true
}
