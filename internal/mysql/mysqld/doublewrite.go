package mysqld

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// doublewriteName of a doublewrite file gives the size of its pages (dblwr_file_open in
// storage/innobase/buf/buf0dblwr.cc).
var doublewriteName = regexp.MustCompile(`^#ib_([0-9]+)_[0-9]+\.dblwr$`)

// syncDoublewrite makes the doublewrite files durable as they are: their length, and the blocks of that length. InnoDB
// fills new and too short ones with zeros and, with O_DIRECT, never fsyncs them. Until the file system has written that
// by itself, a power loss can remove any copy of a page together with the end of its file. If the page's own write was
// under way, the page stays torn: an assertion in buf0dblwr.cc at every start. Once the files are durable, later copies
// go to blocks that the file has, and on a disk without a cache they are durable at once.
func (c Config) syncDoublewrite() error {
	return c.eachDoublewrite(func(path string, _ int64) error {
		f, err := OpenOwned(filepath.Dir(path), filepath.Base(path), os.O_RDONLY, -1)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// mendDoublewrite empties doublewrite files that are shorter than one page, as a power loss may leave one that was just
// made: no copy of a page can be in it. InnoDB takes an empty file for a new one, and ends with an assertion on a
// shorter one than a page, at every start (buf0dblwr.h: n_pages > 0).
func (c Config) mendDoublewrite() error {
	return c.eachDoublewrite(func(path string, page int64) error {
		uid, _, err := c.owner()
		if err != nil {
			return err
		}
		f, err := OpenOwned(filepath.Dir(path), filepath.Base(path), os.O_RDWR, uid)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		st, err := f.Stat()
		if err != nil || st.Size() == 0 || st.Size() >= page {
			return err
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		c.log().
			Warn("a doublewrite file is shorter than one of its pages, as a power loss leaves a new one; it is made again",
				"file", path, "bytes", st.Size(), "page", page)
		return nil
	})
}

// eachDoublewrite calls f for each doublewrite file with the size of its pages in bytes.
func (c Config) eachDoublewrite(f func(path string, page int64) error) error {
	dirs := []string{c.DataDir()}
	for name, value := range c.Extra {
		switch canonical(name) {
		case "innodb_doublewrite_dir", "innodb_data_home_dir":
			if !filepath.IsAbs(value) {
				value = filepath.Join(c.DataDir(), value)
			}
			dirs = append(dirs, value)
		}
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("look for doublewrite files: %w", err)
		}
		for _, e := range entries {
			m := doublewriteName.FindStringSubmatch(e.Name())
			if m == nil {
				continue
			}
			path := filepath.Join(dir, e.Name())
			page, err := strconv.ParseInt(m[1], 10, 64)
			if err == nil {
				err = f(path, page)
			}
			if err != nil {
				return fmt.Errorf("doublewrite file %s: %w", path, err)
			}
		}
	}
	return nil
}
