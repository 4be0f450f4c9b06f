package binlog

import "fmt"

// AppendVoid appends a transaction that has the GTID event of another one and does nothing, as mysqld writes an empty
// one.
func AppendVoid(dst, gtidEvent []byte) ([]byte, error) {
	h, err := ParseHeader(gtidEvent)
	if err != nil || !h.Type.StartsTransaction() || int(h.EventSize) != len(gtidEvent) {
		return dst, fmt.Errorf("%w: %v begins no transaction", ErrMalformed, h.Type)
	}
	start := len(dst)
	dst = append(dst, gtidEvent...)
	q := Header{Timestamp: h.Timestamp, ServerID: h.ServerID}
	for _, sql := range []string{"BEGIN", "COMMIT"} {
		before := len(dst)
		dst = AppendQuery(dst, q, 0, "", sql)
		q.LogPos = h.LogPos + uint32(len(dst)-start-len(gtidEvent))
		SetLogPos(dst[before:], q.LogPos)
	}
	if h.Type == TypeGTIDTagged {
		setTaggedLength(dst[start:start+len(gtidEvent)], uint64(len(dst)-start))
	} else {
		setLength(dst[start:start+len(gtidEvent)], uint64(len(dst)-start))
	}
	return dst, nil
}

// setTaggedLength is setLength for a GTID_TAGGED event: see parseTagged.
func setTaggedLength(ev []byte, length uint64) {
	body := Body(ev)
	f := fields{b: body}
	for range 3 { // version, size, id of the last field that a reader must know
		f.varlen()
	}
	for len(f.b) > 0 && !f.failed {
		switch id := f.varlen(); id {
		case taggedUUID:
			for range 16 {
				f.varlen()
			}
		case taggedTag:
			f.take(f.varlen())
		case taggedTransactionLength:
			at := len(body) - len(f.b)
			f.varlen()
			if n := len(body) - len(f.b) - at; n < 8 && length < 1<<(7*n) { // as many bytes as there are
				length = length<<n | (1<<(n-1) - 1)
				for i := range n {
					body[at+i] = byte(length >> (8 * i))
				}
				PutChecksum(ev)
			}
			return
		default:
			f.varlen()
		}
	}
}
