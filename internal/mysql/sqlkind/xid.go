package sqlkind

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// ErrXID: the statement is not an XA statement with a well-formed xid.
var ErrXID = errors.New("sqlkind: bad xid")

const (
	// MaxXIDPart is the length limit of gtrid and of bqual, in bytes (MAXGTRIDSIZE, MAXBQUALSIZE in sql/xa.h).
	MaxXIDPart = 64
	// defaultFormatID is what a statement without one means.
	defaultFormatID = 1
)

// XID names an XA transaction. It is comparable: use it as a map key. FormatID holds the low 32 bits of the number in
// the statement, because the XA_PREPARE event has no more.
type XID struct {
	FormatID     uint32
	GTRID, BQual string
}

// String gives the form that mysqld writes into the binary log: X'67',X'62',1.
func (x XID) String() string {
	return fmt.Sprintf("X'%x',X'%x',%d", x.GTRID, x.BQual, x.FormatID)
}

// ParseXID reads the xid of an XA statement: XA verb gtrid[,bqual[,formatID]] [ONE PHASE]. Each part may be a quoted
// string, X'…', 0x…, B'…' or 0b…; onePhase tells whether XA COMMIT … ONE PHASE follows. The error is ErrXID.
func ParseXID(sql []byte) (xid XID, onePhase bool, err error) {
	s := scanner{src: sql}
	if !s.next().is("XA") || s.next().kind != tokenWord {
		return XID{}, false, fmt.Errorf("%w: not an XA statement", ErrXID)
	}
	xid.FormatID = defaultFormatID
	if xid.GTRID, err = s.next().bytes(); err != nil {
		return XID{}, false, err
	}
	if s.takes(',') {
		if xid.BQual, err = s.next().bytes(); err != nil {
			return XID{}, false, err
		}
		if s.takes(',') {
			if xid.FormatID, err = s.next().formatID(); err != nil {
				return XID{}, false, err
			}
		}
	}
	return xid, s.takesWord("ONE") && s.takesWord("PHASE"), nil
}

// bytes gives the value of a string literal.
func (t token) bytes() (string, error) {
	var b []byte
	var err error
	switch t.kind {
	case tokenString:
		b = unescape(t.text, t.quote)
	case tokenHex:
		if len(t.text)%2 == 1 { // 0xABC is 0x0ABC
			t.text = append([]byte{'0'}, t.text...)
		}
		b = make([]byte, hex.DecodedLen(len(t.text)))
		_, err = hex.Decode(b, t.text)
	case tokenBits:
		b, err = bits(t.text)
	default:
		err = fmt.Errorf("no string at %q", t.text)
	}
	if err == nil && len(b) > MaxXIDPart {
		err = fmt.Errorf("%d bytes, the limit is %d", len(b), MaxXIDPart)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrXID, err)
	}
	return string(b), nil
}

// formatID gives the value of an unsigned number.
func (t token) formatID() (uint32, error) {
	base := 10
	if t.kind == tokenHex {
		base = 16
	}
	if t.kind == tokenNumber || t.kind == tokenHex {
		if n, err := strconv.ParseUint(string(t.text), base, 64); err == nil {
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("%w: format id %q", ErrXID, t.text)
}

// bits reads binary digits as a big-endian string of bytes.
func bits(digits []byte) ([]byte, error) {
	out := make([]byte, (len(digits)+7)/8)
	for i, c := range digits {
		if c != '0' && c != '1' {
			return nil, fmt.Errorf("binary digit %q", c)
		}
		place := len(digits) - 1 - i
		out[len(out)-1-place/8] |= (c - '0') << (place % 8)
	}
	return out, nil
}

// unescape undoes backslash escapes and doubled quotes (get_text in sql/sql_lex.cc).
func unescape(text []byte, quote byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			out = append(out, escaped(text[i]))
		case c == quote && i+1 < len(text) && text[i+1] == c:
			i++
			out = append(out, c)
		default:
			out = append(out, c)
		}
	}
	return out
}

func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case '0':
		return 0
	case 'Z':
		return 26
	}
	return c
}
