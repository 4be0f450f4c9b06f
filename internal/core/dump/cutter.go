package dump

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// firstOffset is where the first event of a binary log file begins.
const firstOffset = uint64(len(binlog.Magic))

// verdict says what becomes of an event.
type verdict uint8

const (
	drop    verdict = iota // belongs to the file, not to a transaction
	keep                   // part of a transaction that goes on
	keepEnd                // the last event of a transaction
	newFile                // the stream goes on in the next file: what is kept must be handed out before
)

// cutter checks the event stream of one incarnation and finds its transactions. It is pure, and a copy of it is a
// point to return to: transactions are cut, and a lost connection is resumed, at such points.
//
// Checked for every event: checksum and header; that it begins where the one before it ended, file by file (S12); that
// it fits the structure of a transaction; that GTIDs are of this incarnation and follow each other without a hole.
type cutter struct {
	asm binlog.Assembler
	// pos is the end of the newest event, in mysqld's binary log.
	pos raftlog.Pos
	// placed is false from the start of a connection until its artificial ROTATE.
	placed bool
	// until is where what was handed out ends, as long as it is read again; zero: it is not. Up to there checksum and
	// place alone are checked; the structure was checked the first time.
	until raftlog.Pos
	// midway is set when the stream did not begin with the incarnation: numbers before it are unknown.
	midway bool
	// lastGNO is the newest sequence number without a tag; tagged are those of tags, which are rare.
	lastGNO int64
	tagged  map[string]int64
}

// cutterConfig is what does not change during an incarnation.
type cutterConfig struct {
	uuid gtid.UUID
	fde  []byte // of the incarnation, as normalFDE makes it; nil until the first one is seen
}

// add takes the next event, whole.
func (c *cutter) add(cfg *cutterConfig, event []byte) (verdict, error) {
	if err := binlog.VerifyChecksum(event); err != nil {
		return drop, fmt.Errorf("event after %v: %w", c.pos, err)
	}
	h, err := binlog.ParseHeader(event)
	if err != nil {
		return drop, fmt.Errorf("event after %v: %w", c.pos, err)
	}
	again, v := c.until != raftlog.Pos{}, drop
	switch {
	case h.Flags&binlog.FlagArtificial != 0 || h.LogPos == 0 || isHeartbeat(h.Type):
		if v, err = c.addArtificial(cfg, h, event); err != nil || !again {
			return v, err
		}
	case !c.placed:
		return drop, invariant("%v before the ROTATE event that names the file", h.Type)
	default:
		if err := c.advance(h); err != nil {
			return drop, err
		}
	}
	if again {
		return drop, c.arrive()
	}
	boundary, err := c.asm.Feed(h, event)
	if err != nil {
		return drop, fmt.Errorf("%w: event that ends at %v: %w", ErrInvariant, c.pos, err)
	}
	switch boundary {
	case binlog.Start:
		return keep, c.checkGTID(cfg)
	case binlog.Inside:
		return keep, nil
	case binlog.End:
		c.noteGTID(c.asm.Trx().GTID)
		return keepEnd, nil
	}
	if h.Type == binlog.TypeFormatDescription {
		return drop, cfg.checkFDE(event)
	}
	return drop, nil
}

// rewind makes it go on where it is, after what lies between from and there has been read again.
func (c *cutter) rewind(from raftlog.Pos) {
	if from != c.pos {
		c.until = c.pos
	}
	c.pos, c.placed = from, false
}

// arrive ends the second reading where the first has.
func (c *cutter) arrive() error {
	if c.until.Less(c.pos) {
		return invariant("reading again up to %v: an event ends at %v", c.until, c.pos)
	}
	if c.pos == c.until {
		c.until = raftlog.Pos{}
	}
	return nil
}

// advance checks that the event begins where the one before it ended.
func (c *cutter) advance(h binlog.Header) error {
	end := c.pos.Off + uint64(h.EventSize)
	if uint32(end) != h.LogPos {
		return invariant("%v of %d bytes after %v says that it ends at %d: the stream has a gap or a double",
			h.Type, h.EventSize, c.pos, h.LogPos)
	}
	c.pos.Off = end
	return nil
}

