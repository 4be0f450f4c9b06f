package raftlog_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/lab/needs"
)

// Layout of the header of an encrypted segment, as docs/format/log.md draws it.
const (
	cryptSalt, cryptHead = 80, 176
	sealedNonce          = 19 + 44 // in a record's event
)

const (
	keyOne = "one 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
	keyTwo = "two ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n"
)

func parseKeys(t testing.TB, text string) *raftlog.Keys {
	t.Helper()
	k, err := raftlog.ParseKeys([]byte(text))
	ok(t, err)
	return k
}

// withKeys gives keys to every log that the test opens from now on.
func withKeys(t testing.TB, text string) {
	t.Helper()
	before := keys
	keys = parseKeys(t, text)
	t.Cleanup(func() { keys = before })
}

// TestEncrypted: what holds for a log holds for an encrypted one.
func TestEncrypted(t *testing.T) {
	needs.NoRace(t)
	for name, test := range map[string]func(*testing.T){
		"BitRot": TestBitRot, "TornTail": TestTornTail, "DamageBelowWatermark": TestDamageBelowWatermark,
		"TornState": TestTornState, "MissingFiles": TestMissingFiles, "ForeignNewerLocked": TestForeignNewerLocked,
		"FailureIsFinal": TestFailureIsFinal, "NoSpace": TestNoSpace, "Invariants": TestInvariants,
		"EveryCrash": TestEveryCrash, "Dump": TestVerify, "FailedSyncIsNotBelievedLater": TestFailedSyncIsNotBelievedLater,
		"NamesAreDurableBeforeTheyAreUsed": TestNamesAreDurableBeforeTheyAreUsed, "Model": TestModel,
		"ReadersBesideWriter": TestReadersBesideWriter, "PowerLoss": TestPowerLoss,
	} {
		t.Run(name, func(t *testing.T) {
			withKeys(t, keyOne)
			test(t)
		})
	}
}

const encryptedGolden = "testdata/encrypted"

// TestEncryptedGolden: the format does not change by accident, and what released versions wrote stays readable. The
// random numbers are fixed here. If a new version of Go draws other numbers from the same seed, only the comparison of
// written bytes has to be updated.
func TestEncryptedGolden(t *testing.T) {
	withKeys(t, keyOne)
	cryptotest.SetGlobalRandom(t, 1)
	fsys := memfs.New()
	goldenLog(t, fsys)
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	written := map[string][]byte{listing: []byte(describe(t, fsys))}
	for _, n := range names {
		written[n], err = fsys.ReadFile(filepath.Join(dir, n))
		ok(t, err)
	}
	disk := memfs.New()
	for name, got := range written {
		golden := sameAsGolden(t, filepath.Join(encryptedGolden, newest, name), got)
		if name != listing {
			disk.WriteFile(filepath.Join(dir, name), golden)
		}
	}
	list, err := os.ReadFile(filepath.Join(encryptedGolden, newest, listing))
	ok(t, err)
	if got := describe(t, disk); got != string(list) {
		t.Errorf("got\n%s\nwant\n%s", got, list)
	}
	// It holds what the log holds that is not encrypted.
	clear, err := os.ReadFile(filepath.Join(goldenDir, newest, listing))
	ok(t, err)
	if !bytes.Equal(clear, list) {
		t.Errorf("it holds\n%s\nand not\n%s", list, clear)
	}
}

// smallLog is a closed log of three entries, and what they are.
func smallLog(t testing.TB) (*memfs.FS, []*raftpb.Entry) {
	t.Helper()
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 2, 0)
	w := newWriter()
	all := []*raftpb.Entry{w.barrier(), w.trx(20, 0), w.trx(40, 0)}
	ok(t, l.Append(all))
	ok(t, l.Close())
	return fsys, all
}

