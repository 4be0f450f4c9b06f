package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// Base is a copy of a data directory: its manifest.
type Base struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	Cluster   string `json:"cluster"`
	ClusterID uint64 `json:"cluster_id"`
	Donor     string `json:"donor"` // node that it was copied from
	MySQL     string `json:"mysql"` // version of the server
	// Index: everything up to this entry is in the copy. Last: nothing above this entry is. Between them are what the
	// donor applied while it was copied; so the first moment that can be restored is Last.
	Index    uint64    `json:"index"`
	Last     uint64    `json:"last"`
	Executed gtid.Set  `json:"gtid_executed"`
	Began    time.Time `json:"began"`
	Made     time.Time `json:"made"`
	// Options shape the data directory: a server needs the same ones.
	Options map[string]string `json:"options,omitempty"`
	// Account is one with all rights, for localhost, that was made in the copy alone: the restoring user has no
	// password of the cluster's.
	Account mysqld.Account `json:"account"`
	Folders []string       `json:"folders,omitempty"`
	Files   []File         `json:"files"`
	Bytes   int64          `json:"bytes"`  // of all files
	Stored  int64          `json:"stored"` // of their objects
}

// File is one of the copy's files.
type File struct {
	Path   string `json:"path"` // relative to the data directory
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const (
	basePrefix   = "base/"
	manifestName = "manifest.json"
	packed       = ".zst"
)

func (b *Base) prefix() string   { return basePrefix + b.Name + "/" }
func (b *Base) manifest() string { return b.prefix() + manifestName }
func (b *Base) object(f *File) string {
	return b.prefix() + "data/" + filepath.ToSlash(f.Path) + packed
}
func isManifest(name string) bool {
	return strings.Count(name, "/") == 2 && strings.HasSuffix(name, "/"+manifestName)
}
func baseName(at time.Time) string    { return at.UTC().Format("20060102T150405Z") }
func folderOf(manifest string) string { return strings.TrimSuffix(manifest, manifestName) }
func nameOf(manifest string) string {
	return strings.Trim(strings.TrimPrefix(folderOf(manifest), basePrefix), "/")
}

// baseNames lists the manifests of complete copies, oldest first.
func baseNames(s Store) ([]string, error) {
	all, err := s.List(basePrefix)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(name string) bool { return !isManifest(name) }), nil
}

// readBase reads a manifest.
func readBase(s Store, name string, id identity) (Base, error) {
	var b Base
	if err := getSealed(s, name, &b); err != nil {
		return b, err
	}
	switch {
	case b.Name != nameOf(name):
		return b, fmt.Errorf("%w: %s says that it is of the copy %s", ErrCorrupt, name, b.Name)
	case b.ClusterID != id.ClusterID:
		return b, fmt.Errorf("%w: %s is of cluster %s (id %d), the backup of %s (id %d)", ErrForeign, name, b.Cluster,
			b.ClusterID, id.Cluster, id.ClusterID)
	}
	if err := b.check(); err != nil {
		return b, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	return b, nil
}

// shapeOptions are the options that a data directory cannot be used without. No others come from a backup: who can
// write to it must not be able to tell a server of ours what to run. Nothing in their values is a place outside of the
// directory.
var (
	shapeOptions = map[string]bool{"lower_case_table_names": true, "innodb_page_size": true, "innodb_data_file_path": true}
	shapeValue   = regexp.MustCompile(`^[A-Za-z0-9_.:;]*$`)
	accountName  = regexp.MustCompile(`^trireme_[a-z_]{1,24}$`)
)

// check refuses what no manifest says, or what would lead a restoration to places that are not its own.
func (b *Base) check() error {
	for _, p := range append(slices.Clone(b.Folders), filePaths(b.Files)...) {
		// mysqld-auto.cnf would set mysqld's options.
		if !filepath.IsLocal(p) || p != filepath.Clean(p) || volatile(p) {
			return fmt.Errorf("it names the file %q", p)
		}
	}
	for name, value := range b.Options {
		if !shapeOptions[name] || !shapeValue.MatchString(value) {
			return fmt.Errorf("it names the option %q = %q", name, value)
		}
	}
	switch {
	case !accountName.MatchString(b.Account.User):
		return fmt.Errorf("it names the account %q", b.Account.User)
	case b.Last < b.Index || b.Bytes < 0 || slices.ContainsFunc(b.Files, func(f File) bool { return f.Size < 0 }):
		return errors.New("its numbers contradict each other")
	}
	return nil
}

func filePaths(files []File) []string {
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].Path
	}
	return paths
}

