package mysqld

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// InnoDB's redo log since 8.0.30 (log0constants.h, log0files_io.h, log0recv.cc of mysql-server): files #ib_redoN, the
// log going on from N to N+1, and spare ones, #ib_redoN_tmp. All numbers are big-endian, all checksums CRC-32C of the
// 508 bytes before them.
//
//	block 0      format 4 bytes, UUID of the log 4, LSN of the data's start 8, creator 32, flags 4, …, checksum 4
//	block 1, 3   checkpoint: 8 bytes, LSN 8, …, checksum 4
//	block 2      encryption; zeros without
//	block 4 …    data: number 4 (from 1, modulo 2^30), bytes used 2 (header and all; 512 with checksum if full, highest bit: encrypted),
//	             offset of the first group of records that starts here 2, epoch 4 (from 1), records, checksum 4
//
// A block's LSN gives its file, its offset there, its number and its epoch.
const (
	redoBlock   = 512
	redoHeader  = 4 * redoBlock
	redoSum     = redoBlock - 4
	redoFormat  = 6
	redoFull    = 1 << 3 // the only flag of a log that recovery reads: this file takes no more
	redoNumbers = 1 << 30
	// of a number: the first block of a write, as older versions marked it; recovery does not look at it
	redoFirst    = 1 << 31
	redoNoSum    = 0xdeadbeef // innodb_log_checksums = OFF
	redoRead     = 1 << 17    // bytes that are read at once
	redoMinBlock = 12         // the header of a data block
)

var (
	redoName = regexp.MustCompile(`^#ib_redo([0-9]+)(_tmp)?$`)
	redoCRC  = crc32.MakeTable(crc32.Castagnoli)
)

// redoFile is one file of the log. A spare one has no start.
type redoFile struct {
	path  string
	id    uint64
	start uint64 // LSN of its first data block
	size  int64  // in bytes, with the header
	spare bool
}

// end is the LSN after the file's last block.
func (f redoFile) end() uint64 { return f.start + uint64(f.size-redoHeader) }

// errRedo is why a redo log is left as it is.
var errRedo = errors.New("unexpected redo log")