// TestEncryptedBitRot turns over a bit of every byte of a closed segment: each is noticed, and the file is not touched.
func TestEncryptedBitRot(t *testing.T) {
	withKeys(t, keyOne)
	fsys, all := smallLog(t)
	path := files(t, fsys, ".log")[0]
	b, err := fsys.ReadFile(path)
	ok(t, err)
	for at := range int64(len(b)) {
		bit := at*8 + at%8
		ok(t, fsys.Flip(path, bit))
		rotten(t, fsys, all, ".log", path, bit)
		got, err := fsys.ReadFile(path)
		ok(t, err)
		if got[at] == b[at] || len(got) != len(b) {
			t.Fatalf("byte %d: the file was changed", at)
		}
		fsys.WriteFile(path, b)
	}
}

// TestEncryptedTornTail ends the file at every byte after the last sync, with what a disk may leave there: synced data
// is there, the rest is whole or gone, and the log can be used.
func TestEncryptedTornTail(t *testing.T) {
	withKeys(t, keyOne)
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	w := newWriter()
	all := fill(t, l, w, 3, true)
	before := recordsEnd(t, fsys)
	e := w.trx(30, 0)
	ok(t, l.Append([]*raftpb.Entry{e}))
	after := recordsEnd(t, fsys)
	path := files(t, fsys, ".log")[0]
	image, err := fsys.ReadFile(path)
	ok(t, err)
	state, err := fsys.ReadFile(dir + "/state")
	ok(t, err)
	for cut := before; cut <= after; cut++ {
		for kind, fill := range map[string][]byte{"short": nil, "zeros": make([]byte, after-cut),
			"garbage": bytes.Repeat([]byte{0xa5}, int(after-cut))} {
			disk := memfs.New()
			left := append(bytes.Clone(image[:cut]), fill...)
			disk.WriteFile(path, left)
			disk.WriteFile(dir+"/state", state)
			l := open(t, disk)
			last, _ := l.LastIndex()
			if whole := bytes.Equal(left, image[:after]); last != 3 && !whole || whole && last != 4 {
				t.Fatalf("cut at %d of %d to %d, %s: last index %d", cut, before, after, kind, last)
			}
			ok(t, l.Append([]*raftpb.Entry{e}))
			ok(t, l.Close())
			l = open(t, disk)
			ok(t, same(t, l, append(all[:3:3], e)))
			ok(t, l.Close())
		}
	}
}

// TestTamperedRecord: who knows the CRCs but not the key cannot change a record, nor put one of the same segment in the
// place of another.
func TestTamperedRecord(t *testing.T) {
	withKeys(t, keyOne)
	fsys, _ := smallLog(t)
	path := files(t, fsys, ".log")[0]
	b, err := fsys.ReadFile(path)
	ok(t, err)
	var last raftlog.EntryInfo
	ok(t, raftlog.Walk(fsys, dir, keys, func(e *raftlog.EntryInfo) error { last = *e; return nil }))
	var prev uint32
	ok(t, raftlog.Walk(fsys, dir, keys, func(e *raftlog.EntryInfo) error {
		if e.Index == last.Index-1 {
			prev = e.CRC
		}
		return nil
	}))
	for name, at := range map[string]int64{"term": 19 + 16, "watermark": 19 + 24, "nonce": sealedNonce,
		"length of the meta": sealedNonce + 12, "data": int64(last.Bytes) - 20} {
		rec := bytes.Clone(b[last.Offset:])
		rec[at] ^= 1
		size := binary.LittleEndian.Uint32(rec[9:])
		castagnoli := crc32.MakeTable(crc32.Castagnoli)
		chain := crc32.Update(crc32.Update(prev, castagnoli, rec[19:size-8]), castagnoli, rec[size:])
		binary.LittleEndian.PutUint32(rec[size-8:], chain)
		binlog.PutChecksum(rec[:size])
		fsys.WriteFile(path, append(bytes.Clone(b[:last.Offset]), rec...))
		_, err := raftlog.Open(options(fsys))
		want(t, err, raftlog.ErrCorrupt)
		if name == "data" && !strings.Contains(err.Error(), "seal") {
			t.Error(err)
		}
	}
}

