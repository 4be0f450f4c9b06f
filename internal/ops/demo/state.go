package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// State is D/demo.json: what tools need to use a demo's cluster. The first three fields and those of NodeState up to
// daemon_pid are fixed.
type State struct {
	Cluster  string      `json:"cluster"`
	User     string      `json:"user"`
	Password string      `json:"password"`
	Nodes    []NodeState `json:"nodes"`

	Token      string    `json:"token"`      // credential for the control API
	Supervisor ProcessID `json:"supervisor"` // of a detached demo
	Ready      bool      `json:"ready"`      // a detached demo accepts writes
}

// NodeState is one node. The fields of a MySQL server are null for a logger.
type NodeState struct {
	Name        string  `json:"name"`
	Role        string  `json:"role"` // voter, logger or learner
	Dir         string  `json:"dir"`
	Host        string  `json:"host"` // address of its ports
	MySQLPort   *int    `json:"mysql_port"`
	MySQLSocket *string `json:"mysql_socket"`
	PeerPort    int     `json:"peer_port"`
	APIPort     int     `json:"api_port"`
	RWPort      int     `json:"rw_port"`
	ROPort      int     `json:"ro_port"`
	SplitPort   *int    `json:"split_port"`
	StreamPort  *int    `json:"stream_port"`
	DaemonPID   int     `json:"daemon_pid"`

	DaemonStart uint64 `json:"daemon_start"` // start time in clock ticks: with the pid it names one process uniquely
}

// ProcessID names one process uniquely.
type ProcessID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // field 22 of /proc/<pid>/stat
}

func processID(pid int) ProcessID { return ProcessID{pid, startTime(pid)} }

// alive is true while exactly this process runs, not another with its number.
func (p ProcessID) alive() bool {
	return p.PID > 0 && p.Start > 0 && startTime(p.PID) == p.Start
}

const stateFile = "demo.json"

// ReadState reads D/demo.json.
func ReadState(dir string) (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("no demo in %s (it has no %s)", dir, stateFile)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

// write replaces D/demo.json at once, readable by its owner only: it holds a password.
func (s State) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, stateFile))
}
