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
	DataDir string
	Again   string // how the server is started again
}

// Undo gives an adopted server's files back and removes the node's directory. It refuses once the daemon has run there: from then on the data may
// hold what only the cluster knows.
func Undo(dir string) (u Undone, err error) {
	b, err := os.ReadFile(filepath.Join(dir, setup.BeforeAdopt, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return u, fmt.Errorf("%s holds no server that `trireme adopt` brought there", dir)
	}
	if err != nil {
		return u, err
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil {
		return u, fmt.Errorf("%s: %w", filepath.Join(dir, setup.BeforeAdopt, journalName), err)
	}
	for _, made := range []string{"node.json", "raft"} {
		if fileExists(filepath.Join(dir, made)) {
			return u, fmt.Errorf("the daemon has run in %s, so the server may have taken writes that only the cluster knows; `trireme leave` makes plain servers of a cluster", dir)
		}
	}
	if err := j.takeBack(); err != nil {
		return u, err
	}
	if err := j.discard(dir); err != nil {
		return u, err
	}
	return Undone{DataDir: j.DataDir, Again: j.again()}, os.RemoveAll(dir)
}
