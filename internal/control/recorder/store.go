package recorder

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"trireme/internal/api"
)

const (
	magic      = "TRIREC\x00\x01"
	headerSize = 20 // of a frame
	flagTexts  = 1
	maxBody    = 4 << 20 // of a frame, bytes
	maxJSON    = 32 << 20
	suffix     = ".rec"

	keepFor   = 7 * 24 * time.Hour
	fileFor   = 24 * time.Hour
	fileLeast = 64 << 10 // bytes; a smaller file counts as this much
	fileMost  = 8 << 20
	filePart  = 32 // a file takes so much of what all may
)

// Frame is what is kept of some ten seconds. Statements and files are read once a minute, so most frames have none.
type Frame struct {
	api.Interval
	Sessions   []api.SessionLoad   `json:"a,omitempty"`
	Statements []api.StatementLoad `json:"q,omitempty"`
	Others     *api.StatementLoad  `json:"r,omitempty"` // statements that are not among Statements
	Files      []api.FileWait      `json:"f,omitempty"`
	Daemon     *Process            `json:"daemon,omitempty"` // absent: it could not be read
	Mysqld     *Process            `json:"mysqld,omitempty"` // absent: so, or the node has none
	// Texts of statements by digest, each in the first frame of a file that needs it.
	Texts map[string]string `json:"t,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode gives the frame as it stands in a file.
func (f *Frame) encode() ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	return pack(text, f.At, len(f.Texts) > 0)
}

// pack makes a frame of its JSON.
func pack(text []byte, at time.Time, texts bool) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, headerSize))
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	out := b.Bytes()
	n := len(out) - headerSize
	if n > maxBody {
		return nil, fmt.Errorf("samples of %d bytes are too large", n)
	}
	binary.LittleEndian.PutUint32(out, uint32(n))
	binary.LittleEndian.PutUint64(out[8:], uint64(at.UnixMilli()))
	if texts {
		binary.LittleEndian.PutUint32(out[16:], flagTexts)
	}
	binary.LittleEndian.PutUint32(out[4:], crc32.Checksum(out[8:], castagnoli))
	return out, nil
}

// frames calls each with every whole frame of a file's content, in order, until one is torn or not what was written.
func frames(content []byte, each func(at time.Time, texts bool, body []byte) error) error {
	if !bytes.HasPrefix(content, []byte(magic)) {
		return nil // an empty file, or one of a later version
	}
	for content = content[len(magic):]; len(content) >= headerSize; {
		n := int(binary.LittleEndian.Uint32(content))
		if n > maxBody || n > len(content)-headerSize {
			return nil
		}
		checked := content[8 : headerSize+n]
		if crc32.Checksum(checked, castagnoli) != binary.LittleEndian.Uint32(content[4:]) {
			return nil
		}
		at, flags := time.UnixMilli(int64(binary.LittleEndian.Uint64(checked))), binary.LittleEndian.Uint32(checked[8:])
		if err := each(at, flags&flagTexts != 0, checked[headerSize-8:]); err != nil {
			return err
		}
		content = content[headerSize+n:]
	}
	return nil
}

// decode reads the body of a frame.
func decode(body []byte) (*Frame, error) {
	f := new(Frame)
	r := flate.NewReader(bytes.NewReader(body))
	err := json.NewDecoder(io.LimitReader(r, maxJSON)).Decode(f)
	return f, errors.Join(err, r.Close())
}

// Store is the files of a node. Append and Close are for one goroutine, Period is for any.
type Store struct {
	dir  string
	keep int64 // bytes of all files together

	file   *os.File // nil: the next frame begins one
	number uint64   // of file, or of the last one there was
	size   int64
	began  time.Time
	texts  map[string]bool // digests whose texts are in file

	reading sync.Mutex // one report at a time
}

// Open takes up a directory, which it makes if it has to. keep is how many bytes all files may take together.
func Open(dir string, keep int64) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	s := &Store{dir: dir, keep: keep}
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		s.number = files[len(files)-1].number
	}
	return s, nil
}

// stored is one file.
type stored struct {
	number   uint64
	path     string
	size     int64
	modified time.Time
}

// files in order.
func (s *Store) files() ([]stored, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	var out []stored
	for _, e := range entries {
		var f stored
		if _, err := fmt.Sscanf(e.Name(), "%010d"+suffix, &f.number); err != nil || e.Name() != name(f.number) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("samples: %w", err)
		}
		f.path, f.size, f.modified = filepath.Join(s.dir, e.Name()), info.Size(), info.ModTime()
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b stored) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

func name(number uint64) string { return fmt.Sprintf("%010d%s", number, suffix) }

// lacks says which of some digests the present file has no text of.
func (s *Store) lacks(digests []string) []string {
	return slices.DeleteFunc(slices.Clone(digests), func(d string) bool { return s.file != nil && s.texts[d] })
}

// Append writes a frame. After an error the next frame goes to a new file.
func (s *Store) Append(f *Frame) error {
	b, err := f.encode()
	if err != nil {
		return err
	}
	if s.file != nil && (s.size+int64(len(b)) > s.fileSize() || f.At.Sub(s.began).Abs() > fileFor) {
		s.Close()
	}
	if s.file == nil {
		if err := s.begin(f.At); err != nil {
			return fmt.Errorf("samples: %w", err)
		}
	}
	if _, err := s.file.Write(b); err != nil {
		s.Close() // a part of it may be there
		return fmt.Errorf("samples: %w", err)
	}
	s.size += int64(len(b))
	for d := range f.Texts {
		s.texts[d] = true
	}
	return nil
}

func (s *Store) fileSize() int64 { return max(fileLeast, min(fileMost, s.keep/filePart)) }

// begin makes the next file, and room for it.
func (s *Store) begin(at time.Time) error {
	if err := s.purge(at); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.dir, name(s.number+1)), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.number++
	s.file, s.size, s.began, s.texts = file, int64(len(magic)), at, map[string]bool{}
	if _, err := file.WriteString(magic); err != nil {
		s.Close()
		return err
	}
	return nil
}

// purge removes the oldest files: as many as are needed for the space, and one that is too old. Not more: the clock may
// have been set wrong for a moment.
func (s *Store) purge(now time.Time) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	total := s.fileSize()
	for _, f := range files {
		total += max(f.size, fileLeast)
	}
	for i, f := range files {
		if total <= s.keep && (i > 0 || now.Sub(f.modified) <= keepFor) {
			break
		}
		if err := os.Remove(f.path); err != nil {
			return err
		}
		total -= max(f.size, fileLeast)
	}
	return nil
}

// Close ends the present file. The store can be used on.
func (s *Store) Close() {
	if s.file != nil {
		_ = s.file.Close() // nothing rests on it
		s.file = nil
	}
}
