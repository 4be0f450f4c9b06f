package mysqld

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// reachable reports whether everybody may enter all folders above path.
func reachable(path string) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil || st.Mode().Perm()&0o005 != 0o005 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

// folderForNobody is for a test of root, in which mysqld runs as the user nobody: it returns a folder that every user
// can enter, as t.TempDir is not, and the ids of nobody.
func folderForNobody(t *testing.T) (dir string, uid, gid int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can run mysqld as another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ = strconv.Atoi(nobody.Uid)
	gid, _ = strconv.Atoi(nobody.Gid)
	if dir, err = os.MkdirTemp("/tmp", "trireme-nobody"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, uid, gid
}

// A daemon that is root runs mysqld as another user, and mysqld dies with it all the same: a change of user after the
// fork would clear the parent-death signal (prctl(2)).
func TestOtherUser(t *testing.T) {
	dir, uid, _ := folderForNobody(t)
	cfg := testConfig(t, filepath.Join(dir, "n"))
	if !reachable(cfg.Binary.Path) {
		t.Skipf("user nobody cannot reach %s", cfg.Binary.Path)
	}
	cfg.OSUser = "nobody"
	if err := Initialize(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	copied := cfg
	copied.Dir, copied.Port = filepath.Join(dir, "copy"), freePort(t)
	if err := InitializeFrom(testContext(t), copied, cfg.Dir); err != nil {
		t.Fatal(err)
	}
	s := started(t, copied)
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.Pid()), "status"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t%d\t%d", uid, uid, uid)) {
		t.Fatalf("%s", status)
	}
	if err := s.StopPolitely(testContext(t)); err != nil {
		t.Fatal(err)
	}
	diesWithParent(t, cfg)
}

// diesWithParent starts cfg's server in another process, kills that, and wants the server gone.
func diesWithParent(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Logger = nil
	env, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(testContext(t), os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+string(env))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var pid int
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "pid %d", &pid); err == nil {
			break
		}
		if strings.HasPrefix(lines.Text(), "error") {
			t.Fatal(lines.Text())
		}
	}
	if pid == 0 || !alive(pid) {
		t.Fatalf("mysqld %d does not run", pid)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_ = parent.Wait()
	eventually(t, "mysqld dead", func() bool { return !alive(pid) })
	t.Logf("mysqld was gone %v after its daemon", time.Since(began).Round(time.Millisecond))
}
