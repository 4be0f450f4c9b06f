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
)

// ClusterStatement is a statement about the cluster.
type ClusterStatement struct {
	Verb  ClusterVerb
	Limit int    // of ShowHistory; negative: none
	Wrong string // not empty: why it cannot be carried out, and what it could be instead
	// Several says that another statement follows in the same text.
	Several bool
}

// ParseCluster takes apart what begins with SHOW TRIREME; ok is false for every other statement, one in a version
// comment included. It does not allocate then, and reads to the second word at most.
func ParseCluster(sql []byte) (c ClusterStatement, ok bool) {
	s := scanner{src: sql}
	if !s.next().is("SHOW") || !s.next().is("TRIREME") || bytes.Contains(sql, []byte("/*!")) {
		return ClusterStatement{}, false
	}
	c.Limit = -1
	c.show(&s)
	return c, true
}

func (c *ClusterStatement) show(s *scanner) {
	switch t := s.next(); {
	case t.is("STATUS"):
		c.Verb = ShowStatus
	case t.is("MEMBERS"):
		c.Verb = ShowMembers
	case t.is("HISTORY"):
		c.Verb = ShowHistory
		if !s.takesWord("LIMIT") {
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
	semicolon := s.takes(';')
	for s.takes(';') {
	}
	switch t := s.next(); {
	case t.kind == tokenEnd:
	case semicolon:
		c.Several = true
	default:
		c.Wrong = fmt.Sprintf("nothing may follow it, near '%.64s'", t.text)
	}
}
