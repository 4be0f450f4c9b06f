package adopt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"trireme/internal/config"
	"trireme/internal/mysqld"
	"trireme/internal/setup"
)

const journalName = "adopted.json"

// journal says what was where. It is on disk before anything is moved.
type journal struct {
	DataDir string   `json:"datadir"`
	Command []string `json:"command"` // that had started the server
	Unit    string   `json:"unit,omitempty"`
	Base    string   `json:"gtid_executed"`
	Locked  []string `json:"locked,omitempty"` // accounts of replicas that were locked
	Moves   []move   `json:"moves"`            // in the order in which they are done
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
	return config.WriteFile(filepath.Join(folder, journalName), append(b, '\n'))
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

// planMoves lists the renames: what is not data first, the data directory last. Logs on another file system stay where they are.
func planMoves(f *facts, dir, dataTo string) (moves []move, left []string) {
	add := func(from, to string) {
		if device(from) != device(dir) {
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
		if err := rename(m.From, m.To); err != nil {
			done := journal{Moves: j.Moves[:i]}
			if !fileExists(m.From) { // it was moved, and the disk did not take it
				done.Moves = j.Moves[:i+1]
			}
			return errors.Join(err, done.takeBack())
		}
	}
	return nil
}

// takeBack renames everything back that is there, the last first, which is the data. It goes no further than the first that fails.
func (j *journal) takeBack() error {
	for i := len(j.Moves) - 1; i >= 0; i-- {
		m := j.Moves[i]
		if !fileExists(m.To) {
			continue
		}
		if fileExists(m.From) {
			return fmt.Errorf("%s is there again, so %s was not moved back: somebody has made a new one; move it away", m.From, m.To)
		}
		if err := rename(m.To, m.From); err != nil {
			return err
		}
	}
	return nil
}

// rename is durable when it returns.
func rename(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(from), filepath.Dir(to)} {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
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

// Undo gives an adopted server's files back and removes the node's directory. It refuses once the data may hold what only the cluster knows:
// see written.
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

// written fails if the server may have executed what only the cluster knows. ran says that the daemon was started, in vain: its mysqld did not
// come up, say. A cluster's first node opens writes only after it has noted in node.json that it leads; one that has joined is fed by others.
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
