package mysqlwire

import (
	"encoding/binary"
	"fmt"
)

// First bytes of a generic response.
const (
	markOK       = 0x00
	markMore     = 0x01
	markLocal    = 0xFB
	markEOF      = 0xFE
	markERR      = 0xFF
	maxEOFLength = 9 // a longer payload that begins with FE is a row or an AuthSwitchRequest
)

// OK is an OK packet. Info is not kept: nothing here needs it.
type OK struct {
	AffectedRows uint64
	LastInsertID uint64
	Status       uint16 // SERVER_STATUS_*
	Warnings     uint16
}

// IsOK, IsERR and IsEOF tell generic responses apart by their first byte and length.
func IsOK(p []byte) bool { return len(p) >= 7 && p[0] == markOK }

// IsERR reports an ERR packet.
func IsERR(p []byte) bool { return len(p) >= 3 && p[0] == markERR }

// IsEOF reports an EOF packet.
func IsEOF(p []byte) bool { return len(p) >= 1 && len(p) < maxEOFLength && p[0] == markEOF }

// ParseOK decodes an OK packet in the CLIENT_PROTOCOL_41 form.
func ParseOK(p []byte) (OK, error) {
	c := cursor{b: p}
	if c.u8() != markOK {
		return OK{}, malformed("OK packet")
	}
	var ok OK
	var null1, null2 bool
	ok.AffectedRows, null1 = c.lenenc()
	ok.LastInsertID, null2 = c.lenenc()
	ok.Status, ok.Warnings = c.u16(), c.u16()
	if c.bad || null1 || null2 {
		return OK{}, malformed("OK packet")
	}
	return ok, nil
}

// AppendOK encodes an OK packet in the CLIENT_PROTOCOL_41 form.
func AppendOK(b []byte, ok OK) []byte {
	b = append(b, markOK)
	b = appendLenenc(b, ok.AffectedRows)
	b = appendLenenc(b, ok.LastInsertID)
	b = binary.LittleEndian.AppendUint16(b, ok.Status)
	return binary.LittleEndian.AppendUint16(b, ok.Warnings)
}

// ParseERR decodes an ERR packet. The SQLSTATE may be missing: the server sends none before the handshake response.
func ParseERR(p []byte) (*ServerError, error) {
	c := cursor{b: p}
	if c.u8() != markERR {
		return nil, malformed("ERR packet")
	}
	e := &ServerError{Code: c.u16(), State: stateGeneral}
	if c.bad {
		return nil, malformed("ERR packet")
	}
	if len(c.b) >= 6 && c.b[0] == '#' {
		e.State = string(c.b[1:6])
		c.b = c.b[6:]
	}
	e.Message = string(c.b)
	return e, nil
}

// AppendERR encodes an ERR packet with its SQLSTATE.
func AppendERR(b []byte, e *ServerError) []byte {
	b = append(b, markERR)
	b = binary.LittleEndian.AppendUint16(b, e.Code)
	state := e.State
	if len(state) != 5 {
		state = stateGeneral
	}
	b = append(append(b, '#'), state...)
	return append(b, e.Message...)
}

// AppendEarlyERR encodes an ERR packet in the greeting's place. Like mysqld's it has no SQLSTATE: clients, which do not
// know the server's protocol yet, would show that as text.
func AppendEarlyERR(b []byte, code uint16, message string) []byte {
	return append(binary.LittleEndian.AppendUint16(append(b, markERR), code), message...)
}

// AppendEOF encodes an EOF packet.
func AppendEOF(b []byte, status uint16) []byte {
	b = append(b, markEOF, 0, 0)
	return binary.LittleEndian.AppendUint16(b, status)
}

// responseError turns an ERR packet into its error and any other payload into nil.
func responseError(p []byte) error {
	if len(p) == 0 {
		return malformed("empty response")
	}
	if p[0] != markERR {
		return nil
	}
	e, err := ParseERR(p)
	if err != nil {
		return err
	}
	return e
}

// Value is one column of a text row.
type Value struct {
	Text string
	Null bool
}

// maxColumns bounds the columns of a result. 4096 is a table's limit; a SELECT of several tables may have more.
const maxColumns = 1<<16 - 1

// ParseColumnCount decodes the first packet of a text result set.
func ParseColumnCount(p []byte) (int, error) {
	c := cursor{b: p}
	n, isNull := c.lenenc()
	if c.bad || isNull || len(c.b) != 0 || n == 0 || n > maxColumns {
		return 0, malformed("column count")
	}
	return int(n), nil
}

// ParseRow decodes a text row of n columns.
func ParseRow(p []byte, n int) ([]Value, error) {
	if n < 0 || n > maxColumns {
		return nil, malformed("row width")
	}
	c := cursor{b: p}
	row := make([]Value, n)
	for i := range row {
		text, isNull := c.lenencBytes()
		row[i] = Value{Text: string(text), Null: isNull}
	}
	if c.bad || len(c.b) != 0 {
		return nil, malformed("text row")
	}
	return row, nil
}

// AppendTextRow encodes a text row.
func AppendTextRow(b []byte, row []Value) []byte {
	for _, v := range row {
		if v.Null {
			b = append(b, 0xFB)
			continue
		}
		b = appendLenencString(b, v.Text)
	}
	return b
}

// Column of a text result.
type Column struct {
	Name string
	Type ColumnType
}

// ColumnType is what clients make of a column's text.
type ColumnType uint8

// Types.
const (
	Text     ColumnType = iota // VARCHAR in utf8mb4
	Unsigned                   // BIGINT UNSIGNED
	Double                     // DOUBLE
)

// What stands in a column definition, by ColumnType.
var columnTypes = [...]struct {
	collation uint16
	length    uint32
	code      byte
	flags     uint16
	decimals  byte
}{
	Text:     {collationUTF8MB4, 65535, 0xFD, 0, 0},
	Unsigned: {collationBinary, 20, 0x08, 0x20 | 0x80, 0},
	Double:   {collationBinary, 23, 0x05, 0x80, 31},
}

const (
	columnFixedLen  = 0x0C
	collationBinary = 63
)

// appendColumn encodes a column definition 41 without a schema or table.
func appendColumn(b []byte, c Column) []byte {
	b = appendLenencString(b, "def")
	for range 3 { // schema, table, original table
		b = append(b, 0)
	}
	b = appendLenencString(b, c.Name)
	b = append(b, 0) // original name
	t := columnTypes[c.Type]
	b = append(b, columnFixedLen)
	b = binary.LittleEndian.AppendUint16(b, t.collation)
	b = binary.LittleEndian.AppendUint32(b, t.length)
	b = append(b, t.code)
	b = binary.LittleEndian.AppendUint16(b, t.flags)
	return append(b, t.decimals, 0, 0)
}

// unexpected names a payload that fits no expected response.
func unexpected(doing string, p []byte) error {
	if len(p) == 0 {
		return fmt.Errorf("%s: empty response: %w", doing, ErrMalformed)
	}
	return fmt.Errorf("%s: unexpected response 0x%02x of %d bytes: %w", doing, p[0], len(p), ErrMalformed)
}
