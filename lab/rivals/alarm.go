package rivals

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
)

// Watched is a Breakable whose processes report when one of their own rules is broken. A process that ends is started
// again, so without the report its end would go unnoticed.
type Watched interface {
	Breakable
	// Alarms that have come since the last call.
	Alarms() []Alarm
}

// Alarm is one thing that no fault but those of disks explains.
type Alarm struct {
	Host string
	What AlarmKind
	Text string    // the line of the log, or how it ended
	At   time.Time // when it happened, or was seen where nothing tells
}

func (a Alarm) String() string { return fmt.Sprintf("%s: %s: %s", a.Host, a.What, a.Text) }

// AlarmKind says what was seen.
type AlarmKind string

// The kinds of alarms.
const (
	DaemonEnded  AlarmKind = "its daemon ended by itself"     // and by no signal of ours
	RuleBroken   AlarmKind = "its daemon found a broken rule" // or panicked
	MySQLCrashed AlarmKind = "its mysqld failed an assertion"
)

// watch collects the alarms of a cluster.
type watch struct {
	mu     sync.Mutex
	struck map[string]bool // nodes whose daemon has been sent a signal that ends it
	found  []Alarm
	read   map[string]int64 // how far each log has been looked through
	// mysqld's lines, by their time and by what they say: a log that a power loss made shorter shows them again
	told map[string]bool
}

func newWatch() *watch {
	return &watch{struck: map[string]bool{}, read: map[string]int64{}, told: map[string]bool{}}
}

// strike notes that a node's daemon is about to be ended by us.
func (w *watch) strike(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.struck[node] = true
}

// exit takes down how a daemon ended. One that was struck ends by that signal, or politely.
func (w *watch) exit(node string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := w.struck[node]
	delete(w.struck, node)
	if ours && (err == nil || killed(err)) {
		return
	}
	text := "exit status 0"
	if err != nil {
		text = err.Error()
	}
	w.found = append(w.found, Alarm{Host: node, What: DaemonEnded, Text: text, At: time.Now()})
}

func killed(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// alarms gives what has come since the last call, once the logs of some nodes have been looked through.
func (w *watch) alarms(logs []nodeLogs) []Alarm {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range logs {
		w.look(l)
	}
	out := w.found
	w.found = nil
	return out
}

// look through what a node's logs have got.
func (w *watch) look(l nodeLogs) {
	for _, line := range w.fresh(l.daemon) {
		if brokenRule(line) {
			w.found = append(w.found, Alarm{Host: l.node, What: RuleBroken, Text: line, At: time.Now()})
		}
	}
	for _, line := range w.fresh(l.mysqld) {
		// A power loss may take either end of a line that was told already.
		when, where, failed := strings.Cut(line, "Assertion failure")
		when, where = l.node+" "+when, l.node+" "+where
		known := w.told[when] || strings.Contains(when, "\x00") && w.told[where]
		if failed && !known {
			w.told[when], w.told[where] = true, true
			w.found = append(w.found, Alarm{Host: l.node, What: MySQLCrashed, Text: line, At: lineAt(line)})
		}
	}
}

// lineAt is when mysqld wrote a line of its error log; a look at the log may come much later on a busy machine.
func lineAt(line string) time.Time {
	now := time.Now()
	when, _, _ := strings.Cut(line, " ")
	if at, err := time.Parse(time.RFC3339Nano, when); err == nil && at.Before(now) {
		return at
	}
	return now
}

// forget a node that is removed, once its logs have been read. One of its name begins another error log.
func (w *watch) forget(l nodeLogs) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(l)
	delete(w.read, l.mysqld)
	delete(w.struck, l.node)
}

// nodeLogs are the files that tell about a node; mysqld is empty for a logger.
type nodeLogs struct{ node, daemon, mysqld string }

// ruleKey is how a daemon's log names a rule of docs/GUARANTEES.md that it found broken, whatever the message says.
const ruleKey = " rule=S"

// brokenRule recognises that key, and what Go's runtime writes.
func brokenRule(line string) bool {
	return strings.Contains(line, ruleKey) || strings.Contains(line, "panic") || strings.HasPrefix(line, "fatal error: ")
}

// fresh returns the whole lines that a log has got since it was last read. One that is not there, or cannot be read
// because its disk has no power, is read later; one that is shorter than it was is another one.
func (w *watch) fresh(path string) []string {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	from := w.read[path]
	if info.Size() < from {
		from = 0
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	w.read[path] = from + int64(whole)
	return strings.Split(strings.TrimSuffix(string(b[:whole]), "\n"), "\n")
}

// Alarms of all members as they are now.
func (t *trireme) Alarms() []Alarm {
	var logs []nodeLogs
	for _, n := range t.Nodes() {
		logs = append(logs, t.logs(n))
	}
	return t.watch.alarms(logs)
}

func (t *trireme) logs(n *demo.Node) nodeLogs {
	l := nodeLogs{node: n.Name, daemon: t.LogFile(n)}
	if n.Role != config.RoleLogger {
		l.mysqld = filepath.Join(n.Dir, "mysql", "log", "mysqld.err")
	}
	return l
}

// keep one node's daemon running, and notice when it ends by itself.
func (t *trireme) keep(n *demo.Node) {
	t.Keep(n, restart, func(n *demo.Node, err error) { t.watch.exit(n.Name, err) })
}
