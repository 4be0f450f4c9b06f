package mysqld

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may lead over, as in the kernel.
const maxLinks = 40

// CheckPlace refuses, for root, a directory whose place or content the user that mysqld runs as could change. He could
// put a link there, and root would make, give away and remove files wherever it leads. What is missing of the path is
// no error. Errors: ErrConfig.
func CheckPlace(dir, osUser string) error {
	uid, gid, other, err := Config{OSUser: osUser}.runsAs()
	if err != nil || !other {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	who := person{uid: uid, groups: []int{gid}}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		more, _ := u.GroupIds() // without them: the first one
		for _, g := range more {
			if g, err := strconv.Atoi(g); err == nil {
				who.groups = append(who.groups, g)
			}
		}
	}
	at, err := who.replaces(dir)
	if err == nil && at != "" {
		err = fmt.Errorf("%w: %s may change %s, and so have root write anywhere: take a directory to which each folder is "+
			"root's and not writable for others, or give %s to root", ErrConfig, osUser, at, at)
	}
	return err
}

// RootsAlone reports that only root can change an existing directory, or replace it with another one.
func RootsAlone(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	at, err := person{uid: anybody}.replaces(dir)
	return err == nil && at == ""
}

// anybody is everybody but root.
const anybody = -1

type person struct {
	uid    int
	groups []int
}

// replaces gives the first part of a path that who can put something else in the place of, or fill; empty: none.
func (p person) replaces(path string) (string, error) {
	at, rest, links := "/", parts(path), 0
	for len(rest) > 0 {
		st, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if p.changes(st) && st.Mode()&fs.ModeSticky == 0 {
			return at, nil
		}
		next := filepath.Join(at, rest[0])
		st, err = os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		rest = rest[1:]
		if p.owns(st) {
			return next, nil
		}
		if st.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(at, to)
		}
		at, rest = "/", append(parts(to), rest...)
	}
	st, err := os.Lstat(at)
	if err == nil && p.changes(st) {
		return at, nil
	}
	return "", err
}

func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

func (p person) owns(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == p.uid || p.uid == anybody && sys.Uid != 0
}

// changes reports whether p may make and remove names in a folder.
func (p person) changes(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	mode := st.Mode().Perm()
	return !ok || p.owns(st) || mode&0o002 != 0 ||
		mode&0o020 != 0 && (p.uid == anybody || slices.Contains(p.groups, int(sys.Gid)))
}
