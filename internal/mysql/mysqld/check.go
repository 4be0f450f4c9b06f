package mysqld

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"trireme/internal/base/durable"
)

// Check looks at everything that can be known before mysqld is started, and is also run by Start. Errors:
// Config.Validate's, ErrNotInitialized, ErrForeignData, ErrNewerData, ErrNoSpace, ErrPortInUse. What only a running
// server can tell is in Admin.Check.
func Check(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := cfg.checkData(); err != nil {
		return err
	}
	if err := cfg.checkSpace(startBytes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := cfg.checkPort(); err != nil {
		return err
	}
	if v := cfg.Binary.Version; !v.Tested() {
		cfg.log().Warn("this MySQL series is accepted but not tested with Trireme", "version", v.Raw, "tested", TestedSeries)
	}
	return nil
}

// checkData: the data directory is there, is ours, and is not from the future.
func (c Config) checkData() error {
	if !c.Initialized() {
		if !isEmptyDir(c.DataDir()) {
			return fmt.Errorf("%w: %s; move it away, or bring its data in with `trireme adopt`", ErrForeignData, c.DataDir())
		}
		return fmt.Errorf("%w: %s; make one with `trireme init` or `trireme join`", ErrNotInitialized, c.DataDir())
	}
	if _, err := os.Stat(filepath.Join(c.DataDir(), "mysql.ibd")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s has no mysql.ibd: it is not a MySQL 8 data directory, or was emptied", ErrForeignData,
			c.DataDir())
	}
	wrote, ok := c.dataVersion()
	if !ok {
		return nil // servers before 8.4 leave no such file; mysqld itself will refuse what it cannot read
	}
	v := c.Binary.Version
	if !v.AtLeast(wrote.Major, wrote.Minor, 0) {
		return fmt.Errorf("%w: %s was written by %s, and %s is %s; use MySQL %s or later",
			ErrNewerData, c.DataDir(), wrote, c.Binary.Path, v, wrote.Series())
	}
	return nil
}

// dataVersion is the version that wrote the data directory last, by mysqld's own mysql_upgrade_history.
func (c Config) dataVersion() (Version, bool) {
	f, err := OpenOwned(c.DataDir(), "mysql_upgrade_history", os.O_RDONLY, -1)
	if err != nil {
		return Version{}, false
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return Version{}, false
	}
	var h struct {
		History []struct {
			Version string `json:"version"`
		} `json:"upgrade_history"`
	}
	if json.Unmarshal(b, &h) != nil || len(h.History) == 0 {
		return Version{}, false
	}
	v, err := ParseVersion(h.History[len(h.History)-1].Version)
	return v, err == nil
}

func (c Config) checkSpace(need uint64) error {
	free, err := durable.Free(c.Dir)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("%w: %s has %d MiB free, mysqld needs %d MiB to begin with; free some space", ErrNoSpace, c.Dir,
			free>>20, need>>20)
	}
	return nil
}
