package mysqld

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLinksOfItsUser: mysqld's user puts links to a file of root's wherever root writes or reads for mysqld. Root's
// file stays as it is and root's, its content goes nowhere, and mysqld's own files are what they should be.
func TestLinksOfItsUser(t *testing.T) {
	dir, uid, gid := folderForNobody(t)
	cfg := Config{Dir: filepath.Join(dir, "n"), OSUser: "nobody", Binary: Binary{Path: "/bin/true"}, Port: 1, ServerID: 1,
		Admin: Account{"a", "a"}, Repl: Account{"r", "r"}}
	secret := filepath.Join(dir, "secret")
	check := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	check(os.WriteFile(secret, []byte("[ERROR] root's own\n"), 0o600), cfg.makeDirs(),
		MkdirOwned(cfg.Dir, "data", 0o750, uid, gid))
	redo := filepath.Join(cfg.DataDir(), "#innodb_redo")
	links := []string{cfg.ErrorLog(), filepath.Join(cfg.DataDir(), "auto.cnf.tmp"),
		filepath.Join(cfg.DataDir(), "auto.cnf"),
		cfg.optionFile() + ".tmp", cfg.optionFile()}
	plant := func(link string) {
		t.Helper()
		_ = os.Remove(link)
		cmd := exec.Command("ln", "-s", secret, link)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, l := range links {
		plant(l)
	}
	before, err := os.Stat(secret)
	check(err)

	check(cfg.prepare(t.Context(), "11111111-1111-1111-1111-111111111111"))
	for _, f := range []string{filepath.Join(cfg.DataDir(), "auto.cnf"), cfg.optionFile()} {
		st, err := os.Lstat(f)
		check(err)
		if !st.Mode().IsRegular() || st.Sys().(*syscall.Stat_t).Uid != uint32(uid) {
			t.Errorf("%s: %v, user %d", f, st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
		}
	}
	if p, err := cfg.launch(launchSpec{}); err == nil {
		<-p.done
		t.Error("mysqld was started with a log that is a link")
	}
	if lines := tailLog(cfg.ErrorLog(), 0); len(lines) > 0 {
		t.Errorf("root's file is shown as mysqld's log: %q", lines)
	}
	plant(filepath.Join(cfg.DataDir(), "#ib_16384_0.dblwr"))
	if err := cfg.mendDoublewrite(); err == nil {
		t.Error("a link was taken for a doublewrite file")
	}
	plant(redo) // the whole folder
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		if f, err := openRedo(filepath.Join(redo, "x"), flag); err == nil {
			t.Errorf("%s was opened", f.Name())
		}
	}
	from := filepath.Join(dir, "template")
	check(os.MkdirAll(filepath.Join(from, "mysql"), 0o750), os.WriteFile(filepath.Join(from, "secret.cnf"), []byte("x"),
		0o600))
	plant(filepath.Join(cfg.DataDir(), "secret.cnf"))
	if err := cfg.copyTree(context.Background(), from, cfg.DataDir()); err == nil {
		t.Error("a copy was written through a link")
	}
	check(cfg.initialized(func(tmp string) error {
		check(os.Remove(tmp))
		plantIn := exec.Command("ln", "-s", "/etc", tmp)
		return plantIn.Run()
	}))

	after, err := os.Stat(secret)
	check(err)
	text, err := os.ReadFile(secret)
	check(err)
	if string(text) != "[ERROR] root's own\n" || *after.Sys().(*syscall.Stat_t) != withAtime(*before.Sys().(*syscall.Stat_t), after) {
		t.Errorf("root's file is %q, %v", text, fmt.Sprintf("%+v", after.Sys()))
	}
}

// initialized is nil if initialize refuses a folder that is a link.
func (c Config) initialized(fill func(tmp string) error) error {
	c.Dir += "-other"
	err := c.initialize(context.Background(), 0, fill)
	if err == nil || !strings.Contains(err.Error(), "not a folder") {
		return fmt.Errorf("a link became the data directory: %v", err)
	}
	return nil
}

// withAtime is before with the access time of after, which reading changes.
func withAtime(before syscall.Stat_t, after os.FileInfo) syscall.Stat_t {
	before.Atim = after.Sys().(*syscall.Stat_t).Atim
	return before
}
