package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"trireme/internal/mysql/gtid"
)

// GTIDEvent is what a GTID, ANONYMOUS_GTID or GTID_TAGGED event says about the transaction that it begins.
type GTIDEvent struct {
	GTID gtid.GTID // zero in an ANONYMOUS_GTID event
	// MayHaveSBR is set when part of the transaction may be written as statements.
	MayHaveSBR bool
	// LastCommitted and SequenceNumber are the logical clock of the parallel applier, local to one binary log file.
	LastCommitted, SequenceNumber int64
	// ImmediateCommit and OriginalCommit are in microseconds since 1970: on the server whose log this is, and on the
	// one that ran the transaction first. Equal on the latter.
	ImmediateCommit, OriginalCommit uint64
	// TransactionLength is in bytes, from this event to the last one, both included with their checksums; 0 if unknown.
	TransactionLength uint64
	// ImmediateVersion is the version of the server whose log this is: 90704 for 9.7.4; 0 if unknown.
	ImmediateVersion uint32
}

// mayHaveSBR is the flag of a GTID event that MayHaveSBR stands for (FLAG_MAY_HAVE_SBR).
const mayHaveSBR = 1

// logicalClockCode stands before the logical clock of a GTID event (LOGICAL_TIMESTAMP_TYPECODE).
const logicalClockCode = 2

// Flag bits in the top of variable fields of a GTID event: the original value follows.
const (
	commitHasOriginal  = 1 << 55
	versionHasOriginal = 1 << 31
)

// ParseGTID reads an event of type 33, 34 or 42. The error is ErrShort or ErrMalformed.
func ParseGTID(ev []byte) (GTIDEvent, error) { return parseGTID(ev, "") }

// FirstGTID reads the GTID event that a run of events begins with. The error is ErrShort or ErrMalformed.
func FirstGTID(events []byte) (GTIDEvent, error) {
	h, err := ParseHeader(events)
	if err != nil {
		return GTIDEvent{}, err
	}
	return ParseGTID(events[:min(int(h.EventSize), len(events))])
}

// parseGTID does not allocate when the event's tag is "" or lastTag.
func parseGTID(ev []byte, lastTag string) (GTIDEvent, error) {
	h, err := ParseHeader(ev)
	if err != nil {
		return GTIDEvent{}, err
	}
	if !h.Type.StartsTransaction() {
		return GTIDEvent{}, fmt.Errorf("%w: %v where a GTID was expected", ErrMalformed, h.Type)
	}
	if _, _, err = bodyOf(ev, h.Type); err != nil {
		return GTIDEvent{}, err
	}
	var e GTIDEvent
	if h.Type == TypeGTIDTagged {
		err = e.parseTagged(Body(ev), lastTag)
	} else {
		err = e.parsePlain(Body(ev))
	}
	if err != nil {
		return GTIDEvent{}, err
	}
	if anonymous := h.Type == TypeAnonymousGTID; anonymous != (e.GTID.GNO == 0) || e.GTID.GNO < 0 ||
		e.GTID.GNO > gtid.MaxGNO {
		return GTIDEvent{}, fmt.Errorf("%w: %v with sequence number %d", ErrMalformed, h.Type, e.GTID.GNO)
	}
	if h.Type == TypeAnonymousGTID {
		e.GTID = gtid.GTID{}
	}
	return e, nil
}

// parsePlain reads types 33 and 34: Gtid_event::Gtid_event in libs/mysql/binlog/event/control_events.cpp.
//
//	flags u8, uuid [16], gno u64, 02, last_committed u64, sequence_number u64,
//	immediate commit u56 [, original commit u56], transaction length packed,
//	immediate version u32 [, original version u32] [, commit group ticket u64]
func (e *GTIDEvent) parsePlain(body []byte) error {
	f := fields{b: body}
	e.MayHaveSBR = f.uint(1)&mayHaveSBR != 0
	copy(e.GTID.UUID[:], f.take(16))
	e.GTID.GNO = int64(f.uint(8))
	code := f.uint(1)
	e.LastCommitted = int64(f.uint(8))
	e.SequenceNumber = int64(f.uint(8))
	e.ImmediateCommit = f.uint(7)
	if e.OriginalCommit = e.ImmediateCommit; e.ImmediateCommit&commitHasOriginal != 0 {
		e.ImmediateCommit &^= commitHasOriginal
		e.OriginalCommit = f.uint(7)
	}
	e.TransactionLength = f.packed()
	version := uint32(f.uint(4))
	if version&versionHasOriginal != 0 {
		f.uint(4)
	}
	e.ImmediateVersion = version &^ versionHasOriginal
	if f.failed || code != logicalClockCode {
		return fmt.Errorf("%w: GTID event of %d bytes", ErrMalformed, len(body))
	}
	return nil
}

