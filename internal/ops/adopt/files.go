package adopt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/setup"
)

const journalName = "adopted.json"

// journal says what was where. It is on disk before anything is moved.
type journal struct {
	DataDir string   `json:"datadir"`
	Command []string `json:"command"` // that had started the server
	Unit    string   `json:"unit,omitempty"`
	Base    string   `json:"gtid_executed"`
	// UID is the user that the server ran as. Only what is his is moved, when we are root: the server said where it lies.
	// 0: anything.
	UID    int      `json:"uid,omitempty"`
	Locked []string `json:"locked,omitempty"` // accounts of replicas that were locked
	Moves  []move   `json:"moves"`            // in the order in which they are done
}

// move is one rename.
type move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (j *journal) save(dir string) error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, setup.BeforeAdopt)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(folder, journalName), append(b, '\n'), 0o600)
}

// readJournal reads what save wrote. Every journal moves at least the data directory, last.
func readJournal(dir string) (*journal, error) {
	path := filepath.Join(dir, setup.BeforeAdopt, journalName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no server that `trireme adopt` brought there", dir)
	}
	if err != nil {
		return nil, err
	}
	j := new(journal)
	if err := json.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(j.Moves) == 0 {
		return nil, fmt.Errorf("%s is damaged: it names nothing that was moved", path)
	}
	for _, m := range j.Moves {
		if !filepath.IsAbs(m.From) || !filepath.IsAbs(m.To) {
			return nil, fmt.Errorf("%s is damaged: it moves %q to %q", path, m.From, m.To)
		}
	}
	return j, nil
}

// planMoves lists the renames: what is not data first, the data directory last. Logs on another file system, and those
// that are not the server's user's, stay where they are. No folder of the server's is named by way of a link.
func planMoves(f *facts, dir, dataTo string) (moves []move, left []string) {
	add := func(from, to string) {
		if folder, err := filepath.EvalSymlinks(filepath.Dir(from)); err == nil {
			from = filepath.Join(folder, filepath.Base(from))
		}
		// The folder's, not the file's: on overlay file systems these differ, and the folder counts for a rename.
		if device(filepath.Dir(from)) != device(dir) || belongs(unix.AT_FDCWD, from, f.Process.UID) != nil {
			left = append(left, from)
			return
		}
		moves = append(moves, move{From: from, To: filepath.Join(dir, setup.BeforeAdopt, to, filepath.Base(from))})
	}
	for _, l := range []struct{ base, index, to string }{
		{f.Vars["log_bin_basename"], f.Vars["log_bin_index"], "binlog"},
		{f.Vars["relay_log_basename"], f.Vars["relay_log_index"], "relay"},
	} {
		if l.base == "" {
			continue
		}
		// base.000001, and base-CHANNEL.000001 of relay logs.
		for _, pattern := range []string{".[0-9]*", "-*.[0-9]*", "-*.index"} {
			files, _ := filepath.Glob(globEscape(l.base) + pattern) // the pattern is well formed
			for _, file := range files {
				add(file, l.to)
			}
		}
		if _, err := os.Lstat(l.index); err == nil {
			add(l.index, l.to)
		}
	}
	data := filepath.Clean(f.Vars["datadir"])
	if persisted := filepath.Join(data, "mysqld-auto.cnf"); fileExists(persisted) {
		add(persisted, "")
	}
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	return append(moves, move{From: data, To: dataTo}), left
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// carryOut renames in order; what was done is taken back when one fails.
func (j *journal) carryOut() error {
	for i, m := range j.Moves {
		if err := m.there(j.UID); err != nil {
			done := journal{Moves: j.Moves[:i]}
			if !fileExists(m.From) { // it was moved, and the disk did not take it
				done.Moves = j.Moves[:i+1]
			}
			return errors.Join(err, done.takeBack())
		}
	}
	return nil
}

// takeBack renames everything back that is there, the last first, which is the data. It goes no further than the first
// that fails.
func (j *journal) takeBack() error {
	for i := len(j.Moves) - 1; i >= 0; i-- {
		m := j.Moves[i]
		if !fileExists(m.To) {
			continue
		}
		if fileExists(m.From) {
			return fmt.Errorf("%s is there again, so %s was not moved back: somebody has made a new one; move it away", m.From,
				m.To)
		}
		if err := m.back(); err != nil {
			return err
		}
	}
	return nil
}

// there moves what belongs to the user uid to the node's directory; durable when it returns.
func (m move) there(uid int) error {
	if err := os.MkdirAll(filepath.Dir(m.To), 0o700); err != nil {
		return err
	}
	return m.between(func(theirs, ours *os.File) error {
		if err := belongs(int(theirs.Fd()), filepath.Base(m.From), uid); err != nil {
			return err
		}
		return unix.Renameat(int(theirs.Fd()), filepath.Base(m.From), int(ours.Fd()), filepath.Base(m.To))
	})
}

// back undoes there.
func (m move) back() error {
	return m.between(func(theirs, ours *os.File) error {
		return unix.Renameat(int(ours.Fd()), filepath.Base(m.To), int(theirs.Fd()), filepath.Base(m.From))
	})
}

// between renames between a folder of the server's, whose user may put links there at any time, and one of the node's.
func (m move) between(rename func(theirs, ours *os.File) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("move between %s and %s: %w", m.From, m.To, err)
		}
	}()
	theirs, err := openPlain(filepath.Dir(m.From))
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	ours, err := os.Open(filepath.Dir(m.To))
	if err != nil {
		return err
	}
	defer func() { _ = ours.Close() }()
	if err := rename(theirs, ours); err != nil {
		return err
	}
	return errors.Join(theirs.Sync(), ours.Sync())
}

