package backup

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/heap"
)

// newKey makes a key by way of its file.
func newKey(t *testing.T) Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	check(t, NewKeyFile(path))
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("a key file of mode %v, %v", st.Mode(), err)
	}
	if err := NewKeyFile(path); err == nil {
		t.Fatal("a key was written over")
	}
	k, err := ReadKeyFile(path)
	check(t, err)
	return k
}

// TestEncrypted: an encrypted backup is archived, merged, read and verified as any other; without its key, or with
// another one, nothing is read or written.
func TestEncrypted(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	to.Encrypt(newKey(t))
	s.some(10)
	s.archive(to)
	s.some(10)
	s.archive(to)
	s.same(to, s.last())
	b := testBase(t, s, to, 5, 5)
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	if len(v.Problems) > 0 || v.Restorable[b.Name].To != s.last() {
		t.Errorf("%+v", v)
	}
	names, err := to.List("")
	check(t, err)
	objects := 0
	for _, name := range names {
		text, err := os.ReadFile(to.path(name))
		check(t, err)
		if name == identityName || name == readersName {
			continue
		}
		objects++
		if !bytes.HasPrefix(text, []byte(cryptMagic)) || bytes.Contains(text, []byte("shop")) ||
			bytes.Contains(text, []byte("sha256")) {
			t.Errorf("%s is not encrypted", name)
		}
	}
	if objects < 6 {
		t.Fatalf("%d objects", objects)
	}
	files := func() string {
		all, err := filepath.Glob(to.root + "/*/*")
		check(t, err)
		return strings.Join(all, " ")
	}
	before := files()
	for what, key := range map[string]Key{"none": {}, "another": newKey(t)} {
		d, err := OpenDir(to.root)
		check(t, err)
		d.Encrypt(key)
		_, errRead := Read(d)
		_, errVerify := Verify(t.Context(), d, nil)
		_, errPrune := Prune(t.Context(), d, Retention{Copies: 1}, began, false)
		for doing, err := range map[string]error{"claim": claim(d, testID), "read": errRead, "verify": errVerify,
			"prune": errPrune} {
			if !errors.Is(err, ErrKey) || errors.Is(err, ErrCorrupt) {
				t.Errorf("%s with the key %s: %v", doing, what, err)
			}
		}
	}
	if after := files(); after != before {
		t.Errorf("it was written to: %s, then %s", before, after)
	}
	nothing := newDir(t)
	_, errVerify := Verify(t.Context(), nothing, nil)
	_, errPrune := Prune(t.Context(), nothing, Retention{Copies: 1}, began, false)
	_, errRestore := Restore(t.Context(), RestoreOptions{From: nothing})
	for doing, err := range map[string]error{"verify": errVerify, "prune": errPrune, "restore": errRestore} {
		if left, lerr := os.ReadDir(nothing.root); !errors.Is(err, ErrNone) || lerr != nil || len(left) > 0 {
			t.Errorf("%s of no backup: %v, and it left %v", doing, err, left)
		}
	}
	plain := newDir(t)
	check(t, claim(plain, testID))
	plain.Encrypt(newKey(t))
	if err := claim(plain, testID); !errors.Is(err, ErrKey) {
		t.Errorf("a key for what is not encrypted: %v", err)
	}
}