// LimitInFlight returns ev, or a copy of it appended to dst, such that a parallel applier works on at most n
// transactions at once up to this one: its last_committed is at least its sequence number less n. The applier's
// coordinator then sleeps until that many are committed; without that it calls sched_yield until one of n workers is
// free (Mts_submode_logical_clock::get_least_occupied_worker in sql/rpl_mta_submode.cc), a CPU's worth on a busy
// follower. The order becomes stricter only: a last_committed of 0, which binds a transaction to all before it, is left
// as it is, and so are other events than GTID (33).
func LimitInFlight(dst, ev []byte, n int64) []byte {
	const lastCommittedAt = HeaderLen + 1 + 16 + 8 + 1 // see parsePlain
	if TypeOf(ev) != TypeGTID || n <= 0 || len(ev) < lastCommittedAt+16+ChecksumLen {
		return ev
	}
	le := binary.LittleEndian
	last, earliest := int64(le.Uint64(ev[lastCommittedAt:])), int64(le.Uint64(ev[lastCommittedAt+8:]))-n
	if last == 0 || earliest <= last {
		return ev
	}
	out := append(dst, ev...)[len(dst):]
	le.PutUint64(out[lastCommittedAt:], uint64(earliest))
	PutChecksum(out)
	return out
}

// WaitsForAll reports whether a transaction must not begin on a replica before all that stand before it are committed;
// ev is its GTID event (33), rest what follows. These are statements: DDL and those of accounts. A worker that runs one
// ahead of its turn may hold a lock that a transaction before it needs, most of all that of the accounts: mysqld rolls
// it back then and tries again, and now and then leaves a CREATE USER out at that (docs/mysql.md).
func WaitsForAll(ev, rest []byte) bool {
	if TypeOf(ev) != TypeGTID || len(ev) <= HeaderLen || ev[HeaderLen]&mayHaveSBR == 0 {
		return false
	}
	_, next, _, err := Cut(rest)
	if err != nil || TypeOf(next) != TypeQuery {
		return true // it is not seen here
	}
	q, err := ParseQuery(next)
	// the ends of XA transactions are written as statements, too
	return err != nil || !bytes.HasPrefix(q.SQL, []byte("XA "))
}

// serializationVersion is the only version of the message format so far (serialization_format_version.h).
const serializationVersion = 1

// Field ids of a GTID_TAGGED event, in the order of Gtid_event::define_fields.
const (
	taggedFlags = iota
	taggedUUID
	taggedGNO
	taggedTag
	taggedLastCommitted
	taggedSequenceNumber
	taggedImmediateCommit
	taggedOriginalCommit
	taggedTransactionLength
	taggedImmediateVersion
	taggedOriginalVersion
	taggedCommitGroupTicket
)

// parseTagged reads type 42, a message of mysql::serialization:
//
//	version u8, size varlen, id of the last field that a reader must know varlen, { field id varlen, value }…
//
// Values are varlen integers (signed ones with the sign in the lowest bit); the UUID is 16 of them, one a byte; the
// tag is a length and bytes. Unknown fields follow the known ones, so reading stops at the first.
func (e *GTIDEvent) parseTagged(body []byte, lastTag string) error {
	f := fields{b: body}
	version, size, lastNeeded := f.varlen(), f.varlen(), f.varlen()
	if f.failed || version != serializationVersion || size != uint64(len(body)) || lastNeeded > taggedCommitGroupTicket {
		return fmt.Errorf("%w: GTID_TAGGED event: serialization version %d, size %d in %d bytes, last field %d",
			ErrMalformed, version, size, len(body), lastNeeded)
	}
	hasOriginal, seen := false, uint64(0)
	for len(f.b) > 0 && !f.failed {
		id := f.varlen()
		if id > taggedCommitGroupTicket {
			break
		}
		seen |= 1 << id
		switch id {
		case taggedFlags:
			e.MayHaveSBR = f.varlen()&1 != 0
		case taggedUUID:
			for i := range e.GTID.UUID {
				e.GTID.UUID[i] = byte(f.varlen())
			}
		case taggedGNO:
			e.GTID.GNO = f.varlenSigned()
		case taggedTag:
			if err := e.setTag(f.take(f.varlen()), lastTag); err != nil {
				return err
			}
		case taggedLastCommitted:
			e.LastCommitted = f.varlenSigned()
		case taggedSequenceNumber:
			e.SequenceNumber = f.varlenSigned()
		case taggedImmediateCommit:
			e.ImmediateCommit = f.varlen()
		case taggedOriginalCommit:
			e.OriginalCommit, hasOriginal = f.varlen(), true
		case taggedTransactionLength:
			e.TransactionLength = f.varlen()
		case taggedImmediateVersion:
			e.ImmediateVersion = uint32(f.varlen())
		case taggedOriginalVersion, taggedCommitGroupTicket:
			f.varlen()
		}
	}
	const needed = 1<<taggedUUID | 1<<taggedGNO | 1<<taggedTag
	if f.failed || seen&needed != needed {
		return fmt.Errorf("%w: GTID_TAGGED event of %d bytes", ErrMalformed, len(body))
	}
	if !hasOriginal {
		e.OriginalCommit = e.ImmediateCommit
	}
	return nil
}

func (e *GTIDEvent) setTag(tag []byte, lastTag string) error {
	if len(tag) == 0 || string(tag) == lastTag {
		e.GTID.Tag = lastTag[:len(tag)]
		return nil
	}
	var err error
	if e.GTID.Tag, err = gtid.ParseTag(string(tag)); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
