package backup

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"trireme/internal/base/durable"
)

// Key encrypts the objects of a backup; docs/format/backup.md describes how. The zero value does not encrypt.
type Key struct {
	secret []byte
}

const (
	keyBytes  = 32
	keyPrefix = "trireme-backup-key-1 "
	// An encrypted object: magic, salt, and then chunks, each followed by a tag.
	cryptMagic = "TRIC1\n"
	saltBytes  = 32
	chunkBytes = 64 << 10
	tagBytes   = 16
)

// NewKeyFile makes a key, in a file of mode 0600 that must not be there.
func NewKeyFile(path string) error {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails: crypto/rand crashes the program instead
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("backup: make a key: %w", err)
	}
	_, err = f.WriteString(keyPrefix + hex.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("backup: make a key: %w", err), os.Remove(path))
	}
	return nil
}

// ReadKeyFile reads a key. The error is ErrKey if the file holds no key, or if others can read it.
func ReadKeyFile(path string) (Key, error) {
	text, err := durable.ReadPrivate(path, 1<<10)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	digits, ours := strings.CutPrefix(strings.TrimSpace(string(text)), keyPrefix)
	secret, err := hex.DecodeString(digits)
	if !ours || err != nil || len(secret) != keyBytes {
		return Key{}, fmt.Errorf("%w: %s is not what `trireme backup new-key` writes", ErrKey, path)
	}
	return Key{secret}, nil
}

// id tells keys apart, and nothing else of them; empty: none.
func (k Key) id() string {
	if k.secret == nil {
		return ""
	}
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte("trireme backup key id"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// seals reports whether an object is encrypted: all are but the one that says by which key.
func (k Key) seals(name string) bool { return k.secret != nil && name != identityName }

// object is the cipher of one object. Each has a key of its own, by its salt and its name: so none can be taken for
// another.
func (k Key) object(name string, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, k.secret, salt, "trireme backup object "+name, keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce of a chunk: its number, and whether it is the last one, without which an object would end wherever it was cut.
func nonce(n uint64, last bool) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 3, 12), n)
	if last {
		return append(b, 1)
	}
	return append(b, 0)
}

// sealWriter encrypts. close writes the last chunk.
type sealWriter struct {
	w    io.Writer
	aead cipher.AEAD
	n    uint64
	buf  []byte
}

func (k Key) writer(name string, w io.Writer) (*sealWriter, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt)
	aead, err := k.object(name, salt)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(append([]byte(cryptMagic), salt...)); err != nil {
		return nil, err
	}
	return &sealWriter{w: w, aead: aead, buf: make([]byte, 0, chunkBytes+tagBytes)}, nil
}

func (s *sealWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if len(s.buf) == chunkBytes { // more follows: it is not the last
			if err := s.flush(false); err != nil {
				return done, err
			}
		}
		n := min(chunkBytes-len(s.buf), len(p)-done)
		s.buf = append(s.buf, p[done:done+n]...)
		done += n
	}
	return done, nil
}

func (s *sealWriter) flush(last bool) error {
	out := s.aead.Seal(s.buf[:0], nonce(s.n, last), s.buf, nil)
	s.n++
	_, err := s.w.Write(out)
	s.buf = s.buf[:0]
	return err
}

func (s *sealWriter) close() error { return s.flush(true) }

// sealReader decrypts; nothing is given that was not checked.
type sealReader struct {
	name string
	r    *bufio.Reader
	f    io.Closer
	aead cipher.AEAD
	n    uint64
	buf  []byte
	left []byte // of buf, decrypted
	done bool
}

// reader takes f over. The error is ErrCorrupt for what is not encrypted at all.
func (k Key) reader(name string, f io.ReadCloser) (*sealReader, error) {
	r := bufio.NewReaderSize(f, chunkBytes+tagBytes+1)
	head := make([]byte, len(cryptMagic)+saltBytes)
	_, err := io.ReadFull(r, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err == nil &&
		string(head[:len(cryptMagic)]) != cryptMagic {
		return nil, fmt.Errorf("%w: %s is not encrypted", ErrCorrupt, name)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: read %s: %w", name, err)
	}
	aead, err := k.object(name, head[len(cryptMagic):])
	return &sealReader{name: name, r: r, f: f, aead: aead, buf: make([]byte, chunkBytes+tagBytes)}, err
}

func (s *sealReader) Read(p []byte) (int, error) {
	if len(s.left) == 0 && !s.done {
		if err := s.chunk(); err != nil {
			return 0, err
		}
	}
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *sealReader) chunk() error {
	n, err := io.ReadFull(s.r, s.buf)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		s.done = true
	case err != nil:
		return fmt.Errorf("backup: read %s: %w", s.name, err)
	default:
		_, err := s.r.Peek(1)
		if s.done = errors.Is(err, io.EOF); err != nil && !s.done {
			return fmt.Errorf("backup: read %s: %w", s.name, err)
		}
	}
	plain, err := s.aead.Open(s.buf[:0], nonce(s.n, s.done), s.buf[:n], nil)
	if err != nil {
		return fmt.Errorf("%w: %s does not decrypt from byte %d on", ErrCorrupt, s.name, s.n*chunkBytes)
	}
	s.left, s.n = plain, s.n+1
	return nil
}

func (s *sealReader) Close() error { return s.f.Close() }

// sealing encrypts the objects of a place, if it has a key.
type sealing struct{ key Key }

// Encrypt implements Place.
func (s *sealing) Encrypt(k Key) { s.key = k }

// write writes an object, encrypted if there is a key.
func (s *sealing) write(name string, w io.Writer, fill func(io.Writer) error) error {
	if !s.key.seals(name) {
		return fill(w)
	}
	sw, err := s.key.writer(name, w)
	if err == nil {
		err = fill(sw)
	}
	if err == nil {
		err = sw.close()
	}
	return err
}

// read takes f over, and decrypts it if it is encrypted.
func (s *sealing) read(name string, f io.ReadCloser) (io.ReadCloser, error) {
	if !s.key.seals(name) {
		return f, nil
	}
	r, err := s.key.reader(name, f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

// keyed is a store that may be encrypted.
type keyed interface {
	// fits is ErrKey when the store's key is not the one that an identity names.
	fits(*identity) error
	keyID() string
}

func (s *sealing) keyID() string { return s.key.id() }

func (s *sealing) fits(have *identity) error {
	switch mine := s.key.id(); {
	case have.Key == mine:
		return nil
	case mine == "":
		return fmt.Errorf("%w: this backup is encrypted: give its key with --key-file", ErrKey)
	case have.Key == "":
		return fmt.Errorf("%w: this backup is not encrypted: leave --key-file out, or begin an encrypted one where none is",
			ErrKey)
	}
	return fmt.Errorf("%w: this backup is encrypted with another key", ErrKey)
}

// fitsKey checks the key of a store that may be encrypted.
func fitsKey(s Store, have *identity) error {
	if k, ok := s.(keyed); ok {
		return k.fits(have)
	}
	return nil
}