// addArtificial handles what the dump adds to the file's events.
func (c *cutter) addArtificial(cfg *cutterConfig, h binlog.Header, event []byte) (verdict, error) {
	switch {
	case isHeartbeat(h.Type):
		return drop, nil
	case h.Type == binlog.TypeFormatDescription:
		return drop, cfg.checkFDE(event)
	case h.Type != binlog.TypeRotate:
		return drop, invariant("artificial %v after %v", h.Type, c.pos)
	}
	rotate, err := binlog.ParseRotate(event)
	if err != nil {
		return drop, err
	}
	file, err := fileNumber(string(rotate.File))
	if err != nil {
		return drop, err
	}
	to := raftlog.Pos{File: file, Off: rotate.Position}
	if !c.placed {
		if to != c.pos {
			return drop, invariant("asked for the binary log from %v, got it from %v", c.pos, to)
		}
		c.placed = true
		return drop, nil
	}
	if to == c.pos {
		return drop, nil
	}
	if to != (raftlog.Pos{File: c.pos.File + 1, Off: firstOffset}) {
		return drop, invariant("stream jumps from %v to %v", c.pos, to)
	}
	if c.asm.InTransaction() && c.until == (raftlog.Pos{}) {
		return drop, invariant("transaction %v goes over the end of a file at %v", c.asm.Trx().GTID, c.pos)
	}
	c.pos = to
	return newFile, nil
}

func isHeartbeat(t binlog.EventType) bool {
	return t == binlog.TypeHeartbeat || t == binlog.TypeHeartbeatV2
}

// checkGTID checks the transaction that begins against the one before it.
func (c *cutter) checkGTID(cfg *cutterConfig) error {
	g := c.asm.Trx().GTID
	if cfg.fde == nil {
		return invariant("transaction %v before the FORMAT_DESCRIPTION event", g)
	}
	if g.UUID != cfg.uuid {
		return invariant("transaction %v is not of this incarnation, whose server_uuid is %v", g, cfg.uuid)
	}
	last := c.lastGNO
	if g.Tag != "" {
		last = c.tagged[g.Tag]
	}
	if last == 0 && c.midway {
		return nil
	}
	if g.GNO != last+1 {
		return invariant("transaction %v follows number %d: the stream has a hole or a double", g, last)
	}
	return nil
}

// noteGTID copies on write, so that a copy of the cutter stays what it was.
func (c *cutter) noteGTID(g gtid.GTID) {
	if g.Tag == "" {
		c.lastGNO = g.GNO
		return
	}
	if c.tagged = maps.Clone(c.tagged); c.tagged == nil {
		c.tagged = map[string]int64{}
	}
	c.tagged[g.Tag] = g.GNO
}

// checkFDE keeps the first FORMAT_DESCRIPTION event and compares later ones with it: a feed serves all files of an
// incarnation under the one in its barrier.
func (cfg *cutterConfig) checkFDE(event []byte) error {
	fde, err := normalFDE(event)
	if err != nil {
		return fmt.Errorf("FORMAT_DESCRIPTION event of mysqld: %w", err)
	}
	if cfg.fde == nil {
		cfg.fde = fde
		return nil
	}
	if !bytes.Equal(binlog.Body(fde), binlog.Body(cfg.fde)) {
		return invariant("FORMAT_DESCRIPTION event changed within an incarnation")
	}
	return nil
}

// logName is the base name of mysqld's binary log files, which Trireme sets.
const logName = "binlog"

// appendFileName and fileNumber convert between a number and the name that mysqld gives the file.
func appendFileName(dst []byte, base string, number uint32) []byte {
	dst = append(append(dst, base...), '.')
	for limit := uint32(100000); limit > 1 && number < limit; limit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, uint64(number), 10)
}

func fileNumber(name string) (uint32, error) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	digits, ok := strings.CutPrefix(name, logName+".")
	number, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || number == 0 {
		return 0, invariant("binary log file is named %q, expected %s.NNNNNN", name, logName)
	}
	return uint32(number), nil
}
