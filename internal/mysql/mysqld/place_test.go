package mysqld

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestPlaceOfItsUser: where mysqld's user can change the way to a directory, or what is in it, root makes nothing there
// and gives nothing away. Elsewhere it does.
func TestPlaceOfItsUser(t *testing.T) {
	dir, uid, gid := folderForNobody(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	// Folders of root's that a link in mysqld's place could lead to: makeDirs would give away the one in it.
	make := func(name string, mode os.FileMode, uid, gid int) {
		t.Helper()
		if err := errors.Join(os.Mkdir(at(name), 0o755), os.Chown(at(name), uid, gid), os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string, uid int) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, at(name)), os.Lchown(at(name), uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	make("victim", 0o755, 0, 0)
	make("victim/log", 0o755, 0, 0)
	make("its", 0o755, uid, gid)
	link(at("victim"), "its/work", uid)
	make("its/roots", 0o755, 0, 0)
	make("group", 0o775, 0, gid)
	make("all", 0o777, 0, 0)
	make("sticky", os.ModeSticky|0o777, 0, 0)
	make("sticky/roots", 0o755, 0, 0)
	link(at("victim"), "sticky/link", uid)
	make("other", 0o755, 1, 1)
	link("sticky/roots", "link", 0)
	link("its/roots", "astray", 0)
	link("circle", "circle", 0)
	for name, ok := range map[string]bool{
		"its/work": false, "its/new": false, "its/roots": false, "its/roots/new": false, "its": false,
		"group/new": false, "all/new": false, "sticky": false, "sticky/link": false, "astray/new": false, "circle": false,
		"sticky/roots/new": true, "link/new": true, "new/below": true, "other/new": true,
	} {
		cfg := Config{Dir: at(name), OSUser: "nobody"}
		err := cfg.makeDirs()
		if ok != (err == nil) || !ok && name != "circle" && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if got, _, err := ownerOf(at("victim/log")); got != 0 || err != nil {
			t.Fatalf("%s: root's folder belongs to user %d now, %v", name, got, err)
		}
	}
	for name, want := range map[string]bool{"its": false, "its/roots": false, "other": false, "group": false,
		"astray":       false,
		"sticky/roots": true, "link": true} {
		if got := RootsAlone(at(name)); got != want {
			t.Errorf("root's alone: %s: %t", name, got)
		}
	}
	if err := CheckPlace(at("its/work"), ""); err != nil {
		t.Errorf("the daemon's own user: %v", err)
	}
}