// TestSealed: whatever is done to an encrypted object is noticed: each byte changed, each end cut off, chunks
// exchanged, another object in its place.
func TestSealed(t *testing.T) {
	d := newDir(t)
	d.Encrypt(newKey(t))
	check(t, claim(d, testID))
	read := func(name string) ([]byte, error) {
		f, err := d.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(f)
	}
	for _, n := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, 3*chunkBytes + 7} {
		text := bytes.Repeat([]byte("abcdefg"), n/7+1)[:n]
		check(t, d.Put("x", func(w io.Writer) error {
			for part := text; len(part) > 0; part = part[min(len(part), 50_000):] {
				if _, err := w.Write(part[:min(len(part), 50_000)]); err != nil {
					return err
				}
			}
			return nil
		}))
		if got, err := read("x"); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%d bytes: %d came back, %v", n, len(got), err)
		}
		good, err := os.ReadFile(d.path("x"))
		check(t, err)
		bad := func(what string, data []byte) {
			t.Helper()
			check(t, os.WriteFile(d.path("x"), data, 0o600))
			if got, err := read("x"); !errors.Is(err, ErrCorrupt) || len(got) == n && n > 0 {
				t.Errorf("%d bytes, %s: %d came back, %v", n, what, len(got), err)
			}
		}
		step := max(1, len(good)/50)
		for i := 0; i < len(good); i += step {
			changed := bytes.Clone(good)
			changed[i] ^= 4
			bad("a byte changed", changed)
			bad("cut", good[:i])
		}
		bad("a byte more", append(bytes.Clone(good), 0))
		head, chunk := len(cryptMagic)+saltBytes, chunkBytes+tagBytes
		if n == 3*chunkBytes {
			bad("cut after a chunk", good[:head+chunk])
			bad("exchanged", bytes.Join([][]byte{good[:head], good[head+chunk : head+2*chunk], good[head : head+chunk],
				good[head+2*chunk:]}, nil))
		}
		check(t, os.WriteFile(d.path("y"), good, 0o600))
		if _, err := read("y"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("under another name: %v", err)
		}
	}
}

// TestKeyFiles: a file that holds no key, or that others can read, is refused.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	good := keyPrefix + strings.Repeat("ab", keyBytes) + "\n"
	for text, mode := range map[string]os.FileMode{good: 0o640, good + " ": 0o604, "": 0o600, "secret\n": 0o600,
		good[:40]: 0o600, good[2:]: 0o600} {
		path := filepath.Join(dir, "key")
		check(t, os.WriteFile(path, []byte(text), 0o600))
		check(t, os.Chmod(path, mode))
		if _, err := ReadKeyFile(path); !errors.Is(err, ErrKey) {
			t.Errorf("%q of mode %o: %v", text, mode, err)
		}
	}
	if _, err := ReadKeyFile(filepath.Join(dir, "none")); !errors.Is(err, ErrKey) {
		t.Errorf("no file: %v", err)
	}
}

// The object and the id of a key of 32 bytes 0xab, with the salt 0, 1, … 31, as another program makes them from
// docs/format/backup.md (Python's cryptography).
const (
	goldenSealed = "54524943310a000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f6bf4f1c0b65141e2293620a500396cd81a7e7d3d8c805d9625aa2ce4af621c121c"
	goldenKeyID  = "41f6a424463b5341d89213e66d41f420"
)

// TestGoldenSealed: the format is the one that is documented.
func TestGoldenSealed(t *testing.T) {
	k := Key{bytes.Repeat([]byte{0xab}, keyBytes)}
	if id := k.id(); id != goldenKeyID {
		t.Errorf("the key's id is %s", id)
	}
	object, err := hex.DecodeString(goldenSealed)
	check(t, err)
	r, err := k.reader(reachedName, io.NopCloser(bytes.NewReader(object)))
	check(t, err)
	if text, err := io.ReadAll(r); err != nil || string(text) != "it is the moment\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// FuzzSealed: any bytes are an object that was encrypted with the key, or damage.
func FuzzSealed(f *testing.F) {
	k := Key{bytes.Repeat([]byte{0xab}, keyBytes)}
	object, err := hex.DecodeString(goldenSealed)
	check(f, err)
	f.Add(object)
	f.Add(object[:len(object)-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		heap.Within(t, 8<<20, func() {
			r, err := k.reader(reachedName, io.NopCloser(bytes.NewReader(data)))
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			if err == nil != bytes.Equal(data, object) || err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d bytes: %v", len(data), err)
			}
		})
	})
}
