package testkit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trireme/internal/mysql/mysqld"
	"trireme/lab/needs"
)

// Release is an entry of the file releases.
type Release struct{ Name, Commit string }

//go:embed releases
var releases string

// Releases are all of them, oldest first.
func Releases() []Release {
	var out []Release
	for line := range strings.Lines(releases) {
		if f := strings.Fields(line); len(f) == 2 && f[0] != "#" {
			out = append(out, Release{f[0], f[1]})
		}
	}
	return out
}

// Previous is the program of the last release, which says that it is that version. It is built from this repository's
// history, once: the cache folder keeps it. Where the history does not go back that far, as in a shallow clone, the
// test ends as needs.Cannot says.
func Previous(t testing.TB) (program string, r Release) {
	t.Helper()
	all := Releases()
	r = all[len(all)-1]
	path, err := build(t.Context(), r)
	if errors.Is(err, errNoCommit) {
		needs.Cannot(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, r
}

var errNoCommit = errors.New("this clone does not have the commit of the last release: git fetch --unshallow gets it")

func build(ctx context.Context, r Release) (path string, err error) {
	cache := mysqld.CacheDir()
	if cache == "" {
		return "", errors.New("no cache folder: set TRIREME_CACHE or HOME")
	}
	dir := filepath.Join(cache, "releases")
	path = filepath.Join(dir, "trireme-"+r.Commit)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // closing it gives it up
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	run := func(dir, program string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s %s: %w: %s", program, args[0], err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	root, err := run("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("%w (%w)", errNoCommit, err)
	}
	if _, err := run(root, "git", "cat-file", "-e", r.Commit+"^{commit}"); err != nil {
		return "", fmt.Errorf("%s, %s: %w", r.Name, r.Commit, errNoCommit)
	}
	tree := path + ".src"
	remove := func() error { // also what one that was killed has left
		_, _ = run(root, "git", "worktree", "remove", "--force", tree)
		return errors.Join(os.RemoveAll(tree), os.RemoveAll(path+".new"))
	}
	if err := remove(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if _, err := run(root, "git", "worktree", "add", "--force", "--detach", tree, r.Commit); err != nil {
		return "", err
	}
	if _, err := run(tree, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version="+r.Name,
		"-o", path+".new", "./cmd/trireme"); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path)
}
