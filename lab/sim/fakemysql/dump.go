package fakemysql

import (
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// Dump is a semi-sync replica's connection.
type Dump struct {
	s    *Server
	life int
	next int // in s.log
	head [][]byte
	skip gtid.Set // of a dump by GTID set
}

// Dump begins the stream at a position. mysqld takes it for an acknowledgement of everything below. A new dump of the
// same replica ends the earlier one. It is nil if login is impossible and the caller has no session open.
func (s *Server) Dump(from Pos, spare bool) *Dump {
	if !s.running || s.LoginsHang() && !spare {
		return nil
	}
	s.Ack(from)
	d := &Dump{s: s, life: s.life}
	for d.next < len(s.log) && s.log[d.next].start.Less(from) {
		d.next++
	}
	d.open(from)
	return d
}

// DumpByGTID begins at the file that a replica with this set needs: the first one that holds a transaction that is not
// in it. Files are skipped by gtid_executed alone, and so are transactions that wait and are in the set.
func (s *Server) DumpByGTID(set gtid.Set) *Dump {
	d := &Dump{s: s, life: s.life, skip: set.Clone()}
	// PREVIOUS_GTIDS of a file holds what was written before it, acknowledged or not; a file is left out when the set
	// has what gtid_executed says was before it.
	file := uint32(1)
	for f := uint32(2); f <= s.end.File; f++ {
		var before gtid.Set
		for _, l := range s.log {
			if l.trx != nil && l.start.File < f && s.executed.Contains(l.trx.GTID) {
				before.Add(l.trx.GTID)
			}
		}
		if set.ContainsSet(before) {
			file = f
		}
	}
	for d.next < len(s.log) && s.log[d.next].start.File < file {
		d.next++
	}
	d.open(Pos{file, 4})
	return d
}

func (d *Dump) open(from Pos) {
	d.head = append(d.head, binlog.AppendArtificialRotate(nil, d.s.ServerID, fileName(from.File), from.Off))
	if from.Off > 4 {
		fde := binlog.AppendFormatDescription(nil, binlog.Header{Timestamp: 1, ServerID: d.s.ServerID}, "9.7.4", 0)
		d.head = append(d.head, fde)
	}
}

// Next gives the next event of the stream; ok is false while there is no event, lost is true when the server is gone.
func (d *Dump) Next() (event []byte, needAck, ok, lost bool) {
	if !d.s.running || d.s.life != d.life {
		return nil, false, false, true
	}
	if len(d.head) > 0 {
		event, d.head = d.head[0], d.head[1:]
		return event, false, true, false
	}
	for d.next < len(d.s.log) {
		l := &d.s.log[d.next]
		if d.skips() {
			continue
		}
		d.next++
		if d.next < len(d.s.log) && d.s.log[d.next].start.File != l.start.File {
			d.head = append(d.head, binlog.AppendArtificialRotate(nil, d.s.ServerID, fileName(l.start.File+1), 4))
		}
		return l.data, l.needAck, true, false
	}
	return nil, false, false, false
}

// skips passes over a transaction that the replica says it has.
func (d *Dump) skips() bool {
	l := d.s.log[d.next]
	if h, err := binlog.ParseHeader(l.data); err != nil || h.Type != binlog.TypeGTID {
		return false
	}
	to := d.next
	for d.s.log[to].trx == nil {
		to++
	}
	if !d.skip.Contains(d.s.log[to].trx.GTID) {
		return false
	}
	d.next = to + 1
	return true
}
