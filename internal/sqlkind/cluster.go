package sqlkind

import (
	"bytes"
	"fmt"
	"strconv"
)

// ClusterVerb is what a statement about the cluster, which no server knows, asks for.
type ClusterVerb uint8

const (
	// ShowStatus is SHOW TRIREME STATUS.
	ShowStatus ClusterVerb = iota + 1
	// ShowMembers is SHOW TRIREME MEMBERS.
	ShowMembers
	// ShowHistory is SHOW TRIREME HISTORY [LIMIT n].
	ShowHistory
	// CallSwitchover is CALL trireme.switchover, with or without the name of a node.
	CallSwitchover
)

// ClusterStatement is a statement about the cluster.
type ClusterStatement struct {
	Verb  ClusterVerb
	Limit int    // of ShowHistory; negative: none
	Node  []byte // of CallSwitchover: what stands between the quotes; nil: no argument
	Wrong string // not empty: why it cannot be carried out, and what it could be instead
	// Several says that another statement follows in the same text.
	Several bool
}

// ParseCluster takes apart what begins with SHOW TRIREME or CALL trireme.switchover; ok is false for every other statement, one in a version
// comment included. It does not allocate then, and reads to the second word at most. Node lies in sql.
func ParseCluster(sql []byte) (c ClusterStatement, ok bool) {
	s := scanner{src: sql}
	c.Limit = -1
	switch t := s.next(); {
	case t.is("SHOW") && s.next().is("TRIREME"):
		c.show(&s)
	case t.is("CALL") && s.isSwitchover():
		c.Verb = CallSwitchover
		c.argument(&s)
	default:
		return ClusterStatement{}, false
	}
	if bytes.Contains(sql, []byte("/*!")) {
		return ClusterStatement{}, false
	}
	return c, true
}

// isSwitchover reads trireme.switchover, quoted or not, in whatever case.
func (s *scanner) isSwitchover() bool {
	if !s.next().called("TRIREME") {
		return false
	}
	if t := s.next(); t.kind != tokenOther || t.text[0] != '.' {
		return false
	}
	return s.next().called("SWITCHOVER")
}

// called says whether t is a name, in whatever case; name is in upper case.
func (t token) called(name string) bool {
	return (t.kind == tokenWord || t.kind == tokenName) && SameWord(t.text, name)
}

func (c *ClusterStatement) show(s *scanner) {
	switch t := s.next(); {
	case t.is("STATUS"):
		c.Verb = ShowStatus
	case t.is("MEMBERS"):
		c.Verb = ShowMembers
	case t.is("HISTORY"):
		c.Verb = ShowHistory
		before := *s
		if !s.next().is("LIMIT") {
			*s = before
			break
		}
		number := s.next()
		n, err := strconv.ParseUint(string(number.text), 10, 31)
		if number.kind != tokenNumber || err != nil {
			c.Wrong = "LIMIT is followed by one number"
			return
		}
		c.Limit = int(n)
	default:
		c.Wrong = "there are SHOW TRIREME STATUS, SHOW TRIREME MEMBERS and SHOW TRIREME HISTORY [LIMIT n]"
		return
	}
	c.end(s, s.next())
}

// argument reads what may follow CALL trireme.switchover.
func (c *ClusterStatement) argument(s *scanner) {
	const usage = "CALL trireme.switchover takes the name of a node as a string, such as ('n2'), or nothing for the best candidate"
	t := s.next()
	if t.kind != tokenOther || t.text[0] != '(' {
		c.end(s, t)
		return
	}
	if t = s.next(); t.kind == tokenString {
		c.Node = t.text
		if len(c.Node) == 0 { // of a script whose variable is empty: that is no wish for the best candidate
			c.Wrong = "the name of the node is empty; " + usage
			return
		}
		t = s.next()
	}
	if t.kind != tokenOther || t.text[0] != ')' {
		c.Wrong = usage
		return
	}
	c.end(s, s.next())
}

// end checks that t, which was read last, is the end of the statement.
func (c *ClusterStatement) end(s *scanner, t token) {
	semicolon := t.kind == tokenOther && t.text[0] == ';'
	for t.kind == tokenOther && t.text[0] == ';' {
		t = s.next()
	}
	switch {
	case t.kind == tokenEnd:
	case semicolon:
		c.Several = true
	default:
		c.Wrong = fmt.Sprintf("nothing may follow behind it, near '%.64s'", t.text)
	}
}
