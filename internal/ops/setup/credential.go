package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/durable"
)

// Credential is what an operator needs to control a cluster from anywhere. `init` and `demo` write it to
// ~/.config/trireme/<cluster>, mode 0600.
type Credential struct {
	Cluster string   `json:"cluster"`
	Token   string   `json:"token"`
	CA      string   `json:"ca"`  // PEM; lets HTTPS to any node be checked
	API     []string `json:"api"` // host:port of nodes known when it was written

	// Throwaway: of a cluster for trying things, as `trireme demo` makes it. The next one may replace it.
	Throwaway bool `json:"throwaway,omitempty"`
}

// CredentialDir is where credentials are kept: $XDG_CONFIG_HOME/trireme, else ~/.config/trireme.
func CredentialDir() (string, error) {
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, "trireme"), nil
	}
	// A service manager may start us without HOME.
	u, err := user.Current()
	if err != nil || u.HomeDir == "" {
		return "", fmt.Errorf("this account has no home directory; set XDG_CONFIG_HOME, or use --token-file")
	}
	return filepath.Join(u.HomeDir, ".config", "trireme"), nil
}

// Save writes the credential into dir (CredentialDir when empty) and says where. One of the same name is replaced.
func (c Credential) Save(dir string) (path string, err error) {
	if dir == "" {
		if dir, err = CredentialDir(); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("the folder of credentials: %w", err)
	}
	path = filepath.Join(dir, c.Cluster)
	return path, c.WriteTo(path)
}

// WriteTo writes the credential into a file, mode 0600.
func (c Credential) WriteTo(path string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'), 0o600)
}

// free reports whether the credential of a new cluster may have its place: the only copy of another cluster's may be
// there.
func (c Credential) free(dir string) (err error) {
	if dir == "" {
		if dir, err = CredentialDir(); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, c.Cluster)
	if !exists(path) {
		return nil
	}
	if old, err := LoadCredential(path); err == nil && old.Throwaway && c.Throwaway {
		return nil
	}
	return api.Errorf(api.KindFailed, "%s is the credential of another cluster of the name %q", path, c.Cluster).
		With("if that cluster is gone, move the file away; else choose another name with --cluster")
}

// LoadCredential reads what Save wrote, or a file that holds nothing but the token.
func LoadCredential(path string) (Credential, error) {
	var c Credential
	if err := config.CheckPrivate(path); err != nil {
		return c, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	data = bytes.TrimSpace(data)
	if !bytes.HasPrefix(data, []byte("{")) {
		if len(data) == 0 || bytes.ContainsFunc(data, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return c, fmt.Errorf("%s does not hold one token", path)
		}
		return Credential{Token: string(data)}, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Credentials reads all that are in dir (CredentialDir when empty). Files that are not ours are passed over.
func Credentials(dir string) ([]Credential, error) {
	if dir == "" {
		var err error
		if dir, err = CredentialDir(); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Credential
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if c, err := LoadCredential(filepath.Join(dir, e.Name())); err == nil && c.Cluster == e.Name() {
			all = append(all, c)
		}
	}
	return all, nil
}