// mendRedo makes the redo log durable as recovery finds it, with zeros after its end.
//
// After an fsync that failed, Linux still shows data that the disk does not have, and calls it clean (raftlog handles
// the same for its own tail). mysqld has ended then, and would recover from what it is shown. A later power loss would
// remove blocks of the redo log, while pages on disk, written with O_DIRECT since, are newer than those blocks: InnoDB
// ends with an assertion at every start, or serves data that no mysqld has ever written. So the part that recovery
// reads is written once more, if a mysqld has used it in this boot.
//
// A power loss keeps and loses blocks one by one, and a block after a lost one stays on disk. Recovery ends at the lost
// one, and InnoDB continues to write there. Blocks of the earlier life are valid where they are: nothing in them
// distinguishes one life from another. If the power fails again while the new life's end is just before one of them,
// the next recovery reads into it, in the middle of a record: it ends with CORRUPT LOG RECORD FOUND, at every start, or
// does what no mysqld has ever written.
//
// One case remains: the blocks of a group of records that the end cuts short. Recovery reads them and drops them, and
// InnoDB continues to write at the group's start. Only a program that understands the records could distinguish them
// from a complete group.
//
// No mysqld may use the directory. If ctx ends, mendRedo stops halfway: what it has overwritten was after the end, and
// the next start continues. If anything is not as expected, it logs that and leaves the log as it is: the start then is
// as without mendRedo.
func (c Config) mendRedo(ctx context.Context) error {
	began := time.Now()
	files, err := c.redoFiles()
	if err != nil || len(files) == 0 {
		return err
	}
	checkpoint, end, err := redoEnd(ctx, files)
	if errors.Is(err, errRedo) {
		c.log().Warn("the end of the redo log was not found; what follows it stays", "why", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the end of the redo log: %w", err)
	}
	_, ran, err := c.lastStarted()
	ran = ran || err != nil // not known
	blocks := 0
	for _, f := range files {
		if ran {
			if err := f.renew(ctx, checkpoint/redoBlock*redoBlock, end); err != nil {
				return fmt.Errorf("write the redo log once more: %w", err)
			}
		}
		n, err := f.wipe(ctx, end)
		if err != nil {
			return fmt.Errorf("clear the redo log after its end: %w", err)
		}
		blocks += n
	}
	if blocks > 0 {
		c.log().Warn("the redo log has blocks after its end, as a power loss leaves them; they are overwritten with zeros",
			"end", end, "blocks", blocks, "took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// redoDir is where mysqld has its redo log.
func (c Config) redoDir() string {
	dir := c.DataDir()
	for name, value := range c.Extra {
		if canonical(name) == "innodb_log_group_home_dir" {
			dir = value
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(c.DataDir(), dir)
			}
		}
	}
	return filepath.Join(dir, "#innodb_redo")
}

// redoFiles lists the redo log's files in the order of their numbers, then the spare ones; none if there is no redo log
// yet.
func (c Config) redoFiles() ([]redoFile, error) {
	entries, err := os.ReadDir(c.redoDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for redo log files: %w", err)
	}
	var files []redoFile
	for _, e := range entries {
		m := redoName.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		id, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redo log file %s: %w", e.Name(), err)
		}
		st, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("look for redo log files: %w", err)
		}
		files = append(files, redoFile{path: filepath.Join(c.redoDir(), e.Name()), id: id, size: st.Size(),
			spare: m[2] != ""})
	}
	slices.SortFunc(files, func(a, b redoFile) int {
		switch {
		case a.spare != b.spare && b.spare, a.spare == b.spare && a.id < b.id:
			return -1
		default:
			return 1
		}
	})
	return files, nil
}

// redoEnd gives the newest checkpoint's LSN and that of the first block that recovery does not read, and sets the start
// of each file that is not spare. It wraps errRedo where recovery might see it otherwise.
func redoEnd(ctx context.Context, files []redoFile) (checkpoint, end uint64, err error) {
	var log []redoFile
	var uuid uint32
	for i := range files {
		f := &files[i]
		if f.spare {
			continue
		}
		id, newest, err := f.readHeader()
		if err != nil {
			return 0, 0, err
		}
		if n := len(log); n > 0 && (f.id != log[n-1].id+1 || f.start != log[n-1].end() || id != uuid) {
			return 0, 0, fmt.Errorf("%w: %s does not continue %s", errRedo, f.path, log[n-1].path)
		}
		uuid, checkpoint = id, max(checkpoint, newest)
		log = append(log, *f)
	}
	if checkpoint == 0 {
		return 0, 0, fmt.Errorf("%w: no checkpoint", errRedo)
	}
	end, err = scanRedo(ctx, log, checkpoint)
	return checkpoint, end, err
}

// readHeader reads the file's header and gives the log's UUID and the LSN of the newest checkpoint that the file tells
// of, 0 for none.
func (f *redoFile) readHeader() (uuid uint32, checkpoint uint64, err error) {
	wrong := func(why string) (uint32, uint64, error) { return 0, 0, fmt.Errorf("%w: %s: %s", errRedo, f.path, why) }
	if f.size <= redoHeader || f.size%redoBlock != 0 {
		return wrong(fmt.Sprintf("%d bytes", f.size))
	}
	r, err := openRedo(f.path, os.O_RDONLY)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = r.Close() }()
	b := make([]byte, redoHeader)
	if _, err := r.ReadAt(b, 0); err != nil {
		return 0, 0, err
	}
	first := b[:redoBlock]
	if !redoSumOK(first) {
		return wrong("the header's checksum is wrong")
	}
	if v := binary.BigEndian.Uint32(first); v != redoFormat {
		return wrong(fmt.Sprintf("format %d", v))
	}
	if flags := binary.BigEndian.Uint32(first[48:]); flags&^redoFull != 0 {
		return wrong(fmt.Sprintf("flags %#x", flags))
	}
	if !allZero(b[2*redoBlock : 3*redoBlock]) {
		return wrong("it is encrypted")
	}
	if f.start = binary.BigEndian.Uint64(first[8:]); f.start == 0 || f.start%redoBlock != 0 {
		return wrong(fmt.Sprintf("it starts at LSN %d", f.start))
	}
	for _, at := range []int{1, 3} {
		cp := b[at*redoBlock : (at+1)*redoBlock]
		lsn := binary.BigEndian.Uint64(cp[8:])
		if !redoSumOK(cp) || lsn == 0 {
			continue // the power went while it was written, or none was yet
		}
		checkpoint = max(checkpoint, lsn)
	}
	if checkpoint != 0 && (checkpoint < f.start || checkpoint >= f.end()) {
		return wrong(fmt.Sprintf("a checkpoint at LSN %d is outside of it", checkpoint))
	}
	return binary.BigEndian.Uint32(first[4:]), checkpoint, nil
}

// scanRedo reads the log from the checkpoint on to the first block that recovery does not read, and gives that one's
// LSN.
func scanRedo(ctx context.Context, log []redoFile, checkpoint uint64) (uint64, error) {
	lsn := checkpoint / redoBlock * redoBlock
	first := lsn
	for _, f := range log {
		if lsn < f.start || lsn >= f.end() {
			continue
		}
		over := false
		err := f.blocks(ctx, redoHeader+int64(lsn-f.start), func(_ int64, b []byte) (bool, error) {
			full, ok, err := redoData(b, lsn)
			if err == nil && !ok && lsn == first {
				err = errors.New("the block of the checkpoint is not valid")
			}
			if err != nil {
				return false, fmt.Errorf("%w: %s: block at LSN %d: %w", errRedo, f.path, lsn, err)
			}
			if ok {
				lsn += redoBlock
			}
			over = !ok || !full
			return !over, nil
		})
		if err != nil || over {
			return lsn, err
		}
	}
	return lsn, nil
}

