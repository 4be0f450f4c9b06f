package dump

import (
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// span is one event in the stream's buffer.
type span struct{ off, size int }

// batch is what has been scanned and not yet handed out.
type batch struct {
	cutter    cutter // after the newest event
	spans     []span // events of transactions
	bytes     int    // of spans
	trxs      uint64 // that end in spans
	gtids     []gtid.Range
	special   bool // one of them is not plain row data closed by XID
	continues bool // the first event continues a transaction

	// cut is where the batch can end without splitting a transaction; cut.spans is 0 when there is no such point.
	cut cutPoint
}

// cutPoint is the newest end of a transaction in a batch. The batch's trxs, gtids and special are as of there.
type cutPoint struct {
	cutter  cutter
	spans   int
	bytes   int
	scan    int  // offset of the next packet in the stream's buffer
	needAck bool // mysqld marked the event: it ends a commit group, and somebody waits for it
}

// begin starts an empty batch at a settled point.
func (b *batch) begin(at *cutter) {
	b.cutter = *at
	b.spans, b.bytes = b.spans[:0], 0
	b.trxs, b.gtids, b.special = 0, nil, false // gtids went out with the payload
	b.continues = at.asm.InTransaction()
	b.cut = cutPoint{}
}

// add checks an event that is off bytes into the stream's buffer and keeps it, or not.
func (b *batch) add(cfg *cutterConfig, event []byte, off int) (verdict, error) {
	v, err := b.cutter.add(cfg, event)
	if err != nil || v == drop || v == newFile {
		return v, err
	}
	b.spans = append(b.spans, span{off, len(event)})
	b.bytes += len(event)
	if v == keepEnd {
		trx := b.cutter.asm.Trx()
		b.trxs++
		b.gtids = appendGTID(b.gtids, trx.GTID)
		b.special = b.special || trx.Special
	}
	return v, nil
}

// mark makes the present end the batch's cut point; scan is the offset of the next packet.
func (b *batch) mark(scan int, needAck bool) {
	b.cut = cutPoint{cutter: b.cutter, spans: len(b.spans), bytes: b.bytes, scan: scan, needAck: needAck}
}

// shift follows a move of the stream's buffer.
func (b *batch) shift(moved int) {
	if moved == 0 {
		return
	}
	for i := range b.spans {
		b.spans[i].off -= moved
	}
	b.cut.scan -= moved
}

func appendGTID(ranges []gtid.Range, g gtid.GTID) []gtid.Range {
	m := raftlog.Meta{GTIDs: ranges}
	m.AddGTID(g)
	return m.GTIDs
}