// picture takes one of all files.
func picture(t testing.TB, fsys *memfs.FS) string {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	var b strings.Builder
	for _, n := range names {
		if data, err := fsys.ReadFile(filepath.Join(dir, n)); err == nil {
			fmt.Fprintf(&b, "%s %x\n", n, sha256.Sum256(data))
		}
	}
	return b.String()
}

// TestKeys: a key that is missing or another one is told by its id, and nothing is touched.
func TestKeys(t *testing.T) {
	withKeys(t, keyOne)
	fsys, all := smallLog(t)
	path := files(t, fsys, ".log")[0]
	b, err := fsys.ReadFile(path)
	ok(t, err)
	fsys.WriteFile(path, append(b, "torn"...)) // so that there is something to cut
	before := picture(t, fsys)
	for name, wrong := range map[string]*raftlog.Keys{
		"none": nil, "another": parseKeys(t, keyTwo),
		"another of that id": parseKeys(t, strings.Replace(keyTwo, "two", "one", 1)),
	} {
		o := options(fsys)
		o.Keys = wrong
		_, err := raftlog.Open(o)
		want(t, err, raftlog.ErrKey)
		if errors.Is(err, raftlog.ErrCorrupt) || !strings.Contains(err.Error(), `"one"`) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = raftlog.Verify(fsys, dir, wrong)
		want(t, err, raftlog.ErrKey)
		if got := picture(t, fsys); got != before {
			t.Errorf("%s: the disk held\n%s and holds\n%s", name, before, got)
		}
	}
	withKeys(t, keyOne+keyTwo)
	l := open(t, fsys)
	ok(t, same(t, l, all))
	ok(t, l.Close())
}

// TestKeysAtReset: a log that was left in a reset to a snapshot does not go on with it without the key.
func TestKeysAtReset(t *testing.T) {
	withKeys(t, keyOne)
	fsys, _ := smallLog(t)
	l := open(t, fsys)
	setState(t, l, 1, 2, 3)
	ok(t, l.SetConfState(&raftpb.ConfState{Voters: []uint64{1}}, 3))
	snap, err := l.Snapshot()
	ok(t, err)
	fsys.Hook = func(op memfs.Op, _ string) error {
		if op == memfs.OpRemove {
			return memfs.ErrInjected
		}
		return nil
	}
	want(t, l.ResetTo(snap), raftlog.ErrFailed)
	_ = l.Close()
	fsys.Hook = nil
	before := picture(t, fsys)
	o := options(fsys)
	o.Keys = nil
	_, err = raftlog.Open(o)
	want(t, err, raftlog.ErrKey)
	if got := picture(t, fsys); got != before {
		t.Errorf("the disk held\n%s and holds\n%s", before, got)
	}
	l = open(t, fsys)
	if first, _ := l.FirstIndex(); first != 4 {
		t.Errorf("first index %d", first)
	}
	ok(t, l.Close())
}

// segmentKeys are the ids of the keys of all segments, in their order.
func segmentKeys(t testing.TB, fsys raftlog.FS) string {
	t.Helper()
	rep, err := raftlog.Verify(fsys, dir, keys)
	ok(t, err)
	var ids []string
	for _, s := range rep.Segments {
		ids = append(ids, fmt.Sprintf("%q", s.Key))
	}
	return strings.Join(ids, " ")
}

