package robustness

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/backup"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

// TestBackupRefuses: a backup into a target that is full says so, and is made by the same command once there is room.
// What cannot be restored of it is refused, each with its reason: a wrong key, a moment that it does not hold, a
// segment or a file that is damaged or gone, a target that is not empty or has no room, what a killed restoration has
// left. Nothing is left where it was to go, no server runs there, and the backup is whole afterwards. It takes less
// than a minute.
func TestBackupRefuses(t *testing.T) {
	needs.Long(t)
	if os.Geteuid() != 0 {
		cannot(t, "only root may mount a file system of a limited size")
	}
	began := time.Now()
	step := func(what string) { t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond)) }
	c, follower, w, a := kept(t)
	key := filepath.Join(a.dir, "key")
	a.done("backup", "new-key", key)

	dir := filepath.Join(a.dir, "backup")
	grow := smallDisk(t, dir)
	flags := []string{"--key-file", key, "--config", filepath.Join(follower.Dir, config.NodeFileName)}
	take := append([]string{"backup", "--to", dir}, flags...)
	a.refused(api.KindNoSpace, dir, take...)
	a.stopped(dir)
	grow("2g")
	whole := &disk{c, dir}
	a.whileServing(dir, take, api.KindNoSpace, func(*exec.Cmd) {
		eventually(t, healLimit, "CLONE is under way", func() error {
			_, err := os.Stat(filepath.Join(dir, "work", "seed", "clone", "ibdata1"))
			return err
		})
		whole.fill()
	})
	whole.empty()
	step("a full target")
	a.done(take...)
	step("a copy")
	for range 2 { // each ends a segment
		w.run("INSERT INTO kept.t (v) VALUES (REPEAT('x', 1000))")
		last := c.view().CommitIndex
		f := &archiving{t: t, args: append(slices.Clone(take), "--follow")}
		f.start()
		eventually(t, healLimit, "the archive has it", func() error {
			f.keep()
			if names := archivedIn(t, dir); lastEntry(t, names[len(names)-1]) < last {
				return errors.New(names[len(names)-1])
			}
			return nil
		})
		f.stop()
	}
	w.run("DROP DATABASE kept")
	names := archivedIn(t, dir)
	if len(names) < 3 {
		t.Fatalf("segments: %v", names)
	}
	last, middle := names[len(names)-1], names[len(names)-2]
	files, err := filepath.Glob(filepath.Join(dir, "base", "*", "data", "ibdata1*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	step("a backup")

	to := filepath.Join(a.dir, "restored")
	restore := func(more ...string) []string {
		return append([]string{"restore", "--from", dir, "--data", to, "--port", fmt.Sprint(a.base + 8)}, more...)
	}
	refused := func(kind api.Kind, more ...string) {
		t.Helper()
		a.refused(kind, "", restore(more...)...)
		if left, err := os.ReadDir(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v is left, %v", kind, left, err)
		}
		a.stopped(to)
	}
	other := filepath.Join(a.dir, "other")
	a.done("backup", "new-key", other)
	refused(api.KindKey)
	refused(api.KindKey, "--key-file", other)
	for _, moment := range []string{"--to-index=1", fmt.Sprintf("--to-index=%d", lastEntry(t, last)+1),
		"--to-time=2090-01-01T00:00:00Z", "--to-gtid=3e11fa47-71ca-11e1-9e33-c80aa9429562:1"} {
		refused(api.KindNotInBackup, "--key-file", key, moment)
	}
	damaged := func(path string) {
		t.Helper()
		var v backup.Verification
		a.inJSON(1, &v, "backup", "verify", dir, "--key-file", key)
		if len(v.Problems) == 0 {
			t.Errorf("%s is damaged or missing: %+v", path, v.Problems)
		}
	}
	for _, path := range []string{last, middle, files[0]} {
		good, err := os.ReadFile(path)
		must(t, err)
		bad := slices.Clone(good)
		bad[len(bad)/2] ^= 1
		must(t, os.WriteFile(path, bad, 0o600))
		refused(api.KindCorrupt, "--key-file", key)
		damaged(path)
		must(t, os.Remove(path))
		refused(api.KindMissing, "--key-file", key)
		damaged(path)
		must(t, os.WriteFile(path, good, 0o600))
	}
	a.done("backup", "verify", dir, "--key-file", key)
	step("damage")

	must(t, os.Mkdir(to, 0o700))
	mine := filepath.Join(to, "mine")
	must(t, os.WriteFile(mine, []byte("mine"), 0o600))
	a.refused(api.KindNotEmpty, to, restore("--key-file", key)...)
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("what was there is gone: %q, %v", b, err)
	}
	must(t, os.RemoveAll(to))
	small := filepath.Join(a.dir, "small")
	grow = smallDisk(t, small)
	to = filepath.Join(small, "restored")
	refused(api.KindNoSpace, "--key-file", key)
	grow("2g")
	full := &disk{c, small}
	a.whileServing(to, restore("--key-file", key), api.KindNoSpace, func(*exec.Cmd) {
		eventually(t, healLimit, "it gives up", func() error {
			full.fill() // whatever becomes free
			if pids := serversIn(t, to); len(pids) > 0 {
				return fmt.Errorf("processes %v", pids)
			}
			return nil
		})
	})
	full.empty()
	if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
		t.Errorf("on a full target: %v, %v", left, err)
	}
	step("targets")

	a.whileServing(to, restore("--key-file", key), "", func(cmd *exec.Cmd) { must(t, cmd.Process.Kill()) })
	a.refused(api.KindNotEmpty, to, restore("--key-file", key)...)
	must(t, os.RemoveAll(to))
	var done backup.Restored
	if a.inJSON(0, &done, restore("--key-file", key)...); done.Index != lastEntry(t, last) {
		t.Errorf("%+v", done)
	}
	a.stopped(to)
	step("a restoration that was killed, and one that was not")
}

