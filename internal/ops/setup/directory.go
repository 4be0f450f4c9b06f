package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/base/pki"
)

// BeforeAdopt is the folder below a node's directory that keeps what an adopted server had in addition to its data:
// binary and relay logs, and persisted variables. Trireme never looks at it again but for `trireme adopt --undo`.
const BeforeAdopt = "before-adopt"

// directory is a node's directory in the making. Either finish or undo ends it.
type directory struct {
	path string
	made string // topmost folder that did not exist before; empty when path was there
	file string // of the settings, once it was written outside path
}

// openDirectory makes path, or takes an existing empty one. lost+found is no content: a fresh file system is empty.
func openDirectory(path string) (*directory, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the directory %q must be an absolute path", path)
	}
	entries, err := os.ReadDir(path)
	if file := config.SettingsFile(path); filepath.Dir(file) != path && exists(file) &&
		!exists(filepath.Join(path, config.IdentityName)) {
		return nil, fmt.Errorf("%s is there already, but not the node in %s that it is of; move it away", file, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		d := &directory{path: path, made: firstMissing(path)}
		// mysqld's user comes through those above
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Mkdir(path, 0o700)); err != nil {
			d.undo()
			return nil, refused("making the node's directory", err)
		}
		return d, nil
	}
	if err != nil {
		return nil, refused("the node's directory", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			return nil, occupied(path)
		}
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, refused("the node's directory", err)
	}
	return &directory{path: path}, nil
}

// refused says what to do where the account may not do what is in doing.
func refused(doing string, err error) error {
	err = fmt.Errorf("%s: %w", doing, err)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return api.Errorf(api.KindForbidden, "%v", err).With("run this as root, or give a directory of your own with --dir")
}

// firstMissing is the topmost part of path that does not exist.
func firstMissing(path string) string {
	for {
		parent := filepath.Dir(path)
		if _, err := os.Stat(parent); err == nil || parent == path {
			return path
		}
		path = parent
	}
}

// openTo lets a mysqld of another user through to its own folder; all else in the directory keeps its mode.
func (d *directory) openTo(osUser string) error {
	if osUser == "" {
		return nil
	}
	if err := os.Chmod(d.path, 0o711); err != nil {
		return fmt.Errorf("the node's directory: %w", err)
	}
	return nil
}

// occupied says what is in the way.
func occupied(path string) error {
	id, err := config.LoadIdentity(path)
	switch {
	case err == nil:
		return api.Errorf(api.KindAlready, "%s belongs to node %q of cluster %q already", path, id.Name, id.Cluster).
			With("start it: `%s`; to make another node in its place, first move %s away", starts(path), parts(path))
	case exists(filepath.Join(path, "ibdata1")) || exists(filepath.Join(path, "mysql.ibd")):
		return api.Errorf(api.KindNotEmpty, "%s is the data directory of a MySQL server", path).
			With("give a new directory, the node makes its own below it")
	default:
		return api.Errorf(api.KindNotEmpty, "%s is not empty", path).
			With("give a directory that does not exist or has nothing in it")
	}
}

// starts is the command that starts the node in path.
func starts(path string) string {
	if file := config.SettingsFile(path); filepath.Dir(file) == path {
		return "trireme node --config " + file
	}
	return "systemctl start trireme"
}

// parts are the places of a node's files.
func parts(path string) string {
	if file := config.SettingsFile(path); filepath.Dir(file) != path {
		return path + " and " + file
	}
	return path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// undo removes what was made. The directory was new or empty, so everything in it is ours, except for what a server
// brought that is adopted: with that in it, the directory stays.
func (d *directory) undo() {
	if exists(filepath.Join(d.path, "mysql", "data")) || exists(filepath.Join(d.path, BeforeAdopt)) {
		return
	}
	if d.file != "" {
		_ = os.Remove(d.file)
	}
	if d.made != "" {
		_ = os.RemoveAll(d.made)
		return
	}
	entries, _ := os.ReadDir(d.path)
	for _, e := range entries {
		if e.Name() != "lost+found" {
			_ = os.RemoveAll(filepath.Join(d.path, e.Name()))
		}
	}
}

// contents is everything that a node's directory holds at first.
type contents struct {
	node     config.Node
	ca       *pki.CA
	bundle   *pki.Bundle
	secrets  config.Secrets
	cluster  *config.Cluster
	identity config.Identity
}

// fill writes the files, identity.json last: it makes the directory a node's.
func (d *directory) fill(c contents) error {
	tls := c.node.TLSDir()
	steps := []func() error{
		func() error {
			return d.writeSettings(c.node)
		},
		func() error { return c.ca.Save(tls) },
		func() error { return c.bundle.Save(tls) },
		func() error { return c.secrets.Save(d.path) },
		func() error { return c.cluster.Save(d.path) },
		func() error { return c.identity.Save(d.path) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("writing the node's directory: %w", err)
		}
	}
	return nil
}

// writeSettings writes the one file that may be outside the directory. Whether it is there already was looked at first.
func (d *directory) writeSettings(n config.Node) error {
	file := config.SettingsFile(d.path)
	if filepath.Dir(file) != d.path {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		d.file = file
	}
	return durable.WriteFile(file, config.Render(n), 0o600)
}
