package router

import (
	"fmt"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// attributes are what stands between a COM_QUERY's first byte and its text.
type attributes struct {
	length int         // of everything in front of the text, the first byte included
	access *accessMode // router.access_mode
	level  *Level      // trireme.consistency
	wrong  error       // one of them has an invalid value
}

// attrConsistency is the query attribute that asks for a level.
const attrConsistency = "trireme.consistency"

// attributes takes them apart, if the client sends them at all. ok is false when they are not here as a whole or do not
// follow the protocol.
func (s *session) attributes(p []byte) (at attributes, ok bool) {
	if !s.attrs {
		return attributes{length: 1}, true
	}
	return parseAttributes(p)
}

// maxAttributes bounds what is looked at; mysqld takes as many.
const maxAttributes = 1 << 16

// parseAttributes reads COM_QUERY's payload with CLIENT_QUERY_ATTRIBUTES: parameter_count, parameter_set_count, and if
// there are any a bitmap of NULLs, 1, a type and a name each, and the values.
func parseAttributes(p []byte) (at attributes, ok bool) {
	count, rest, ok := mysqlwire.Lenenc(p[1:])
	if !ok || count > maxAttributes {
		return at, false
	}
	if _, rest, ok = mysqlwire.Lenenc(rest); !ok {
		return at, false
	}
	if count == 0 {
		return attributes{length: len(p) - len(rest)}, true
	}
	nulls := rest
	if bitmap := (int(count) + 7) / 8; len(rest) > bitmap && rest[bitmap] == 1 {
		rest = rest[bitmap+1:]
	} else {
		return at, false
	}
	type attribute struct {
		kind byte
		name []byte
	}
	list := make([]attribute, 0, min(int(count), 16))
	for range count {
		if len(rest) < 2 {
			return at, false
		}
		a := attribute{kind: rest[0]}
		if a.name, rest, ok = lenencBytes(rest[2:]); !ok {
			return at, false
		}
		list = append(list, a)
	}
	for i, a := range list {
		if nulls[i/8]&(1<<(i%8)) != 0 || a.kind == typeNull {
			continue
		}
		var value []byte
		if value, rest, ok = attributeValue(a.kind, rest); !ok {
			return at, false
		}
		at.take(string(a.name), value)
	}
	at.length = len(p) - len(rest)
	return at, true
}

func lenencBytes(p []byte) (v, rest []byte, ok bool) {
	n, rest, ok := mysqlwire.Lenenc(p)
	if !ok || n > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}

// Types of the binary protocol (include/field_types.h) whose values have a length of their own.
const (
	typeTiny     = 1
	typeShort    = 2
	typeLong     = 3
	typeFloat    = 4
	typeDouble   = 5
	typeNull     = 6
	typeTime     = 7
	typeLonglong = 8
	typeInt24    = 9
	typeDate     = 10
	typeDatetime = 12
	typeStamp    = 11
	typeYear     = 13
)

// attributeValue takes one value off.
func attributeValue(kind byte, p []byte) (value, rest []byte, ok bool) {
	n := 0
	switch kind {
	case typeTiny:
		n = 1
	case typeShort, typeYear:
		n = 2
	case typeLong, typeInt24, typeFloat:
		n = 4
	case typeLonglong, typeDouble:
		n = 8
	case typeDate, typeTime, typeDatetime, typeStamp:
		if len(p) == 0 {
			return nil, nil, false
		}
		n = 1 + int(p[0])
	default:
		return lenencBytes(p)
	}
	if len(p) < n {
		return nil, nil, false
	}
	return p[:n], p[n:], true
}

// take keeps the attributes that are for the router.
func (at *attributes) take(name string, value []byte) {
	switch name {
	case "router.access_mode":
		mode, err := parseAccessMode(value)
		if err != nil {
			at.wrong = fmt.Errorf("query attribute router.access_mode: %w", err)
			return
		}
		at.access = &mode
	case attrConsistency:
		level, err := ParseLevel(string(value))
		if err != nil {
			at.wrong = fmt.Errorf("query attribute %s: %w", attrConsistency, err)
			return
		}
		at.level = &level
	}
}

func parseAccessMode(value []byte) (accessMode, error) {
	for m, name := range accessModes {
		if sqlkind.SameWord(value, name) {
			return accessMode(m), nil
		}
	}
	return 0, fmt.Errorf("%.64q is no access_mode; there are auto, read_only and read_write", value)
}

// accessModes are as clients write them.
var accessModes = [...]string{"AUTO", "READ_ONLY", "READ_WRITE"}
