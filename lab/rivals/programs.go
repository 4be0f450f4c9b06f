package rivals

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Programs lists what the load generator and the rivals that are here say of their versions.
func (l *Lab) Programs(ctx context.Context) []string {
	paths := []string{"sysbench"}
	if path, err := findRouter(); err == nil {
		paths = append(paths, path)
	}
	var out []string
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		text, err := exec.CommandContext(ctx, path, "--version").Output()
		cancel()
		if line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n"); err == nil && line != "" {
			name, version, _ := strings.Cut(line, " ") // some begin with the path by which they were started
			out = append(out, filepath.Base(name)+" "+strings.TrimSpace(version))
		}
	}
	return out
}

// FindTrireme finds the program that nodes run: the one that TRIREME_BINARY names, else the one in this program's
// folder, else the one in PATH.
func FindTrireme() (string, error) {
	if path := os.Getenv("TRIREME_BINARY"); path != "" {
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), "trireme")
		if st, err := os.Stat(sibling); err == nil && st.Mode().IsRegular() {
			return sibling, nil
		}
	}
	if path, err := exec.LookPath("trireme"); err == nil {
		return filepath.Abs(path)
	}
	return "", errors.New("no program trireme is in this program's directory or in PATH; make build makes both")
}
