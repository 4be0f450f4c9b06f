package binlog

import (
	"fmt"

	"trireme/internal/mysql/sqlkind"
)

// ParseXID reads the engine transaction's number out of an XID event. It means nothing on another server.
func ParseXID(ev []byte) (uint64, error) {
	_, body, err := bodyOf(ev, TypeXID)
	if err != nil {
		return 0, err
	}
	if len(body) != 8 {
		return 0, fmt.Errorf("%w: XID event with a body of %d bytes", ErrMalformed, len(body))
	}
	f := fields{b: body}
	return f.uint(8), nil
}

// XAPrepareEvent ends an XA transaction: prepared, or committed at once when OnePhase.
type XAPrepareEvent struct {
	OnePhase bool
	XID      sqlkind.XID
}

// ParseXAPrepare reads an XA_PREPARE event: one phase u8, format id u32, gtrid length u32, bqual length u32, bytes.
func ParseXAPrepare(ev []byte) (XAPrepareEvent, error) {
	_, body, err := bodyOf(ev, TypeXAPrepare)
	if err != nil {
		return XAPrepareEvent{}, err
	}
	return parseXAPrepareBody(body)
}

func parseXAPrepareBody(body []byte) (XAPrepareEvent, error) {
	f := fields{b: body}
	var x XAPrepareEvent
	x.OnePhase = f.uint(1) != 0
	x.XID.FormatID = uint32(f.uint(4))
	gtridLen, bqualLen := f.uint(4), f.uint(4)
	x.XID.GTRID = string(f.take(gtridLen))
	x.XID.BQual = string(f.take(bqualLen))
	if f.failed || len(f.b) != 0 || gtridLen > sqlkind.MaxXIDPart || bqualLen > sqlkind.MaxXIDPart {
		return XAPrepareEvent{}, fmt.Errorf("%w: XA_PREPARE event: gtrid of %d, bqual of %d bytes in a body of %d",
			ErrMalformed, gtridLen, bqualLen, len(body))
	}
	return x, nil
}
