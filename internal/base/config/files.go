package config

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"trireme/internal/base/durable"
)

// Identity ties a directory to one node of one cluster. It is written once, by init or join.
type Identity struct {
	Cluster   string `json:"cluster"`
	ClusterID uint64 `json:"cluster_id"`
	Name      string `json:"name"`
	ID        uint64 `json:"id"`   // raft id
	Role      string `json:"role"` // role it joined with; the cluster settings may have changed it since
	// made by init: this node starts the log from ClusterFile; else it waits to be contacted
	Bootstrap bool `json:"bootstrap"`
}

// Account is one MySQL account of Trireme's own.
type Account struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Secrets of a node. Clone and APIToken are the same on all nodes of a cluster.
type Secrets struct {
	Admin Account `json:"admin"` // the daemon's own sessions; each daemon sets a password of its own
	Repl  Account `json:"repl"`  // the daemon dumping its mysqld; likewise
	// user of a mysqld at its daemon's feed; the password there is the daemon's own, this one is for older versions
	Feed     Account `json:"feed"`
	Clone    Account `json:"clone"`     // a new node's mysqld cloning another's
	APIToken string  `json:"api_token"` // node to node, when one forwards a request to another

	kept // a node that writes down a new password must not erase what a newer version has put there
}

// NewSecrets makes fresh random ones.
func NewSecrets() Secrets {
	return Secrets{
		Admin:    Account{"trireme_admin", NewToken()},
		Repl:     Account{"trireme_repl", NewToken()},
		Feed:     Account{"trireme_feed", NewToken()},
		Clone:    Account{"trireme_clone", NewToken()},
		APIToken: NewToken(),
	}
}

// RenewLogins replaces the passwords of the accounts that log in to a mysqld from its own host.
func (s *Secrets) RenewLogins() { s.Admin.Password, s.Repl.Password = NewToken(), NewToken() }

// Validate says which part is missing.
func (s Secrets) Validate() error {
	for name, a := range map[string]Account{"admin": s.Admin, "repl": s.Repl, "feed": s.Feed, "clone": s.Clone} {
		if a.User == "" || a.Password == "" {
			return fmt.Errorf("secrets: account %q is incomplete", name)
		}
	}
	if s.APIToken == "" {
		return errors.New("secrets: api_token is missing")
	}
	return nil
}

// NewToken gives 191 random bits as 32 characters of URL-safe base64: a password that needs no quoting anywhere, that
// MySQL takes for a replication channel (32 at most), and that validate_password takes, which the vendor's packages
// switch on: it has one of each class.
func NewToken() string {
	for {
		var b [24]byte
		_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
		s := base64.RawURLEncoding.EncodeToString(b[:])
		if strings.ContainsAny(s, "-_") && strings.ContainsAny(s, "0123456789") && strings.ToLower(s) != s &&
			strings.ToUpper(s) != s {
			return s
		}
	}
}

// LoadIdentity reads the identity of a directory.
func LoadIdentity(dir string) (Identity, error) {
	var id Identity
	if err := readJSON(filepath.Join(dir, IdentityName), &id); err != nil {
		return id, err
	}
	if id.Cluster == "" || id.ClusterID == 0 || id.Name == "" || id.ID == 0 || id.ID > MaxMemberID || !validRole(id.Role) {
		return id, Damaged(filepath.Join(dir, IdentityName), errors.New("it is incomplete"))
	}
	return id, nil
}

// Save writes the identity into dir, durably.
func (id Identity) Save(dir string) error { return writeJSON(filepath.Join(dir, IdentityName), id) }

// LoadSecrets reads the secrets of a directory. A file that others may read is refused.
func LoadSecrets(dir string) (Secrets, error) {
	var s Secrets
	path := filepath.Join(dir, SecretsName)
	if err := CheckPrivate(path); err != nil {
		return s, err
	}
	if err := readJSON(path, &s); err != nil {
		return s, err
	}
	return s, s.Validate()
}

// Save writes the secrets into dir, durably, mode 0600.
func (s Secrets) Save(dir string) error { return writeJSON(filepath.Join(dir, SecretsName), s) }

// LoadCluster reads the copy of the cluster settings in dir.
func LoadCluster(dir string) (*Cluster, error) {
	data, err := readFile(filepath.Join(dir, ClusterName))
	if err != nil {
		return nil, err
	}
	c, err := ParseCluster(data)
	if err != nil {
		return nil, Damaged(filepath.Join(dir, ClusterName), err)
	}
	return c, nil
}

// Save writes the settings into dir, durably.
func (c *Cluster) Save(dir string) error { return writeJSON(filepath.Join(dir, ClusterName), c) }

// CheckPrivate refuses a file that group or others can read.
func CheckPrivate(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return notFound(path, err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o and others can read it; run: chmod 600 %s", path, st.Mode().Perm(), path)
	}
	return nil
}

func readJSON(path string, v any) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return Damaged(path, err)
	}
	return nil
}

func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, notFound(path, err)
	}
	return data, nil
}

func notFound(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; `trireme init` or `trireme join` makes it", err)
	}
	return err
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'), 0o600)
}
