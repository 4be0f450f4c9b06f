package mysqld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Version is a MySQL server version. Raw is what the program said, vendor's suffix and all.
type Version struct {
	Major, Minor, Patch int
	Raw                 string
}

// Minimum is the oldest server that has all that Trireme needs: semisync_source's own name came with 8.0.26.
var Minimum = Version{Major: 8, Minor: 0, Patch: 26}

// TestedSeries is the series that the tests run. Others are accepted and named as untested.
const TestedSeries = "9.7"

// AtLeast reports whether v is major.minor.patch or later.
func (v Version) AtLeast(major, minor, patch int) bool {
	if v.Major != major {
		return v.Major > major
	}
	if v.Minor != minor {
		return v.Minor > minor
	}
	return v.Patch >= patch
}

// Series is the release series, "8.4" or "9.7".
func (v Version) Series() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Tested reports whether Trireme's tests run against this series.
func (v Version) Tested() bool { return v.Series() == TestedSeries }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)\.(\d+)`)

// ParseVersion reads "9.7.4-2", or any text that begins its numbers like that.
func ParseVersion(s string) (Version, error) {
	m := versionNumber.FindStringSubmatch(s)
	if m == nil {
		return Version{}, fmt.Errorf("%w: no version in %q", ErrNotMySQL, s)
	}
	v := Version{Raw: s}
	for i, p := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return Version{}, fmt.Errorf("%w: version %q: %w", ErrNotMySQL, s, err)
		}
		*p = n
	}
	return v, nil
}

// Binary is a mysqld program that can be run.
type Binary struct {
	Path    string // absolute
	Version Version
}

const (
	versionLimit = time.Minute // a slow disk reads 150 MB first
	fetchAdvice  = "install MySQL >= 8.0.26 (not MariaDB), name one with MYSQLD=/path/to/mysqld or mysql.binary, or let scripts/mysql.sh fetch one"
)

// Find looks for a usable mysqld: hint if not empty, else $MYSQLD, else PATH (with the system's sbin folders), else
// what scripts/mysql.sh has fetched. A mysqld that was asked for by name is used or refused; one that merely lies on
// PATH is passed over when it is unusable. Errors: ErrNotFound, ErrMariaDB, ErrTooOld, ErrNotMySQL.
func Find(ctx context.Context, hint string) (Binary, error) {
	if hint == "" {
		hint = os.Getenv("MYSQLD")
	}
	if hint != "" {
		path, err := exec.LookPath(hint)
		if err != nil {
			return Binary{}, fmt.Errorf("%w: %s: %w; %s", ErrNotFound, hint, err, fetchAdvice)
		}
		return Inspect(ctx, path)
	}
	var passedOver error
	for _, path := range candidates() {
		b, err := Inspect(ctx, path)
		if err == nil {
			return b, nil
		}
		passedOver = errors.Join(passedOver, err)
	}
	if passedOver != nil {
		return Binary{}, fmt.Errorf("%w that can be used; %s: %w", ErrNotFound, fetchAdvice, passedOver)
	}
	return Binary{}, fmt.Errorf("%w; %s", ErrNotFound, fetchAdvice)
}

// candidates are the mysqlds that lie about, in order of preference.
func candidates() []string {
	var found []string
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin", "/usr/libexec",
		"/usr/local/mysql/bin")
	dirs = append(dirs, filepath.Join(CacheDir(), "mysql-"+TestedSeries, "bin"))
	for _, d := range dirs {
		if d == "" {
			continue
		}
		p := filepath.Join(d, "mysqld")
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			found = append(found, p)
		}
	}
	return found
}

// CacheDir is where scripts/mysql.sh keeps what it fetched: $TRIREME_CACHE, else ~/.cache/trireme.
func CacheDir() string {
	if d := os.Getenv("TRIREME_CACHE"); d != "" {
		return d
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "trireme")
}

// Try finds a mysqld as Find does, and runs it as the user that it is to run as: what a node's first start would fail
// at. dir, an absolute path, is where its data will be. Errors: Find's, and ErrConfig for a user that does not exist,
// cannot run it or cannot get to dir.
func Try(ctx context.Context, hint, osUser, dir string) (Binary, error) {
	if osUser != "" {
		if _, err := user.Lookup(osUser); err != nil {
			return Binary{}, fmt.Errorf("%w: mysql.os_user: %w", ErrConfig, err)
		}
	}
	b, err := Find(ctx, hint)
	if err != nil {
		return b, err
	}
	uid, gid, other, err := Config{OSUser: osUser}.runsAs()
	if err != nil || !other {
		return b, err
	}
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if b, err = inspect(ctx, b.Path, as, "/"); err != nil {
		return b, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for dir = filepath.Dir(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			break
		}
	}
	if _, err = inspect(ctx, b.Path, as, dir); err != nil {
		err = fmt.Errorf("%w: in %s, below which its data would be: %w", ErrConfig, dir, err)
	}
	return b, err
}

// Inspect runs the program for its version and refuses what Trireme cannot run.
func Inspect(ctx context.Context, path string) (Binary, error) { return inspect(ctx, path, nil, "") }

// inspect does so as another user unless as is nil; then in is a folder that this user can enter.
func inspect(ctx context.Context, path string, as *syscall.SysProcAttr, in string) (Binary, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, fmt.Errorf("mysqld path: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--no-defaults", "--version")
	cmd.SysProcAttr, cmd.Dir = as, in
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "MariaDB") {
		return Binary{}, fmt.Errorf("%w: %s says %q (its GTIDs and its semi-sync differ); %s", ErrMariaDB, path,
			firstLine(text), fetchAdvice)
	}
	if ctx.Err() != nil {
		return Binary{}, fmt.Errorf("%w: %s --version did not answer within %v", ErrTimeout, path, versionLimit)
	}
	// by somebody, or for want of memory: that says nothing of what it is
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() < 0 {
		return Binary{}, fmt.Errorf("%s --version: %w", path, err)
	}
	if err != nil {
		return Binary{}, fmt.Errorf("%w: %s --version: %w: %s", ErrNotMySQL, path, err, firstLine(text))
	}
	// "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", after the path, which may hold digits too.
	_, said, ok := strings.Cut(text, "Ver ")
	if !ok {
		return Binary{}, fmt.Errorf("%w: %s says %q", ErrNotMySQL, path, firstLine(text))
	}
	raw, _, _ := strings.Cut(said, " ")
	v, err := ParseVersion(raw)
	if err != nil {
		return Binary{}, fmt.Errorf("%s: %w", path, err)
	}
	if !v.AtLeast(Minimum.Major, Minimum.Minor, Minimum.Patch) {
		return Binary{}, fmt.Errorf("%w: %s is MySQL %s, Trireme needs %s; %s", ErrTooOld, path, v, Minimum, fetchAdvice)
	}
	return Binary{Path: path, Version: v}, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
