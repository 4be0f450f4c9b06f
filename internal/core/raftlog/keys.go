package raftlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"trireme/internal/base/durable"
)

// Keys are the master keys under which the keys of segments are sealed; docs/format/log.md says how. New segments take
// the last one. nil: new segments are not encrypted. Printed, it shows the ids only.
type Keys struct {
	list []masterKey
	off  bool // they are for reading
}

type masterKey struct {
	id     string
	secret [keyBytes]byte
}

const (
	keyBytes   = 32
	maxKeyID   = 64
	maxKeyText = 64 << 10
	// keyCommandLimit is how long a command may take to print the keys.
	keyCommandLimit = 30 * time.Second
)

// ErrKey: the keys given are not valid keys, or not those that a segment was written with. Nothing was changed.
var ErrKey = errors.New("raftlog: encryption key")

// ParseKeys reads lines of an id (letters, digits, and ._:-, at most 64) and a key (64 hex digits), in the order in
// which they came into use. A line "off" after the last key says that new segments are not encrypted any more. Empty
// lines and those that begin with # are skipped. The error is ErrKey; it never quotes the text.
func ParseKeys(text []byte) (*Keys, error) {
	if len(text) > maxKeyText {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrKey, maxKeyText)
	}
	k := &Keys{}
	for i, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if k.off = len(f) == 1 && f[0] == "off"; k.off {
			continue
		}
		if len(f) != 2 || !validKeyID(f[0]) || len(f[1]) != 2*keyBytes {
			return nil, fmt.Errorf("%w: line %d is not an id and a key of %d hex digits, as `trireme log new-key` writes them",
				ErrKey, i+1, 2*keyBytes)
		}
		m := masterKey{id: f[0]}
		if _, err := hex.Decode(m.secret[:], []byte(f[1])); err != nil {
			return nil, fmt.Errorf("%w: line %d: the key is not %d hex digits", ErrKey, i+1, 2*keyBytes)
		}
		if k.find(m.id) != nil {
			return nil, fmt.Errorf("%w: line %d: a second key %q", ErrKey, i+1, m.id)
		}
		k.list = append(k.list, m)
	}
	if len(k.list) == 0 {
		return nil, fmt.Errorf("%w: there is no key in it; `trireme log new-key` makes one", ErrKey)
	}
	return k, nil
}

func validKeyID(id string) bool {
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("._:-", rune(c)) {
			return false
		}
	}
	return id != "" && len(id) <= maxKeyID
}

// LoadKeys reads the keys from a file that only this user can read, or from the output of a command. At most one of
// both may be given; without either there are no keys. The error is ErrKey.
func LoadKeys(ctx context.Context, file string, command []string) (*Keys, error) {
	var text []byte
	var err error
	from := file
	switch {
	case file != "":
		text, err = ReadKeyFile(file)
	case len(command) > 0:
		from = command[0]
		text, err = runKeyCommand(ctx, command)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer clear(text)
	k, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return k, nil
}

// ReadKeyFile reads the text of a file that only this user can read. The error is ErrKey.
func ReadKeyFile(path string) ([]byte, error) {
	text, err := durable.ReadPrivate(path, maxKeyText+1)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return text, nil
}

// runKeyCommand returns what the command prints. Its standard error becomes part of the error, so it must not hold
// keys.
func runKeyCommand(ctx context.Context, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyCommandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second // a child of it may keep the pipe open
	out, said := limited{max: maxKeyText + 1}, limited{max: 300}
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it did not end within %v", keyCommandLimit)
	}
	if err != nil {
		clear(out.b)
		return nil, fmt.Errorf("%w: %s: %w: %s", ErrKey, command[0], err, bytes.TrimSpace(said.b))
	}
	return out.b, nil
}

// limited keeps the first max bytes that are written to it.
type limited struct {
	b   []byte
	max int
}

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), l.max-len(l.b))]...)
	return len(p), nil
}

// AddKey appends a new key to the text of a key file, which may be empty. The error is ErrKey.
func AddKey(text []byte, id string) ([]byte, error) {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails: crypto/rand crashes the program instead
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = fmt.Appendf(text, "%s %x\n", id, secret)
	_, err := ParseKeys(text) // the id may be taken, or invalid
	return text, err
}

// current returns the key of new segments, nil if they are not encrypted.
func (k *Keys) current() *masterKey {
	if k == nil || k.off {
		return nil
	}
	return &k.list[len(k.list)-1]
}

// CurrentID returns the id of the key that new segments are encrypted with, "" if they are not.
func (k *Keys) CurrentID() string {
	if m := k.current(); m != nil {
		return m.id
	}
	return ""
}

func (k *Keys) find(id string) *masterKey {
	if k == nil {
		return nil
	}
	for i := range k.list {
		if k.list[i].id == id {
			return &k.list[i]
		}
	}
	return nil
}

// String lists the ids.
func (k *Keys) String() string {
	if k == nil {
		return "no keys"
	}
	ids := make([]string, len(k.list))
	for i := range k.list {
		ids[i] = k.list[i].id
	}
	return "keys " + strings.Join(ids, ", ")
}

// GoString is String: no way of printing shows a key.
func (k *Keys) GoString() string { return k.String() }
