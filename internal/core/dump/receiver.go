package dump

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// defaultHeartbeat applies when the receiver asks for none.
const defaultHeartbeat = 10 * time.Second

// receiver is one logged-in connection of a mysqld's receiver thread.
type receiver struct {
	f         *Feed
	s         *mysqlwire.Session
	heartbeat time.Duration
}

// run answers commands until the dump, and then dumps.
func (r *receiver) run() error {
	for {
		if err := r.s.NetConn().SetReadDeadline(time.Now().Add(commandLimit)); err != nil {
			return fmt.Errorf("limit wait for a command: %w", err)
		}
		command, argument, err := r.s.ReadCommand()
		if err != nil {
			return err
		}
		switch command {
		case mysqlwire.ComQuit:
			return nil
		case mysqlwire.ComPing, mysqlwire.ComRegisterSlave:
			err = r.s.WriteOK()
		case mysqlwire.ComQuery:
			err = r.query(string(argument))
		case mysqlwire.ComBinlogDumpGTID:
			return r.dump(argument)
		case mysqlwire.ComBinlogDump:
			err = r.refuse(errors.New("this source serves GTID sets only: use SOURCE_AUTO_POSITION=1"))
		default:
			err = r.s.WriteERR(&mysqlwire.ServerError{Code: mysqlwire.CodeUnknownCommand, State: "08S01",
				Message: fmt.Sprintf("command %#x is not served here", command)})
		}
		if err != nil {
			return err
		}
	}
}

// refuse ends a receiver permanently.
func (r *receiver) refuse(cause error) error {
	return r.s.WriteERR(fatalDump(cause.Error()))
}

// dump serves COM_BINLOG_DUMP_GTID.
func (r *receiver) dump(argument []byte) error {
	request, err := parseDumpRequest(argument)
	if err == nil && request.serverID == r.f.cfg.ServerID {
		err = fmt.Errorf("source and replica have the same server id %d", request.serverID)
	}
	if err != nil {
		return errors.Join(err, r.refuse(err))
	}
	w, paused := r.f.begin(r.s)
	defer r.f.end(w)
	if err := r.s.NetConn().SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("begin dump: %w", err)
	}
	r.f.cfg.Logger.Info("feeding mysqld", "paused", paused, "has", clip(request.set.String()))
	for _, g := range r.f.server.gates {
		if !paused {
			g.Begin(request.set)
		}
	}
	err = r.f.server.serve(w, &sending{has: request.set, paused: paused, heartbeat: r.heartbeat})
	switch {
	case w.ctx.Err() != nil:
		return fmt.Errorf("dump: %w", context.Cause(w.ctx))
	case errors.Is(err, ErrPurged), errors.Is(err, ErrInvariant), errors.Is(err, raftlog.ErrCorrupt):
		if report := r.f.cfg.Report; report != nil {
			report(err)
		}
		return errors.Join(err, w.fail(err))
	}
	return err
}

// dumpRequest is the argument of COM_BINLOG_DUMP_GTID that matters here.
type dumpRequest struct {
	flags    uint16
	serverID uint32
	set      gtid.Set
}

// parseDumpRequest decodes flags u16, server id u32, name length u32, name, position u64, set length u32, set. File
// name and position are not looked at: the set alone says where to begin.
func parseDumpRequest(b []byte) (dumpRequest, error) {
	bad := fmt.Errorf("dump request of %d bytes: %w", len(b), mysqlwire.ErrMalformed)
	if len(b) < 10 {
		return dumpRequest{}, bad
	}
	le := binary.LittleEndian
	req := dumpRequest{flags: le.Uint16(b), serverID: le.Uint32(b[2:])}
	name := le.Uint32(b[6:])
	if b = b[10:]; uint64(len(b)) < uint64(name)+12 {
		return dumpRequest{}, bad
	}
	b = b[name+8:]
	size := le.Uint32(b)
	if b = b[4:]; uint64(size) != uint64(len(b)) {
		return dumpRequest{}, bad
	}
	var err error
	if req.set, err = gtid.DecodeBinary(b); err != nil {
		return dumpRequest{}, fmt.Errorf("GTID set of the dump request: %w", err)
	}
	return req, nil
}

// query answers what a receiver asks before its dump (get_master_version_and_clock in sql/rpl_replica.cc).
func (r *receiver) query(sql string) error {
	q := strings.ToUpper(strings.TrimSpace(sql))
	if strings.HasPrefix(q, "SET ") {
		return r.set(q)
	}
	what, asked := strings.CutPrefix(q, "SELECT ")
	answer, known := map[string]string{
		"UNIX_TIMESTAMP()":        strconv.FormatInt(time.Now().Unix(), 10),
		"@@GLOBAL.SERVER_ID":      strconv.FormatUint(uint64(r.f.cfg.ServerID), 10),
		"@@GLOBAL.SERVER_UUID":    r.f.cfg.ServerUUID.String(),
		"@@GLOBAL.GTID_MODE":      "ON",
		"@SOURCE_BINLOG_CHECKSUM": "CRC32",
		"@MASTER_BINLOG_CHECKSUM": "CRC32",
	}[what]
	if strings.HasPrefix(what, "@@GLOBAL.RPL_SEMI_SYNC") {
		answer, known = "0", true
	}
	if asked && known {
		return r.s.WriteRow(what, mysqlwire.Value{Text: answer})
	}
	r.f.cfg.Logger.Warn("feed does not know a receiver's question", "sql", clip(sql))
	return r.s.WriteERR(&mysqlwire.ServerError{Code: mysqlwire.CodeNotSupported, State: "42000",
		Message: "not served here: " + clip(sql)})
}

// minHeartbeat keeps a receiver's setting of less from keeping us busy.
const minHeartbeat = 10 * time.Millisecond

// set takes the heartbeat period, nanoseconds, and agrees to everything else.
func (r *receiver) set(q string) error {
	if _, rest, ok := strings.Cut(q, "HEARTBEAT_PERIOD"); ok {
		var ns int64
		if _, err := fmt.Sscanf(strings.TrimLeft(rest, " ="), "%d", &ns); err == nil && ns > 0 {
			r.heartbeat = max(time.Duration(ns), minHeartbeat)
		}
	}
	return r.s.WriteOK()
}

// clip keeps a text of unknown length out of a log line.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