// TestKeyChange: an existing log is encrypted from the next entry on. The same holds for a change to another key, or to
// no key; earlier entries stay readable.
func TestKeyChange(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	w := newWriter()
	all := []*raftpb.Entry{w.barrier(), w.trx(10, raftlog.FlagUnfinished)}
	ok(t, l.Append(all))
	add := func(flags raftlog.Flags, want string) {
		t.Helper()
		e := w.trx(10, flags)
		all = append(all, e)
		ok(t, l.Append([]*raftpb.Entry{e}))
		ok(t, same(t, l, all))
		ok(t, l.Sync())
		if got := segmentKeys(t, fsys); got != want {
			t.Fatalf("keys of segments: %s, want %s", got, want)
		}
	}
	reopen := func(text string) {
		t.Helper()
		ok(t, l.Close())
		withKeys(t, text)
		l = open(t, fsys)
		ok(t, same(t, l, all))
	}
	reopen(keyOne)
	add(raftlog.FlagContinues, `""`) // a transaction stays in its segment
	add(0, `"" "one"`)
	withKeys(t, keyOne+keyTwo)
	ok(t, l.SetKeys(keys))
	add(0, `"" "one" "two"`)
	want(t, l.SetKeys(parseKeys(t, keyTwo)), raftlog.ErrKey)
	want(t, l.SetKeys(parseKeys(t, keyTwo+strings.Replace(keyOne, "00", "99", 1))), raftlog.ErrKey)
	want(t, l.SetKeys(nil), raftlog.ErrKey)
	add(0, `"" "one" "two"`)
	reopen(keyTwo + keyOne)
	add(0, `"" "one" "two" "one"`)
	reopen(keyTwo + keyOne + "off\n")
	add(0, `"" "one" "two" "one" ""`)
	ok(t, l.Close())
	withKeys(t, keyTwo)
	_, err := raftlog.Open(options(fsys))
	want(t, err, raftlog.ErrKey)
}

// TestKeyChangeWithoutEntries: a segment that holds no entry is replaced, so that the first one is encrypted too;
// whenever that is interrupted, there is a log.
func TestKeyChangeWithoutEntries(t *testing.T) {
	crashes := 0
	for n := 1; ; n++ {
		fsys := memfs.New()
		ok(t, open(t, fsys).Close())
		withKeys(t, keyOne)
		l := open(t, fsys)
		setState(t, l, 1, 1, 0)
		count := 0
		fsys.Hook = func(memfs.Op, string) error {
			if count++; count == n {
				return memfs.ErrInjected
			}
			return nil
		}
		all := []*raftpb.Entry{newWriter().barrier()}
		err := errors.Join(l.Append(all), l.Sync())
		fsys.Hook = nil
		if err == nil {
			ok(t, same(t, l, all))
			if got := segmentKeys(t, fsys); got != `"one"` {
				t.Fatal(got)
			}
			ok(t, l.Close())
			break
		}
		crashes++
		fsys.Crash(nil)
		l = open(t, fsys)
		ok(t, l.Append(all))
		ok(t, l.Close())
		if got := segmentKeys(t, fsys); got != `"one"` {
			t.Fatal(got)
		}
		keys = nil
	}
	if crashes < 5 {
		t.Errorf("%d crash points", crashes)
	}
}

// recorded is a file system that notes what a log seals, whether it stays there or not.
type recorded struct {
	raftlog.FS
	t     *testing.T
	seen  map[string][]byte // salt of the segment and nonce: what was sealed with them
	count *int
}

func (r recorded) Open(name string) (raftlog.File, error) { return r.wrap(r.FS.Open(name)) }

func (r recorded) wrap(f raftlog.File, err error) (raftlog.File, error) {
	if err != nil {
		return nil, err
	}
	return recordedFile{f, r}, nil
}

type recordedFile struct {
	raftlog.File
	r recorded
}

func (f recordedFile) Writev(bufs [][]byte, off int64) error {
	b := bytes.Join(bufs, nil)
	salt := make([]byte, 32)
	if _, err := f.ReadAt(salt, cryptSalt); err != nil && err != io.EOF {
		f.r.t.Error(err)
	}
	for len(b) > sealedNonce+12 && b[19+5] == 4 {
		n := binary.LittleEndian.Uint32(b[9:]) + binary.LittleEndian.Uint32(b[19+36:])
		key := string(salt) + string(b[sealedNonce:sealedNonce+12])
		if f.r.seen[key] != nil {
			f.r.t.Errorf("a nonce is used twice: %x", key[32:])
		}
		f.r.seen[key] = bytes.Clone(b[:n])
		*f.r.count++
		b = b[n:]
	}
	return f.File.Writev(bufs, off)
}

