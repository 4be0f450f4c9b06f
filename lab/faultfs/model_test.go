package faultfs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"trireme/lab/faultfs"
)

// modelFile says what a file may hold after a power loss: of each sector one of the contents that it has had since the
// last fsync.
type modelFile struct {
	versions [][]byte // the first is durable, the last is what programs see
}

func (m *modelFile) now() []byte { return m.versions[len(m.versions)-1] }

func (m *modelFile) change(f func([]byte) []byte) {
	m.versions = append(m.versions, f(bytes.Clone(m.now())))
}

func (m *modelFile) sync() { m.versions = m.versions[len(m.versions)-1:] }

// allows says why a content is not allowed.
func (m *modelFile) allows(got []byte) error {
	shortest, longest := len(m.now()), 0
	for _, v := range m.versions {
		shortest, longest = min(shortest, len(v)), max(longest, len(v))
	}
	if len(got) < shortest || len(got) > longest {
		return fmt.Errorf("%d bytes: it had %d to %d", len(got), shortest, longest)
	}
	for at := 0; at < len(got); at += faultfs.SectorBytes {
		end := min(at+faultfs.SectorBytes, len(got))
		if !slices.ContainsFunc(m.versions, func(v []byte) bool {
			padded := make([]byte, end-at) // what was not written is zero
			if at < len(v) {
				copy(padded, v[at:])
			}
			return bytes.Equal(padded, got[at:end])
		}) {
			return fmt.Errorf("the sector at %d holds what was never there", at)
		}
	}
	return nil
}

func resized(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size]
	}
	return append(b, make([]byte, size-len(b))...)
}

// TestModel does random things to files, cuts the power, and compares with what is allowed.
func TestModel(t *testing.T) {
	const files, size, rounds = 4, 6000, 60
	f := newFS(t, faultfs.Options{Seed: 21})
	rnd := rand.New(rand.NewPCG(4, 2))
	var models [files]*modelFile
	for i := range models {
		f.write(fmt.Sprint(i), "")
		models[i] = &modelFile{versions: [][]byte{{}}}
	}
	var loss, changed int
	for round := range rounds {
		var open [files]*os.File
		for i := range open {
			open[i] = f.open(fmt.Sprint(i), os.O_RDWR)
		}
		for range rnd.IntN(40) {
			i := rnd.IntN(files)
			f.modelStep(rnd, open[i], models[i], size)
		}
		for i, file := range open {
			if got := f.read(fmt.Sprint(i)); got != string(models[i].now()) {
				t.Fatalf("round %d: file %d is not what was written", round, i)
			}
			file.Close()
		}
		loss += f.cycle().Sectors
		for i, m := range models {
			got := []byte(f.read(fmt.Sprint(i)))
			if err := m.allows(got); err != nil {
				t.Fatalf("round %d: file %d: %v", round, i, err)
			}
			if !bytes.Equal(got, m.now()) {
				changed++
			}
			m.versions = [][]byte{got}
		}
	}
	t.Logf("%d power losses: %d of %d files changed, %d sectors lost", rounds, changed, rounds*files, loss)
	if changed == 0 || changed == rounds*files {
		t.Error("no choice was made")
	}
}

func (f testFS) modelStep(rnd *rand.Rand, file *os.File, m *modelFile, size int) {
	off, n := rnd.IntN(size), 1+rnd.IntN(2000)
	switch rnd.IntN(8) {
	case 0:
		f.ok(file.Sync())
		m.sync()
	case 1:
		f.ok(file.Truncate(int64(off)))
		m.change(func(b []byte) []byte { return resized(b, off) })
	case 2:
		f.ok(unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
		m.change(func(b []byte) []byte {
			if off < len(b) {
				clear(b[off:min(off+n, len(b))])
			}
			return b
		})
	default:
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(1 + rnd.IntN(255))
		}
		_, err := file.WriteAt(data, int64(off))
		f.ok(err)
		m.change(func(b []byte) []byte {
			b = resized(b, max(len(b), off+n))
			copy(b[off:], data)
			return b
		})
	}
}

// TestNamesModel does random things to names in two directories. Each name is what it was at some time since the last
// fsync of its directory, and a file that was only renamed is never gone.
func TestNamesModel(t *testing.T) {
	f := newFS(t, faultfs.Options{Seed: 22})
	rnd := rand.New(rand.NewPCG(4, 3))
	dirs := []string{"a", "b"}
	had := map[string][]string{} // by path: contents since the last fsync, empty for none
	for _, d := range dirs {
		f.ok(os.Mkdir(f.path(d), 0o700))
	}
	f.syncDir("")
	now := func(p string) string { h := had[p]; return h[len(h)-1] }
	set := func(p, content string) { had[p] = append(had[p], content) }
	for _, d := range dirs {
		for k := range 3 {
			had[fmt.Sprintf("%s/%d", d, k)] = []string{""}
		}
	}
	paths := slices.Sorted(func(yield func(string) bool) {
		for p := range had {
			if !yield(p) {
				return
			}
		}
	})
	id, lost := 0, 0
	for round := range 60 {
		safe := map[string]bool{} // contents that were not removed
		for _, p := range paths {
			safe[now(p)] = true
		}
		for range rnd.IntN(12) {
			p, q := paths[rnd.IntN(len(paths))], paths[rnd.IntN(len(paths))]
			switch c := now(p); {
			case rnd.IntN(5) == 0:
				d := dirs[rnd.IntN(2)]
				f.syncDir(d)
				for _, p := range paths {
					if filepath.Dir(p) == d {
						had[p] = []string{now(p)}
					}
				}
			case c == "":
				id++
				file, err := os.Create(f.path(p))
				f.ok(err)
				_, err = fmt.Fprint(file, "file ", id)
				f.ok(err)
				f.ok(file.Sync())
				f.ok(file.Close())
				set(p, fmt.Sprint("file ", id))
			case rnd.IntN(3) == 0:
				f.ok(os.Remove(f.path(p)))
				delete(safe, c)
				set(p, "")
			case p != q:
				f.ok(os.Rename(f.path(p), f.path(q)))
				delete(safe, now(q))
				set(q, c)
				set(p, "")
			}
		}
		lost += f.cycle().Names
		there := map[string]bool{}
		for _, p := range paths {
			got := f.read(p)
			there[got] = true
			if !slices.Contains(had[p], got) {
				t.Fatalf("round %d: %s holds %q; it had %q", round, p, got, had[p])
			}
			had[p] = []string{got}
		}
		for c := range safe {
			if !there[c] && c != "" {
				t.Fatalf("round %d: %q was only renamed and is gone", round, c)
			}
		}
	}
	if lost == 0 {
		t.Error("no name was lost")
	}
}
