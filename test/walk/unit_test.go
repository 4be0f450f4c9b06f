package walk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/child"
	"trireme/lab/testkit"
	"trireme/lab/wan"
)

// TestMain is systemctl, journalctl, ssh or its server, where this program has that name.
func TestMain(m *testing.M) {
	child.Main(wan.Forwarder)
	do := map[string]func([]string) error{"systemctl": systemctl, "journalctl": journalctl,
		"ssh": ssh, "sshd": sshd}[filepath.Base(os.Args[0])]
	if do == nil {
		os.Exit(testkit.Run(m))
	}
	if err := do(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// sshd runs what ssh sends: one command for each connection.
func sshd([]string) error {
	l, err := net.Listen("tcp", ":22")
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var command string
			if json.NewDecoder(c).Decode(&command) != nil {
				return
			}
			out, err := exec.Command("/bin/bash", "-c", command).CombinedOutput()
			_ = json.NewEncoder(c).Encode(ended{Out: out, Failed: err != nil})
		}()
	}
}

// ended is what became of a command.
type ended struct {
	Out    []byte
	Failed bool
}

// ssh [USER@]HOST COMMAND…
func ssh(args []string) error {
	host := args[0][strings.LastIndex(args[0], "@")+1:]
	c, err := net.Dial("tcp", net.JoinHostPort(host, "22"))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(strings.Join(args[1:], " ")); err != nil {
		return err
	}
	var e ended
	if err := json.NewDecoder(c).Decode(&e); err != nil {
		return err
	}
	_, _ = os.Stdout.Write(e.Out)
	if e.Failed {
		return errors.New("the command has failed")
	}
	return nil
}

// Of the unit, on its host.
const (
	unitPID   = "/run/trireme.pid"
	unitReady = "/run/trireme.ready" // it has said so
	unitEnded = "/run/trireme.ended" // its process has ended; the next one may run
	unitLog   = "/var/log/trireme.log"
)

// systemctl carries out what pages use of it.
func systemctl(args []string) error {
	at := slices.Contains(args, "--now")
	switch verb := args[0]; {
	case verb == "run-unit":
		return runUnit()
	case verb == "restart":
		return errors.Join(stopUnit(), startUnit())
	case verb == "start", verb == "enable" && at:
		return startUnit()
	case verb == "stop", verb == "disable" && at:
		return stopUnit()
	case verb == "enable", verb == "disable":
		return nil
	}
	return fmt.Errorf("this systemctl does not know %q", args)
}

// journalctl -u trireme [-n N] prints what the unit has logged, or the last lines of it.
func journalctl(args []string) error {
	lines := "+1"
	switch {
	case len(args) == 4 && args[2] == "-n":
		lines = args[3]
	case len(args) != 2:
		return fmt.Errorf("this journalctl does not know %q", args)
	}
	cmd := exec.Command("tail", "-n", lines, unitLog)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// runningUnit is the process that runs the unit; 0: none does.
func runningUnit() int {
	b, err := os.ReadFile(unitPID)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

func startUnit() error {
	if runningUnit() != 0 {
		return nil
	}
	_, _ = os.Remove(unitReady), os.Remove(unitEnded)
	log, err := os.OpenFile(unitLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "run-unit")
	cmd.Args[0] = "systemctl"
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(unitPID, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	ctx, ended := context.WithCancel(context.Background())
	go func() { _ = cmd.Wait(); ended() }()
	return poll.Until(ctx, func(context.Context) error {
		if _, err := os.Stat(unitReady); err == nil {
			return nil
		}
		if _, err := os.Stat(unitEnded); err == nil {
			ended() // as systemd's job fails then; the unit is started again
		}
		return fmt.Errorf("the unit has ended before it was ready; its log is %s", unitLog)
	})
}

func stopUnit() error {
	pid := runningUnit()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	return poll.Until(context.Background(), func(context.Context) error {
		if runningUnit() == pid {
			return errors.New("the unit runs")
		}
		return nil
	})
}

// runUnit runs `trireme node` as its unit file says.
func runUnit() error {
	const socket = "/run/trireme.notify"
	_ = os.Remove(socket)
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := notify.Read(b)
			if err != nil {
				return
			}
			if slices.Contains(strings.Split(string(b[:n]), "\n"), "READY=1") {
				_ = os.WriteFile(unitReady, nil, 0o644)
			}
		}
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for {
		cmd := exec.Command("/usr/bin/trireme", "node")
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var err error
		stopped := false
		select {
		case err = <-ended:
		case <-stop:
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			err = <-ended
		}
		_ = os.WriteFile(unitEnded, nil, 0o644)
		if stopped || err == nil || cmd.ProcessState.ExitCode() == 4 {
			return err
		}
		_ = poll.Pause(context.Background(), time.Second) // RestartSec
	}
}