// TestNonces: no nonce is used twice with a segment's key: not after a tail was replaced, not after a crash and a cut,
// not by the next life.
func TestNonces(t *testing.T) {
	withKeys(t, keyOne)
	count := 0
	disk := memfs.New()
	fsys := recorded{disk, t, map[string][]byte{}, &count}
	var commit, term uint64
	for life := range 40 {
		l := open(t, fsys)
		term++
		setState(t, l, term, 1, commit)
		last, _ := l.LastIndex()
		if life%3 == 1 && last > commit { // a leader that does not have the end of it
			last -= min(last-commit, 3)
		}
		w := &writer{inc: term, term: term, index: last}
		for range 5 {
			ok(t, l.Append([]*raftpb.Entry{w.trx(10, 0), w.trx(20, 0)}))
		}
		if life%2 == 0 {
			ok(t, l.Sync())
		}
		if life%8 == 7 {
			commit = l.DurableIndex()
		}
		disk.Crash(nil)
	}
	if count < 400 {
		t.Errorf("%d records were sealed", count)
	}
}

// TestNothingInTheClear: no file of the log holds a piece of a row, of a statement or of a server's UUID.
func TestNothingInTheClear(t *testing.T) {
	const enough = 8 // bytes of what writer fills an entry's events with, which is its index
	uuid := gtid.IncarnationUUID(5, 1, 1)
	run := func(text string) (found []string) {
		if text != "" {
			withKeys(t, text)
		}
		fsys := memfs.New()
		l := open(t, fsys)
		setState(t, l, 1, 1, 0)
		w := newWriter()
		all := fill(t, l, w, 40, true)
		ok(t, same(t, l, all))
		for _, closed := range []bool{false, true} {
			if closed {
				ok(t, l.Close())
			}
			for _, path := range files(t, fsys, "") {
				b, err := fsys.ReadFile(path)
				if err != nil {
					continue
				}
				for i := range byte(41) {
					if i > 1 && bytes.Contains(b, bytes.Repeat([]byte{i}, enough)) || bytes.Contains(b, []byte("9.7.4")) ||
						bytes.Contains(b, uuid[:]) {
						found = append(found, path)
						break
					}
				}
			}
		}
		return found
	}
	if run("") == nil {
		t.Error("it is not even seen in a log that is not encrypted")
	}
	if found := run(keyOne); found != nil {
		t.Errorf("rows in the clear: %v", found)
	}
}

