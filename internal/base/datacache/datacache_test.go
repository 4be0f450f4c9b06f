package datacache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// cache is an empty one, and a program that makes directories for it.
type cache struct {
	t             *testing.T
	root, program string
	made          int
}

func newCache(t *testing.T) *cache {
	c := &cache{t: t, root: filepath.Join(t.TempDir(), "data"), program: filepath.Join(t.TempDir(), "mysqld")}
	c.setProgram("one")
	return c
}

func (c *cache) setProgram(text string) {
	c.t.Helper()
	if err := os.WriteFile(c.program, []byte(text), 0o700); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cache) fill(_ context.Context, dir string) error {
	c.made++
	return os.WriteFile(filepath.Join(dir, "ibdata"), fmt.Appendf(nil, "%d", c.made), 0o600)
}

// get a directory: its path and what is in it.
func (c *cache) get(recipe string) (path, content string) {
	c.t.Helper()
	path, err := dir(c.t.Context(), c.root, c.program, recipe, c.fill)
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(path, "ibdata"))
	if err != nil {
		c.t.Fatal(err)
	}
	return path, string(b)
}

// forget what this process uses, as its end would.
func (c *cache) forget() {
	inUse.Lock()
	defer inUse.Unlock()
	for path, f := range inUse.locks {
		f.Close()
		delete(inUse.locks, path)
	}
}

// TestHitsAndMisses: the same recipe and program is found again, also by another process; another one of either is
// made.
func TestHitsAndMisses(t *testing.T) {
	c := newCache(t)
	first, _ := c.get("a")
	c.forget()
	if again, content := c.get("a"); again != first || content != "1" {
		t.Errorf("%s with %q after %s", again, content, first)
	}
	if _, content := c.get("b"); content != "2" {
		t.Errorf("another recipe: %q", content)
	}
	c.setProgram("another size")
	if _, content := c.get("a"); content != "3" {
		t.Errorf("another program: %q", content)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(c.program, later, later); err != nil {
		t.Fatal(err)
	}
	if _, content := c.get("a"); content != "4" {
		t.Errorf("another program of the same size: %q", content)
	}
}

// TestFailedFill leaves nothing, and the next one makes it.
func TestFailedFill(t *testing.T) {
	c := newCache(t)
	broken := errors.New("no space")
	if _, err := dir(t.Context(), c.root, c.program, "a", func(ctx context.Context, dir string) error {
		return errors.Join(c.fill(ctx, dir), broken)
	}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(c.root, "*", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %q %v", left, err)
	}
	if err := os.MkdirAll(filepath.Join(c.root, unfinished+"killed"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.get("a")
	if left, _ := filepath.Glob(filepath.Join(c.root, unfinished+"*")); len(left) != 0 {
		t.Errorf("of a process that was killed: %q", left)
	}
}

// TestBound: the directories that were not used for the longest time go, but for those that a process uses.
func TestBound(t *testing.T) {
	c := newCache(t)
	var paths []string
	for i := range keep + 3 {
		path, _ := c.get(fmt.Sprint(i))
		if paths = append(paths, path); i != 0 {
			c.forget() // the first one is in use, as by another process
			hold, err := lock(t.Context(), filepath.Join(paths[0], lockName), 1)
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
		}
		old := time.Now().Add(time.Duration(i-100) * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	c.get("last")
	for i, path := range paths {
		_, err := os.Stat(path)
		if there := err == nil; there != (i == 0 || i > 3) {
			t.Errorf("directory %d of %d: there %v", i, len(paths), there)
		}
	}
}
