package mysqld

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAnotherMountNamespace: a mysqld with our paths that means other files by them, as in a container that shares our pid namespace, is not ours: nobody
// may take it for one that an earlier daemon has left behind, and kill it.
func TestAnotherMountNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes mount namespaces")
	}
	dir, other := t.TempDir(), t.TempDir()
	c := Config{Dir: dir}
	for _, d := range []string{c.DataDir(), filepath.Join(other, filepath.Base(c.DataDir())), filepath.Join(other, "unfinished")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	there := standIn(t, true, `mount --bind "`+other+`" "`+dir+`" && `, "--datadir="+c.DataDir())
	half := standIn(t, true, `mount --bind "`+other+`" "`+dir+`" && `, "--datadir="+filepath.Join(dir, "unfinished"))
	here := standIn(t, false, "", "--datadir="+c.DataDir())
	for _, tc := range []struct {
		name string
		p    process
		path string
		want bool
	}{
		{"another one's", there, c.DataDir(), false},
		{"another one's, which we do not have", half, filepath.Join(dir, "unfinished"), false},
		{"ours", here, c.DataDir(), true},
		{"ours by another spelling", here, c.DataDir() + "/.", true},
		{"of another directory", here, dir, false},
	} {
		if got := tc.p.names("--datadir=", tc.path); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	data, err := os.Stat(c.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	if there.worksIn(data) || !here.worksIn(data) {
		t.Errorf("works in our data directory: the other %v, ours %v", there.worksIn(data), here.worksIn(data))
	}
	// Gone while its mysqld runs: the name is all there is.
	if err := os.RemoveAll(c.DataDir()); err != nil {
		t.Fatal(err)
	}
	if !here.names("--datadir=", c.DataDir()) || there.names("--datadir=", c.DataDir()) {
		t.Error("a data directory that is gone")
	}
}

// standIn runs something that looks like a mysqld in its data directory until the test ends, in a mount namespace of its own or ours.
func standIn(t *testing.T, apart bool, before, datadir string) process {
	t.Helper()
	cmd := exec.Command("sh", "-c", before+`cd "${1#--datadir=}" && exec sh -c 'echo up; read x' mysqld "$1"`, "sh", datadir)
	if apart {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return process{pid: cmd.Process.Pid, args: []string{"mysqld", datadir}}
}
