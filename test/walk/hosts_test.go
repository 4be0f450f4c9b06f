package walk

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/wan"
)

// hosts are emulated hosts with all that a package installs. They end with the test.
type hosts struct {
	t       *testing.T
	pid     map[string]int // of each host's first process
	network *wan.Net
}

// hostPath is PATH on a host.
const hostPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/mysql/bin"

// first is what a host's first process does: it makes the host's root file system and then takes what is orphaned.
const first = `set -e
mount --make-rprivate /
# A copy of another test's FUSE mount would keep that from ending.
awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r dir; do umount -l "$dir"; done
mount -t tmpfs tmpfs "$DIR"
mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$DIR/upper,workdir=$DIR/work" "$DIR/root"
cd "$DIR/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
chmod 1777 tmp
mkdir -p opt/mysql var/lib/trireme etc/trireme
mount --bind "$MYSQL" opt/mysql
rm -rf root/.config
printf '#!/bin/sh\nexec /opt/mysql/bin/mysqld "$@"\n' >usr/sbin/mysqld
chmod 755 usr/sbin/mysqld
# The only package is a later trireme.
printf '#!/bin/sh\nexec cp --remove-destination /usr/local/lib/trireme-next /usr/bin/trireme\n' >usr/local/sbin/apt-get
chmod 755 usr/local/sbin/apt-get
cp "$NEXT" usr/local/lib/trireme-next
cp "$TRIREME" usr/bin/trireme
cp "$UNIT" usr/lib/systemd/system/
mkdir -p run/systemd/system
for name in systemctl journalctl ssh sshd; do cp "$SELF" usr/local/sbin/$name; done
printf '%s' "$NAMES" >etc/hosts
hostname "$NAME"
getent group mysql >/dev/null || chroot . groupadd --system mysql
getent passwd mysql >/dev/null || chroot . useradd --system --gid mysql --no-create-home --home-dir /nonexistent mysql
chmod 0711 var/lib/trireme
env -i HOME=/root "PATH=$HOST_PATH" chroot . /usr/local/sbin/sshd </dev/null >/dev/null 2>&1 &
exec chroot . /bin/bash -c 'echo up; while :; do sleep 3600 & wait $!; done'
`

// startHosts starts hosts that have one of testkit's programs as trireme.
func startHosts(t *testing.T, program string, names ...string) *hosts {
	t.Helper()
	bin := needs.MySQL(t)
	topology, err := wan.Load("lan")
	if err != nil {
		t.Fatal(err)
	}
	network, err := wan.New(topology, names)
	needs.Netns(t, err)
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	var all strings.Builder
	all.WriteString("127.0.0.1 localhost\n")
	for _, name := range names {
		fmt.Fprintf(&all, "%s %s %s.new\n", network.Host(name).Addr, name, name)
	}
	unit, err := filepath.Abs("../../packaging/trireme.service")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &hosts{t: t, pid: map[string]int{}, network: network}
	for _, name := range names {
		cmd := exec.Command("/bin/bash", "-c", first)
		cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "NEXT="+testkit.Program(t, testkit.Next),
			"NAME="+name, "NAMES="+all.String(),
			"SELF="+self, "UNIT="+unit, "HOST_PATH="+hostPath,
			"TRIREME="+testkit.Program(t, program), "MYSQL="+filepath.Dir(filepath.Dir(bin.Path)))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
		up, ended := make(chan error, 1), make(chan struct{})
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var complaint strings.Builder
		cmd.Stderr = &complaint
		go func() { // a thread that starts a process with a death signal has to outlive it
			defer close(ended)
			_ = network.Host(name).Do(func() error {
				if err := cmd.Start(); err != nil {
					up <- err
					return err
				}
				b := make([]byte, 3)
				_, err := out.Read(b)
				up <- err
				return cmd.Wait()
			})
		}()
		err = <-up
		t.Cleanup(func() {
			if cmd.Process != nil {
				_ = cmd.Process.Kill() // and with it all that runs on the host
			}
			<-ended
		})
		if err != nil {
			t.Fatalf("%s does not start: %v: %s", name, err, complaint.String())
		}
		h.pid[name] = cmd.Process.Pid
	}
	return h
}

// commandLimit is for one command, whatever it is.
const commandLimit = time.Minute

// on is a command as root on a host.
func (h *hosts) on(ctx context.Context, host, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(h.pid[host]), "--mount", "--uts", "--net", "--pid",
		"--root", "--wd", "--", "/bin/bash", "-c", command)
	cmd.Env = []string{"HOME=/root", "TERM=dumb", "LANG=C.UTF-8", "MYSQL_PWD=secret", "PATH=" + hostPath}
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs a command, with a file as its standard input, and returns what it prints.
func (h *hosts) run(host, command, input string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := h.on(ctx, host, command)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// answer runs a command, types answers to what it asks, and returns what a terminal shows.
func (h *hosts) answer(host, command string, answers []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := h.on(ctx, host, command)
	typed, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	screen := &screen{typed: typed, answers: answers}
	cmd.Stdout, cmd.Stderr = screen, screen
	err = cmd.Run()
	return screen.text.String(), err
}

// A screen is a terminal on which somebody answers.
type screen struct {
	text    strings.Builder
	typed   io.Writer
	answers []string
}

var (
	// a number that is asked for by its name: on a page it is another one
	askedNumber = regexp.MustCompile(`(\d+)\D*to continue: $`)
	gtidText    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`) // likewise
)

func (s *screen) Write(p []byte) (int, error) {
	s.text.Write(p)
	if strings.HasSuffix(s.text.String(), "to continue: ") && len(s.answers) > 0 {
		answer := s.answers[0] + "\n"
		if m := askedNumber.FindStringSubmatch(s.text.String()); m != nil && number.FindString(answer) == s.answers[0] {
			answer = m[1] + "\n"
		} else if gtidText.MatchString(answer) {
			answer = gtidText.FindString(s.text.String()) + "\n"
		}
		s.answers = s.answers[1:]
		s.text.WriteString(answer)
		if _, err := io.WriteString(s.typed, answer); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// mustRun is run for what a page does not show.
func (h *hosts) mustRun(host, command, input string) string {
	h.t.Helper()
	out, err := h.run(host, command, input)
	if err != nil {
		h.t.Fatalf("%s# %s: %v: %s", host, command, err, out)
	}
	return out
}
