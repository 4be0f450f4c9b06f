package binlog

import (
	"encoding/binary"
	"math/bits"
)

// fields takes values off the front of b. After a value that is not there it stays failed and gives zeros.
type fields struct {
	b      []byte
	failed bool
}

// take returns the next n bytes.
func (f *fields) take(n uint64) []byte {
	if f.failed || uint64(len(f.b)) < n {
		f.failed = true
		return nil
	}
	v := f.b[:n:n]
	f.b = f.b[n:]
	return v
}

// uint reads a little-endian integer of n <= 8 bytes.
func (f *fields) uint(n int) uint64 {
	var v uint64
	for i, c := range f.take(uint64(n)) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// packed reads a length-encoded integer of the client protocol (net_field_length_ll in mysys/pack.cc).
func (f *fields) packed() uint64 {
	switch c := f.uint(1); c {
	case 251, 255: // NULL and ERR of the protocol, which no event holds
		f.failed = true
		return 0
	case 252:
		return f.uint(2)
	case 253:
		return f.uint(3)
	case 254:
		return f.uint(8)
	default:
		return c
	}
}

// varlen reads an unsigned integer of mysql::serialization: the number of trailing ones of the first byte is the
// number of bytes after it (libs/mysql/serialization/readme.md).
func (f *fields) varlen() uint64 {
	first := f.uint(1)
	more := bits.TrailingZeros8(^uint8(first))
	rest := f.uint(more)
	if more >= 7 { // 7: the first byte has no bit of the value left; 8: nor has it the closing 0
		return rest
	}
	return first>>(more+1) | rest<<(7-more)
}

// varlenSigned reads a signed integer of mysql::serialization: sign in the lowest bit, negative ones complemented.
func (f *fields) varlenSigned() int64 {
	v := f.varlen()
	return int64(v>>1) ^ -int64(v&1)
}

// appendPacked appends a length-encoded integer.
func appendPacked(dst []byte, v uint64) []byte {
	switch {
	case v < 251:
		return append(dst, byte(v))
	case v < 1<<16:
		return binary.LittleEndian.AppendUint16(append(dst, 252), uint16(v))
	case v < 1<<24:
		return append(dst, 253, byte(v), byte(v>>8), byte(v>>16))
	}
	return binary.LittleEndian.AppendUint64(append(dst, 254), v)
}

// packedLen is the number of bytes that appendPacked appends.
func packedLen(v uint64) uint64 {
	switch {
	case v < 251:
		return 1
	case v < 1<<16:
		return 3
	case v < 1<<24:
		return 4
	}
	return 9
}