// dropUnfinished removes what copies that were never completed have left. The caller has the lock.
func dropUnfinished(s Store) error {
	all, err := s.List(basePrefix)
	if err != nil {
		return err
	}
	complete := map[string]bool{}
	for _, name := range all {
		if isManifest(name) {
			complete[folderOf(name)] = true
		}
	}
	for _, name := range all {
		parts := strings.SplitN(name, "/", 3)
		if len(parts) < 3 || complete[parts[0]+"/"+parts[1]+"/"] {
			continue
		}
		if err := s.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// volatile are files of a data directory that no server needs.
func volatile(path string) bool {
	switch {
	case path == "auto.cnf", path == "mysqld-auto.cnf", path == "ibtmp1", strings.HasPrefix(path, "#innodb_temp/"),
		strings.HasPrefix(path, "#clone/"):
		return true
	case strings.HasSuffix(path, ".pid"), strings.HasSuffix(path, ".sock"), strings.HasSuffix(path, ".sock.lock"):
		return true
	}
	return false
}

// store copies a data directory, whose server has ended, into b's objects. done is told the bytes so far.
func (b *Base) store(ctx context.Context, s Store, dir string, done func(int64)) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || rel == "." {
			return err
		}
		if d.IsDir() {
			b.Folders = append(b.Folders, rel)
			return nil
		}
		if volatile(rel) || !d.Type().IsRegular() {
			return nil
		}
		f := File{Path: rel}
		if err := b.storeFile(ctx, s, dir, &f); err != nil {
			return err
		}
		b.Files = append(b.Files, f)
		b.Bytes += f.Size
		done(b.Bytes)
		return nil
	})
}

func (b *Base) storeFile(ctx context.Context, s Store, dir string, f *File) error {
	in, err := mysqld.OpenOwned(dir, f.Path, os.O_RDONLY, -1)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() { _ = in.Close() }()
	return s.Put(b.object(f), func(w io.Writer) error {
		count := &counter{w: w}
		enc, err := zstd.NewWriter(count, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return err
		}
		sum := sha256.New()
		f.Size, err = io.Copy(io.MultiWriter(enc, sum), readUntil(ctx, in))
		if err = errors.Join(err, enc.Close()); err != nil {
			return err
		}
		f.SHA256 = hex.EncodeToString(sum.Sum(nil))
		b.Stored += count.n
		return nil
	})
}

// readUntil reads from r as long as ctx has not ended.
func readUntil(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// unpack writes a file's content and checks it.
func (b *Base) unpack(ctx context.Context, s Store, f *File, w io.Writer) error {
	name := b.object(f)
	r, end, err := peek(s, name)
	if err != nil {
		return err
	}
	defer end()
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer dec.Close()
	sum := sha256.New()
	to := &writeErr{w: w}
	n, err := io.Copy(io.MultiWriter(to, sum), readUntil(ctx, io.LimitReader(dec, f.Size+1)))
	switch {
	case to.err != nil:
		return to.err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrStore), errors.Is(err, ErrDenied): // it did not come, which is no damage
		return err
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	case n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256:
		return fmt.Errorf("%w: %s: its content of %d bytes does not fit the manifest's checksum of %d bytes", ErrCorrupt,
			name, n, f.Size)
	}
	return nil
}

// writeErr tells an error of writing from one of reading.
type writeErr struct {
	w   io.Writer
	err error
}

func (e *writeErr) Write(p []byte) (int, error) {
	n, err := e.w.Write(p)
	if err != nil {
		e.err = err
	}
	return n, err
}

// verify reads all files of the copy.
func (b *Base) verify(ctx context.Context, s Store) error {
	var all []error
	for i := range b.Files {
		if err := b.unpack(ctx, s, &b.Files[i], io.Discard); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
