package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trireme/internal/mysql/mysqld"
)

// optionFile is what a stock mysqld starts the restored server with.
func (r *restoration) optionFile() string { return filepath.Join(r.Dir, "my.cnf") }

// binlogDir holds the binary log of the restored server, which begins again.
func (r *restoration) binlogDir() string { return filepath.Join(r.Dir, "binlog") }

// writePlain makes a server of its own of the directory: an option file with no more than it takes, and no server_uuid
// that another one has.
func (r *restoration) writePlain() error {
	var b strings.Builder
	b.WriteString("# Written by `trireme restore`. It is yours to edit.\n[mysqld]\n")
	options := [][2]string{
		{"datadir", r.cfg.DataDir()}, {"socket", r.cfg.Socket()}, {"pid_file", r.cfg.PidFile()},
		{"log_error", r.cfg.ErrorLog()}, {"port", strconv.Itoa(r.Port)}, {"bind_address", "127.0.0.1"},
		{"loose_mysqlx", "OFF"}, {"secure_file_priv", "NULL"}, {"server_id", "1"},
		{"log_bin", filepath.Join(r.binlogDir(), "binlog")}, {"gtid_mode", "ON"}, {"enforce_gtid_consistency", "ON"},
		{"partial_revokes", "ON"}, {"skip_name_resolve", "ON"}, // accounts of the cluster rest on it
	}
	for _, name := range slices.Sorted(maps.Keys(r.base.Options)) {
		options = append(options, [2]string{name, r.base.Options[name]})
	}
	if os.Getuid() == 0 {
		options = append(options, [2]string{"user", cmp.Or(r.OSUser, "root")})
	}
	for _, o := range options {
		fmt.Fprintf(&b, "%s=\"%s\"\n", o[0], strings.ReplaceAll(o[1], `\`, `\\`))
	}
	// The server that applied the log has ended: what it has left there is nothing but its own.
	if err := os.RemoveAll(r.binlogDir()); err != nil {
		return err
	}
	uid, gid, err := ownerFor(r.OSUser)
	if err != nil {
		return err
	}
	if err := mysqld.MkdirOwned(filepath.Dir(r.binlogDir()), filepath.Base(r.binlogDir()), 0o750, uid, gid); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(r.cfg.DataDir(), "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(r.optionFile(), []byte(b.String()), 0o644)
}
