package mysqld

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// doublewriteName of a doublewrite file gives the size of its pages (dblwr_file_open in storage/innobase/buf/buf0dblwr.cc).
var doublewriteName = regexp.MustCompile(`^#ib_([0-9]+)_[0-9]+\.dblwr$`)

// mendDoublewrite empties doublewrite files that are shorter than one page. InnoDB fills new ones with zeros and does not fsync them, so that is
// what a power loss may leave of one that was just made; no copy of a page can be in it. InnoDB takes an empty file for a new one, and ends
// with an assertion on a shorter one than a page, at every start (buf0dblwr.h: n_pages > 0).
func (c Config) mendDoublewrite() error {
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
		if err := c.mendDoublewriteIn(dir); err != nil {
			return fmt.Errorf("look for unfinished doublewrite files: %w", err)
		}
	}
	return nil
}

func (c Config) mendDoublewriteIn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		m := doublewriteName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		page, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() || st.Size() == 0 || st.Size() >= page {
			continue
		}
		if err := os.Truncate(filepath.Join(dir, e.Name()), 0); err != nil {
			return err
		}
		c.log().Warn("a doublewrite file is shorter than one of its pages, as a power loss leaves one that was just made; it is made anew",
			"file", filepath.Join(dir, e.Name()), "bytes", st.Size(), "page", page)
	}
	return nil
}
