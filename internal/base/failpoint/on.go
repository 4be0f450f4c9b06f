//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this program was built with the points.
const Enabled = true

// What a node's directory holds, and the environment.
const (
	envArm   = "TRIREME_FAILPOINTS"
	envDir   = "TRIREME_FAILPOINTS_DIR" // for the guard process, which shares the clock
	armFile  = "failpoints"
	sockFile = "failpoints.sock"
	fireFile = "failpoints.fired"
)

// armed is what is to happen at a point.
type armed struct {
	action string
	delay  time.Duration
	left   int // hits until then
}

var points = struct {
	sync.Mutex
	dir    string
	armed  map[string]*armed
	hits   map[string]int
	paused map[string]chan struct{}
}{armed: map[string]*armed{}, hits: map[string]int{}, paused: map[string]chan struct{}{}}

// Start reads what is armed for the daemon of the node in dir, and listens there.
func Start(dir string) error {
	points.Lock()
	points.dir = dir
	points.Unlock()
	if err := os.Setenv(envDir, dir); err != nil {
		return err
	}
	if err := openClock(dir); err != nil {
		return fmt.Errorf("failpoints: clock: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, armFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil { // a daemon that dies at a point and is started again must get past it
		if err := os.Remove(filepath.Join(dir, armFile)); err != nil {
			return err
		}
	}
	for _, list := range []string{os.Getenv(envArm), string(text)} {
		for _, spec := range strings.FieldsFunc(list, func(r rune) bool { return r == ';' || r == '\n' }) {
			if err := arm(strings.TrimSpace(spec)); err != nil {
				return err
			}
		}
	}
	return listen(filepath.Join(dir, sockFile))
}

// arm takes POINT=ACTION[@N].
func arm(spec string) error {
	if spec == "" {
		return nil
	}
	name, what, ok := strings.Cut(spec, "=")
	if !ok || !known(name) {
		return fmt.Errorf("failpoints: %q: no such point, or no action", spec)
	}
	a := &armed{left: 1}
	what, count, counted := strings.Cut(what, "@")
	if counted {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return fmt.Errorf("failpoints: %q: %q is not a number of hits", spec, count)
		}
		a.left = n
	}
	var arg string
	a.action, arg, _ = strings.Cut(what, ":")
	switch a.action {
	case "kill", "kill-mysqld", "stop", "pause", "error":
	case "delay":
		var err error
		if a.delay, err = time.ParseDuration(arg); err != nil {
			return fmt.Errorf("failpoints: %q: %w", spec, err)
		}
	default:
		return fmt.Errorf("failpoints: %q: no such action", spec)
	}
	points.Lock()
	defer points.Unlock()
	points.armed[name] = a
	return nil
}

func known(name string) bool {
	for _, p := range Points {
		if p.Name == name {
			return true
		}
	}
	return false
}

// disarm cancels everything that has not happened, and releases all that wait.
func disarm() {
	points.Lock()
	defer points.Unlock()
	clear(points.armed)
	for name, c := range points.paused {
		close(c)
		delete(points.paused, name)
	}
}

func release(name string) bool {
	points.Lock()
	defer points.Unlock()
	c := points.paused[name]
	if c != nil {
		close(c)
		delete(points.paused, name)
	}
	return c != nil
}

func hits(name string) int {
	points.Lock()
	defer points.Unlock()
	return points.hits[name]
}

// Hit is a point that its caller passes.
func Hit(name string) { _ = Err(name) }

// Err is a point at which its caller can fail.
func Err(name string) error {
	a, wait := take(name)
	if a == nil {
		return nil
	}
	switch a.action {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing may follow
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "kill-mysqld":
		killMysqld()
	case "delay":
		time.Sleep(a.delay)
	case "pause":
		<-wait
	case "error":
		return fmt.Errorf("%w %s", ErrArmed, name)
	}
	return nil
}

// take counts a hit, and returns what is to happen now, noted already; wait is for "pause".
func take(name string) (a *armed, wait chan struct{}) {
	points.Lock()
	defer points.Unlock()
	points.hits[name]++
	a = points.armed[name]
	if a == nil {
		return nil, nil
	}
	if a.left--; a.left > 0 {
		return nil, nil
	}
	delete(points.armed, name)
	note(name, a.action)
	if a.action == "pause" {
		wait = make(chan struct{})
		points.paused[name] = wait
	}
	return a, wait
}

// note writes down what is about to happen.
func note(name, action string) {
	f, err := os.OpenFile(filepath.Join(points.dir, fireFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s=%s\n", name, action)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(fmt.Sprintf("failpoint %s cannot be noted: %v", name, err)) // a test waits for the line
	}
}

// isMysqld finds the program among the arguments: the loader may have been started to run it.
func isMysqld(args string) bool {
	return slices.ContainsFunc(strings.Split(args, "\x00"), func(a string) bool { return filepath.Base(a) == "mysqld" })
}

// killMysqld kills the children of this process that are mysqld.
func killMysqld() {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if args, _ := os.ReadFile("/proc/" + f + "/cmdline"); err == nil && isMysqld(string(args)) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
