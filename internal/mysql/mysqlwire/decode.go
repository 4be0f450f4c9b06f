package mysqlwire

import (
	"bytes"
	"encoding/binary"
)

// cursor reads a payload front to back. The first read past the end makes it bad and every later read yields zero
// values, so a decoder checks once, at its end.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) u8() byte {
	if v := c.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if v := c.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if v := c.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

// nul reads a string that ends in a zero byte.
func (c *cursor) nul() []byte {
	i := bytes.IndexByte(c.b, 0)
	if c.bad || i < 0 {
		c.bad = true
		return nil
	}
	v := c.take(i)
	c.take(1)
	return v
}

// lenenc reads a length-encoded integer; isNull is the 0xFB of a NULL column.
func (c *cursor) lenenc() (v uint64, isNull bool) {
	switch first := c.u8(); first {
	case 0xFB:
		return 0, true
	case 0xFC:
		return uint64(c.u16()), false
	case 0xFD:
		b := c.take(3)
		if b == nil {
			return 0, false
		}
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16, false
	case 0xFE:
		b := c.take(8)
		if b == nil {
			return 0, false
		}
		return binary.LittleEndian.Uint64(b), false
	case 0xFF:
		c.bad = true
		return 0, false
	default:
		return uint64(first), false
	}
}

// lenencBytes reads a length-encoded string; isNull is a NULL column.
func (c *cursor) lenencBytes() (v []byte, isNull bool) {
	n, isNull := c.lenenc()
	if isNull {
		return nil, true
	}
	if n > uint64(len(c.b)) {
		c.bad = true
		return nil, false
	}
	return c.take(int(n)), false
}

func appendLenenc(b []byte, v uint64) []byte {
	switch {
	case v < 0xFB:
		return append(b, byte(v))
	case v <= 0xFFFF:
		return append(b, 0xFC, byte(v), byte(v>>8))
	case v <= 0xFFFFFF:
		return append(b, 0xFD, byte(v), byte(v>>8), byte(v>>16))
	default:
		return binary.LittleEndian.AppendUint64(append(b, 0xFE), v)
	}
}

func appendLenencString(b []byte, s string) []byte {
	return append(appendLenenc(b, uint64(len(s))), s...)
}