// TestKeyText: what a key file may hold. No error and no way of printing shows a key.
func TestKeyText(t *testing.T) {
	secret := strings.Fields(keyOne)[1]
	for text, current := range map[string]string{
		keyOne: "one", keyOne + keyTwo: "two", "# now\n\n  " + keyTwo + keyOne + "\n": "one", keyOne + "off": "", keyOne +
			"off\n" + keyTwo: "two",
	} {
		k := parseKeys(t, text)
		if k.CurrentID() != current {
			t.Errorf("%q: current key %q", text, k.CurrentID())
		}
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			raw, _ := hex.DecodeString(secret)
			for _, out := range []string{fmt.Sprintf(format, k), fmt.Sprintf(format, options(nil)),
				fmt.Sprintf(format, raftlog.Options{Keys: k})} {
				if strings.Contains(out, secret[:8]) || strings.Contains(out, fmt.Sprint(raw[:4])[1:9]) {
					t.Errorf("%s shows the key: %s", format, out)
				}
			}
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "only off": "off\n", "no id": secret, "three words": "a " + secret + " b", "short": "a " + secret[2:],
		"long": "a " + secret + "00", "no hex": "a " + "x" + secret[1:], "twice": keyOne + keyOne, "id": "a/b " + secret,
		"long id": strings.Repeat("a", 65) + " " + secret, "large": strings.Repeat(" ", 64<<10) + keyOne,
	} {
		_, err := raftlog.ParseKeys([]byte(text))
		want(t, err, raftlog.ErrKey)
		if strings.Contains(err.Error(), secret[4:20]) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

// TestLoadKeys: from a file that only this user can read, or from a command.
func TestLoadKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	ok(t, os.WriteFile(file, []byte(keyOne), 0o600))
	load := func(file string, command ...string) (*raftlog.Keys, error) {
		return raftlog.LoadKeys(t.Context(), file, command)
	}
	for _, l := range []struct {
		file    string
		command []string
	}{{file: file}, {command: []string{"cat", file}}} {
		k, err := load(l.file, l.command...)
		ok(t, err)
		if k.CurrentID() != "one" {
			t.Errorf("%v", k)
		}
	}
	if k, err := load(""); k != nil || err != nil {
		t.Errorf("without any: %v, %v", k, err)
	}
	ok(t, os.Chmod(file, 0o640))
	for name, l := range map[string]struct {
		file    string
		command []string
		text    string
	}{
		"readable by the group": {file: file, text: "chmod 600"}, "missing": {file: file + "x", text: "no such file"},
		"command that fails": {command: []string{"sh", "-c", "echo access denied >&2; exit 3"},
			text: "exit status 3: access denied"},
		"no command":                   {command: []string{"/nonexistent/kms"}, text: "/nonexistent/kms"},
		"command that prints nothing":  {command: []string{"true"}, text: "no key"},
		"command that prints too much": {command: []string{"head", "-c", "1000000", "/dev/zero"}, text: "more than"},
	} {
		_, err := load(l.file, l.command...)
		want(t, err, raftlog.ErrKey)
		if !strings.Contains(err.Error(), l.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOpenEncrypted opens a log whose segment is arbitrary bytes, either alone or after the header of an encrypted one.
func FuzzOpenEncrypted(f *testing.F) {
	withKeys(f, keyOne)
	fsys, _ := smallLog(f)
	path := files(f, fsys, ".log")[0]
	state, err := fsys.ReadFile(dir + "/state")
	ok(f, err)
	segment, err := fsys.ReadFile(path)
	ok(f, err)
	for _, n := range []int{0, 3, 4, cryptHead - 1, cryptHead, cryptHead + 9, len(segment) - 1, len(segment)} {
		f.Add(segment[:n], false)
		f.Add(segment[:n], true)
	}
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if b = bytes.Clone(b); fix && len(b) >= cryptHead { // bytes after the checksum are checked too
			binary.LittleEndian.PutUint32(b[cryptHead-4:], crc(b[:cryptHead-4]))
		}
		disk := memfs.New()
		disk.WriteFile(dir+"/state", state)
		disk.WriteFile(path, b)
		l, err := raftlog.Open(options(disk))
		if err == nil {
			err = l.Close()
		}
		for _, e := range []error{nil, raftlog.ErrCorrupt, raftlog.ErrNewer, raftlog.ErrForeign, raftlog.ErrKey} {
			if errors.Is(err, e) {
				return
			}
		}
		t.Fatal(err)
	})
}

// FuzzKeys: any text is keys or ErrKey.
func FuzzKeys(f *testing.F) {
	f.Add(keyOne + keyTwo + "off")
	f.Add("# a\n a b")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := raftlog.ParseKeys([]byte(text))
		if err != nil {
			want(t, err, raftlog.ErrKey)
			return
		}
		if id := k.CurrentID(); id != "" && !strings.Contains(text, id) {
			t.Fatalf("%q gives %v", text, k)
		}
	})
}