// openPlain opens a folder in whose path nothing is a link.
func openPlain(dir string) (*os.File, error) {
	at, flags := unix.AT_FDCWD, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC
	fd, err := unix.Openat(at, "/", flags, 0)
	for _, name := range strings.Split(strings.Trim(filepath.Clean(dir), "/"), "/") {
		if err != nil {
			return nil, fmt.Errorf("open %s without following a link: %w", dir, err)
		}
		if name != "" {
			at = fd
			fd, err = unix.Openat(at, name, flags, 0)
			_ = unix.Close(at)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s without following a link: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// belongs refuses what is not the user's, or is no file or folder, when we are root and he is not.
func belongs(at int, name string, uid int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if os.Geteuid() == 0 && uid != 0 && (int(st.Uid) != uid || kind != unix.S_IFREG && kind != unix.S_IFDIR) {
		return fmt.Errorf("%s is not a file or folder of mysqld's user (%d, not %d)", name, st.Uid, uid)
	}
	return nil
}

// discard forgets a journal whose files are all back where they were.
func (j *journal) discard(dir string) error {
	for _, m := range j.Moves {
		if fileExists(m.To) {
			return fmt.Errorf("%s was not moved back to %s", m.To, m.From)
		}
	}
	return os.RemoveAll(filepath.Join(dir, setup.BeforeAdopt))
}

// again says how the old server is started again.
func (j *journal) again() string {
	text := "Start it as before: " + strings.Join(j.Command, " ")
	if j.Unit != "" {
		text = "Start it as before: systemctl start " + j.Unit
	}
	for _, who := range j.Locked {
		text += "\nthen, for its replicas: ALTER USER " + who + " ACCOUNT UNLOCK"
	}
	return text
}

// Undone is what Undo gave back.
type Undone struct {
	DataDir string `json:"data_dir"`
	Again   string `json:"again"` // how the server is started again
}

// Undo gives an adopted server's files back and removes the node's directory. It refuses once the data may hold what
// only the cluster knows: see written.
func Undo(dir string) (u Undone, err error) {
	j, err := readJournal(dir)
	if err != nil {
		return u, err
	}
	if _, err := written(dir); err != nil {
		return u, err
	}
	lock, err := mysqld.Lock(dir) // removed with dir; a daemon that is started meanwhile does not get it
	if err != nil {
		return u, err
	}
	defer lock.Unlock()
	ran, err := written(dir)
	if err != nil {
		return u, err
	}
	u = Undone{DataDir: j.DataDir, Again: j.again()}
	if ran {
		if err := j.forgetStart(); err != nil {
			return Undone{}, err
		}
		u.Again += "\nthen, if SHOW REPLICA STATUS names 127.0.0.1: STOP REPLICA; RESET REPLICA ALL"
	}
	if err := j.takeBack(); err != nil {
		return Undone{}, err
	}
	if err := j.discard(dir); err != nil {
		return Undone{}, err
	}
	if err := os.Remove(config.SettingsFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Undone{}, err
	}
	return u, os.RemoveAll(dir)
}

// written fails if the server may have executed transactions that only the cluster has. ran reports that the daemon was
// started without success, for example because its mysqld did not start. A cluster's first node opens writes only after
// it has noted in node.json that it leads; a node that has joined gets its transactions from others.
func written(dir string) (ran bool, err error) {
	state := filepath.Join(dir, "node.json")
	if !fileExists(state) && !fileExists(filepath.Join(dir, "raft")) {
		return false, nil
	}
	refused := fmt.Errorf("the daemon has run in %s, so the server may have taken writes that only the cluster knows; "+
		"`trireme leave` makes plain servers of a cluster", dir)
	id, err := config.LoadIdentity(dir)
	if err != nil || !id.Bootstrap {
		return true, refused
	}
	var s struct {
		Led []uint64 `json:"led"`
	}
	b, err := os.ReadFile(state)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(s.Led) > 0 {
		return true, refused
	}
	return true, nil
}

// forgetStart takes back what the start of a node's mysqld leaves in the data: a server_uuid of the cluster.
func (j *journal) forgetStart() error {
	data := j.Moves[len(j.Moves)-1].To
	if !fileExists(data) {
		return nil // it is back already
	}
	f, runs, err := mysqld.OnData(data)
	if err == nil && runs {
		err = fmt.Errorf("mysqld (process %d) still runs on %s: end it first", f.Pid, data)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
