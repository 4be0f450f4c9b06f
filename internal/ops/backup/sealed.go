package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// formatVersion is the version of everything that this program writes.
const formatVersion = 1

// maxSealed bounds what a decoder believes: a manifest of a million files.
const maxSealed = 256 << 20

// seal encodes v as a line of JSON and a line with its checksum. v has a field "version".
func seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	sum := sha256.Sum256(b)
	return fmt.Appendf(b, "sha256 %x\n", sum), nil
}

// unseal reads what seal wrote, and nothing after it. The errors are ErrCorrupt and ErrNewer, and the reader's.
func unseal(r *bufio.Reader, name string, v any) error {
	line, err := readLine(r, maxSealed)
	if err != nil {
		return damaged(name, err)
	}
	sum := sha256.Sum256(line)
	mark, err := readLine(r, len("sha256 \n")+2*len(sum))
	if err != nil {
		return damaged(name, err)
	}
	if want := "sha256 " + hex.EncodeToString(sum[:]) + "\n"; string(mark) != want {
		return fmt.Errorf("%w: %s: its checksum does not fit", ErrCorrupt, name)
	}
	// The checksum holds: a version that is not known is no damage.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return damaged(name, err)
	}
	if head.Version > formatVersion {
		return fmt.Errorf("%w: %s has format %d, this program knows %d", ErrNewer, name, head.Version, formatVersion)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return damaged(name, err)
	}
	return nil
}

// readLine reads up to the next newline, which is part of it.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrCorrupt, limit)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// damaged tells a file that ends too early or is no text of ours from one that cannot be read.
func damaged(name string, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syntax) || errors.As(err, &kind) {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	return fmt.Errorf("backup: read %s: %w", name, err)
}

// putSealed writes v as an object of its own.
func putSealed(s Store, name string, v any) error {
	b, err := seal(v)
	if err != nil {
		return fmt.Errorf("backup: write %s: %w", name, err)
	}
	return s.Put(name, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(b))
		return err
	})
}

// getSealed reads such an object.
func getSealed(s Store, name string, v any) error {
	f, err := s.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReader(f)
	if err := unseal(r, name, v); err != nil {
		return err
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return fmt.Errorf("%w: %s: something follows its checksum", ErrCorrupt, name)
	}
	return nil
}
