package lifecycle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// maxGTIDEvent bounds a GTID event, in bytes: the longest one, with a tag, has less than 200. A longer one is damage,
// such as the torn end of a binary log after a power loss.
const maxGTIDEvent = 4 << 10

// hostProcess is a mysqld of this host.
type hostProcess struct{ *mysqld.Server }

// NewProcess is a mysqld of this host.
func NewProcess(cfg mysqld.Config) (Process, error) {
	s, err := mysqld.New(cfg)
	return hostProcess{s}, err
}

// MySQL implements Process.
func (p hostProcess) MySQL() MySQL { return p.Admin() }

// Certificate implements Process.
func (p hostProcess) Certificate() []byte { return p.Config().TLS }

// LoggedGTIDs implements Process. After the death of a life those that Raft did not keep are what is rolled back, for
// the report.
func (p hostProcess) LoggedGTIDs() gtid.Set { return loggedGTIDs(p.Config().BinlogDir()) }

func loggedGTIDs(dir string) (gtids gtid.Set) {
	files, _ := filepath.Glob(filepath.Join(dir, "binlog.[0-9]*"))
	slices.Sort(files)
	for _, f := range files {
		readGTIDs(&gtids, f)
	}
	return gtids
}

// readGTIDs adds what a binary log file holds.
func readGTIDs(gtids *gtid.Set, path string) {
	f, err := mysqld.OpenOwned(filepath.Dir(path), filepath.Base(path), os.O_RDONLY, -1)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	var (
		off  = int64(4)
		head [256]byte
		asm  binlog.Assembler
	)
	for {
		k, _ := f.ReadAt(head[:], off)
		h, err := binlog.ParseHeader(head[:k])
		if err != nil || h.EventSize < binlog.HeaderLen {
			return
		}
		if h.Type == binlog.TypeGTID || h.Type == binlog.TypeGTIDTagged {
			if h.EventSize > maxGTIDEvent {
				return
			}
			ev := make([]byte, h.EventSize)
			if _, err := f.ReadAt(ev, off); err != nil {
				return
			}
			if _, err := asm.Feed(h, ev); err != nil {
				return
			}
			gtids.Add(asm.Trx().GTID)
			// The GTID event knows how long its transaction is: the next one comes after it.
			if skip := int64(asm.Trx().TransactionLength); skip > int64(h.EventSize) {
				off += skip
				asm.Reset()
				continue
			}
			asm.Reset()
		}
		off += int64(h.EventSize)
	}
}

// OnlyControlEvents implements Process: after a rotation, or at the beginning, the log's end comes after the last
// transaction.
func (p hostProcess) OnlyControlEvents(from, to raftlog.Pos) bool {
	return onlyControlEvents(p.Config().BinlogDir(), from, to)
}

func onlyControlEvents(dir string, from, to raftlog.Pos) bool {
	for pos := from; ; pos = (raftlog.Pos{File: pos.File + 1, Off: 4}) {
		end, ok := controlRun(filepath.Join(dir, fmt.Sprintf("binlog.%06d", pos.File)), int64(pos.Off))
		if !ok {
			return false
		}
		if pos.File >= to.File {
			return pos.File == to.File && end >= int64(to.Off)
		}
	}
}

// controlRun walks over control events from off on and returns where they end; ok is false at any other event.
func controlRun(path string, off int64) (end int64, ok bool) {
	f, err := mysqld.OpenOwned(filepath.Dir(path), filepath.Base(path), os.O_RDONLY, -1)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	var head [binlog.HeaderLen]byte
	for {
		if k, _ := f.ReadAt(head[:], off); k == 0 {
			return off, true
		}
		h, err := binlog.ParseHeader(head[:])
		if err != nil || h.EventSize < binlog.HeaderLen {
			return 0, false
		}
		switch h.Type {
		case binlog.TypeFormatDescription, binlog.TypePreviousGTIDs, binlog.TypeRotate, binlog.TypeStop:
		default:
			return 0, false
		}
		off += int64(h.EventSize)
	}
}

// TidyBinlog deletes files of the leader's binary log that Raft has whole. It is for one caller at a time.
func (l *Life) TidyBinlog(ctx context.Context) error {
	file := l.Acked().File
	if file <= 1 || file == l.purged {
		return nil
	}
	if err := l.mysql.PurgeBinlogs(ctx, fmt.Sprintf("binlog.%06d", file)); err != nil {
		return err
	}
	l.purged = file
	return nil
}