// redoData reports whether b is valid as the data block at lsn, and whether the log continues after it. It fails if
// recovery might see the block differently.
func redoData(b []byte, lsn uint64) (full, ok bool, err error) {
	number, epoch := redoNumber(lsn)
	if binary.BigEndian.Uint32(b)&^redoFirst != number {
		return false, false, nil
	}
	if !redoSumOK(b) {
		if binary.BigEndian.Uint32(b[redoSum:]) == redoNoSum {
			return false, false, errors.New("no checksum")
		}
		return false, false, nil
	}
	if e := binary.BigEndian.Uint32(b[8:]); e > epoch {
		return false, false, fmt.Errorf("epoch %d", e)
	} else if e < epoch {
		return false, false, nil
	}
	used := binary.BigEndian.Uint16(b[4:])
	if used == redoBlock {
		return true, true, nil
	}
	if used < redoMinBlock || used > redoSum {
		return false, false, fmt.Errorf("%d bytes used", used)
	}
	return false, true, nil
}

// redoNumber gives the number and the epoch of the block at lsn.
func redoNumber(lsn uint64) (number, epoch uint32) {
	n := lsn / redoBlock
	return uint32(n%redoNumbers) + 1, uint32(n/redoNumbers) + 1
}

// renew writes the header and the blocks between two LSNs once more, and fsyncs.
func (f redoFile) renew(ctx context.Context, from, end uint64) error {
	if f.spare {
		return nil
	}
	w, err := openRedo(f.path, os.O_RDWR)
	if err != nil {
		return err
	}
	from, end = max(from, f.start), min(end, f.end())
	err = rewrite(ctx, w, 0, redoHeader)
	if err == nil && from < end {
		err = rewrite(ctx, w, redoHeader+int64(from-f.start), redoHeader+int64(end-f.start))
	}
	return errors.Join(err, w.Sync(), w.Close())
}

// rewrite writes what a file shows between two offsets to the same place.
func rewrite(ctx context.Context, f *os.File, at, end int64) error {
	buf := make([]byte, redoRead)
	for at < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(redoRead, end-at)]
		if _, err := f.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// wipe overwrites the blocks that could be taken for ones at or after the LSN end, and fsyncs. In a file of the log it
// does not touch what is before end. It also leaves blocks with smaller numbers: LSNs only grow, so those blocks are
// never valid again.
func (f redoFile) wipe(ctx context.Context, end uint64) (blocks int, err error) {
	from := int64(redoHeader)
	if !f.spare && f.start < end {
		if from += int64(end - f.start); from >= f.size {
			return 0, nil
		}
	}
	number, epoch := redoNumber(end)
	w, err := openRedo(f.path, os.O_WRONLY)
	if err != nil {
		return 0, err
	}
	zeros := make([]byte, redoBlock)
	err = f.blocks(ctx, from, func(at int64, b []byte) (bool, error) {
		e, n := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b)&^redoFirst
		if e < epoch || e == epoch && n < number {
			return true, nil
		}
		blocks++
		_, err := w.WriteAt(zeros, at)
		return true, err
	})
	// Also where nothing was written: an earlier start may have been killed before its fsync.
	return blocks, errors.Join(err, w.Sync(), w.Close())
}

// openRedo opens a file of the redo log. Its folder lies in the data directory, and both are mysqld's user's.
func openRedo(path string, flag int) (*os.File, error) {
	folder := filepath.Dir(path)
	return OpenOwned(filepath.Dir(folder), filepath.Join(filepath.Base(folder), filepath.Base(path)), flag, -1)
}

// blocks calls do for each block from the offset at on, until it says false or fails. A log may have hundreds of
// gigabytes: it also ends with ctx.
func (f redoFile) blocks(ctx context.Context, at int64, do func(at int64, b []byte) (bool, error)) error {
	r, err := openRedo(f.path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	buf := make([]byte, redoRead)
	for at < f.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(redoRead, f.size-at)]
		if _, err := r.ReadAt(b, at); err != nil {
			return err
		}
		for ; len(b) >= redoBlock; b, at = b[redoBlock:], at+redoBlock {
			if more, err := do(at, b[:redoBlock]); err != nil || !more {
				return err
			}
		}
		if len(b) > 0 {
			return nil // a spare file that was not made whole
		}
	}
	return nil
}

func redoSumOK(b []byte) bool {
	return crc32.Checksum(b[:redoSum], redoCRC) == binary.BigEndian.Uint32(b[redoSum:])
}

func allZero(b []byte) bool {
	return !slices.ContainsFunc(b, func(x byte) bool { return x != 0 })
}