// whileServing does something to a command, which then must fail in one way (empty: it is killed), once a server runs
// in a directory; the server is to end with it.
func (a *adopted) whileServing(dir string, args []string, kind api.Kind, do func(*exec.Cmd)) {
	t := a.t
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), append(args, "--json")...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	must(t, cmd.Start())
	eventually(t, healLimit, "a server in "+dir, func() error {
		if len(serversIn(t, dir)) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	do(cmd)
	if err := cmd.Wait(); err == nil {
		t.Errorf("trireme %s does not fail", args[0])
	}
	if kind != "" {
		if err := failedAs(cmd.ProcessState.ExitCode(), out.Bytes(), kind, args[0]); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%s", said.String())
	a.stopped(dir)
}

// smallDisk mounts a file system of 8 MiB; grow gives it another size.
func smallDisk(t *testing.T, dir string) (grow func(size string)) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		cannot(t, fmt.Sprintf("no file system of a limited size can be mounted here: %v", err))
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return func(size string) {
		t.Helper()
		must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size="+size))
	}
}

// archivedIn lists the segments of an archive in log order.
func archivedIn(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log", "*-*.seg"))
	must(t, err)
	if len(names) == 0 {
		t.Fatalf("%s has no segments", dir)
	}
	slices.Sort(names)
	return names
}

// stopped: no server runs in a directory, or it is just ending.
func (a *adopted) stopped(dir string) {
	a.t.Helper()
	eventually(a.t, 20*time.Second, "no server on "+dir, func() error {
		if pids := serversIn(a.t, dir); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
}

// serversIn lists the processes whose command line names something in a directory: mysqlds that run there.
func serversIn(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, p := range all {
		b, err := os.ReadFile(p) // gone meanwhile: none
		if err == nil && strings.Contains(string(b), "mysqld\x00") && strings.Contains(string(b), "="+dir+"/") {
			pids = append(pids, filepath.Base(filepath.Dir(p)))
		}
	}
	return pids
}
