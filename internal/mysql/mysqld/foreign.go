package mysqld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/durable"
	"trireme/internal/base/poll"
)

// Foreign is a mysqld that somebody else has started, found by its data directory.
type Foreign struct {
	Pid  int
	Args []string // its command line
	UID  int      // user that it runs as
	Unit string   // systemd service that it belongs to, by its control group; empty: none
}

// OnData finds the mysqld that works in a data directory, or in one that was renamed to it: mysqld makes it its current
// folder. ok is false if this process sees no such mysqld.
func OnData(dir string) (f Foreign, ok bool, err error) {
	all, err := processes()
	if err != nil {
		return f, false, err
	}
	want, err := os.Stat(dir)
	if err != nil {
		return f, false, fmt.Errorf("data directory: %w", err)
	}
	for _, p := range all {
		if !p.isMysqld() || !p.worksIn(want) {
			continue
		}
		uid, _, err := ownerOf(filepath.Join("/proc", strconv.Itoa(p.pid)))
		if err != nil {
			continue // it has just ended
		}
		return Foreign{Pid: p.pid, Args: p.args, UID: uid, Unit: unitOf(p.pid)}, true, nil
	}
	return f, false, nil
}

// Runs reports whether the process is still there: not a zombie, and not another one of the same number.
func (f Foreign) Runs() bool {
	p, ok := readProcess(f.Pid)
	return ok && slices.Equal(p.args, f.Args)
}

// unitOf reads the systemd service from a process's control group: "0::/system.slice/mysql.service".
func unitOf(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if base := filepath.Base(strings.TrimSpace(line)); strings.HasSuffix(base, ".service") {
			return base
		}
	}
	return ""
}

// TakeOver makes a data directory ours that another server had, by renaming it: nothing is copied. move does it, from
// wherever the data lies to the folder that it is given; it is called when nothing else can fail any more. Errors:
// Validate's, ErrInitialized, ErrForeignData.
func TakeOver(cfg Config, move func(to string) error) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := cfg.checkAbsent(); err != nil {
		return err
	}
	if err := cfg.makeDirs(); err != nil {
		return err
	}
	// As in initialize: without data the marker means nothing.
	if err := cfg.writeMarker(); err != nil {
		return err
	}
	if err := move(cfg.DataDir()); err != nil {
		return err
	}
	return durable.SyncDir(cfg.Dir)
}

// AdoptStatements make Trireme's own accounts on a running server of somebody else's. They go to its binary log, and
// with it to its replicas. Accounts of these names that an earlier cluster has left are replaced.
func (c Config) AdoptStatements() []string {
	return append(c.DropStatements(), c.ownAccounts()...)
}

// DropStatements take Trireme's own accounts away.
func (c Config) DropStatements() []string {
	var q []string
	for _, who := range c.ownNames() {
		q = append(q, "DROP USER IF EXISTS "+who)
	}
	return q
}

// ownNames are Trireme's accounts as SQL names them.
func (c Config) ownNames() []string {
	var names []string
	for _, a := range c.localAccounts() {
		names = append(names, quote(a.User)+"@"+quote(a.host))
	}
	if c.Clone.User != "" {
		names = append(names, quote(c.Clone.User)+"@'%'")
	}
	return names
}

// Fate is what becomes of an option of a server that is adopted.
type Fate struct {
	Kept  bool   // it may go to mysql.options as it is
	Same  bool   // Trireme gives it the value that it has
	Value string // what Trireme gives it; empty: nothing
	Why   string // it may not be kept
}

// notTaken are options of a server that say where its program lies, or are no options of a start.
var notTaken = []string{"basedir", "plugin_dir", "lc_messages_dir", "character_sets_dir", "gtid_purged", "gtid_next"}

// FateOf says what becomes of an option.
func (c Config) FateOf(name, value string) Fate {
	key := canonical(name)
	for _, s := range c.enforced() {
		if s.name == key && key != "plugin_load_add" {
			return Fate{Value: s.value, Same: sameValue(s.value, value), Why: s.why}
		}
	}
	if s, refused := refusedOption(key); refused {
		return Fate{Why: s.why}
	}
	if slices.Contains(notTaken, key) {
		return Fate{Why: "it belongs to the installation"}
	}
	for _, s := range c.defaults() {
		if canonical(s.name) == key {
			return Fate{Kept: true, Value: s.value, Same: sameValue(s.value, value)}
		}
	}
	return Fate{Kept: true}
}

// validateLimit bounds mysqld --validate-config.
const validateLimit = 30 * time.Second

// ValidateOptions has mysqld itself read the settings that it would be started with; nothing is touched. The error has
// mysqld's words.
func (c Config) ValidateOptions(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "trireme-options-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "my.cnf")
	// Its own log would be below a directory that may not be there yet.
	text := c.options() + "log_error=\"stderr\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, validateLimit)
	defer cancel()
	args := []string{"--defaults-file=" + file, "--validate-config"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	out, err := exec.CommandContext(ctx, c.Binary.Path, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	var said []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "[ERROR]") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if said == nil {
		return fmt.Errorf("%s --validate-config: %w: %s", c.Binary.Path, err, firstLine(string(out)))
	}
	return fmt.Errorf("%w: %s", ErrConfig, strings.Join(said, "; "))
}

// errStillThere ends AwaitEnd.
var errStillThere = errors.New("it still runs")

// AwaitEnd waits until the process is gone.
func (f Foreign) AwaitEnd(ctx context.Context) error {
	for f.Runs() {
		if poll.Pause(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("mysqld %d: %w: %w", f.Pid, errStillThere, ctx.Err())
		}
	}
	return nil
}
