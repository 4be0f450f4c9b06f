package mysqld

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// Durability says who makes a commit durable (docs/configuration.md, mysql.durability).
type Durability string

const (
	// DurabilityLog: the raft log's fsync; mysqld flushes about once a second.
	DurabilityLog Durability = "log"
	// DurabilityDouble: the raft log's fsync, and mysqld flushes each commit too.
	DurabilityDouble Durability = "double"
)

// Account is a MySQL account of Trireme's own. It exists for localhost, Repl for 127.0.0.1 and ::1 too, Clone for every
// host.
type Account struct{ User, Password string }

// Config is one mysqld. It is not changed after New.
type Config struct {
	Binary     Binary
	Dir        string // absolute; see the package comment for what is below it
	Bind       string // address mysqld listens on; empty: 127.0.0.1
	Port       int    // 1..65535
	ServerID   uint32 // unique in the cluster, not 0
	ReportHost string // what SHOW REPLICAS calls this server; empty: Bind
	Admin      Account
	Repl       Account    // for the daemon's dump connection
	Clone      Account    // for servers of other hosts that are seeded from this one; TLS only
	Durability Durability // empty: DurabilityLog
	OSUser     string     // user to run mysqld as, when this process is root; empty: our own
	// Extra are the operator's lines for my.cnf, name to value ('-' and '_' are the same). An empty value is a bare
	// option. Names that Trireme sets are refused by Validate with the reason.
	Extra map[string]string
	// TLS is a private key, the server's certificate and the CAs that vouch for it, in PEM; OwnTLS: it is not used. Empty:
	// mysqld makes its own.
	TLS    []byte
	Logger *slog.Logger // nil: slog.Default()
}

// Paths below Dir.
func (c Config) DataDir() string   { return filepath.Join(c.Dir, "data") }
func (c Config) RunDir() string    { return filepath.Join(c.Dir, "run") }
func (c Config) LogDir() string    { return filepath.Join(c.Dir, "log") }
func (c Config) BinlogDir() string { return filepath.Join(c.Dir, "binlog") }
func (c Config) RelayDir() string  { return filepath.Join(c.Dir, "relay") }
func (c Config) ErrorLog() string  { return filepath.Join(c.LogDir(), "mysqld.err") }
func (c Config) PidFile() string   { return filepath.Join(c.RunDir(), "mysqld.pid") }
func (c Config) optionFile() string {
	return filepath.Join(c.RunDir(), "my.cnf")
}

// maxSocketPath is what sockaddr_un.sun_path holds, less the closing zero byte.
const maxSocketPath = 107

// runtimeDir belongs to root: no other user can make a folder there.
const runtimeDir = "/run/trireme"

// Socket is mysqld's unix socket: run/mysqld.sock, or a short path of its own where that would be too long.
func (c Config) Socket() string {
	if p := filepath.Join(c.RunDir(), "mysqld.sock"); len(p) <= maxSocketPath {
		return p
	}
	sum := sha256.Sum256([]byte(c.Dir))
	if os.Getuid() == 0 {
		return filepath.Join(runtimeDir, hex.EncodeToString(sum[:8]), "mysqld.sock")
	}
	return filepath.Join("/tmp", fmt.Sprintf("trireme-%d-%s", os.Getuid(), hex.EncodeToString(sum[:8])), "mysqld.sock")
}

func (c Config) bind() string {
	if c.Bind == "" {
		return "127.0.0.1"
	}
	return c.Bind
}

func (c Config) log() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

// Validate checks everything that can be checked without looking at the machine. Errors: ErrConfig, ErrSetting.
func (c Config) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Binary.Path == "":
		return bad("no mysqld program")
	case !filepath.IsAbs(c.Dir):
		return bad("directory %q is not absolute", c.Dir)
	case c.Port < 1 || c.Port > 65535:
		return bad("port %d is not in 1..65535", c.Port)
	case c.ServerID == 0:
		return bad("server id 0: it must be unique in the cluster and not 0")
	case c.Admin.User == "" || c.Admin.Password == "" || c.Repl.User == "" || c.Repl.Password == "":
		return bad("Trireme's accounts need a name and a password")
	case c.Admin.User == c.Repl.User || c.Clone.User != "" &&
		(c.Clone.User == c.Admin.User || c.Clone.User == c.Repl.User):
		return bad("Trireme's accounts need different names: %q, %q, %q", c.Admin.User, c.Repl.User, c.Clone.User)
	case c.Durability != "" && c.Durability != DurabilityLog && c.Durability != DurabilityDouble:
		return bad("durability %q is neither %q nor %q", c.Durability, DurabilityLog, DurabilityDouble)
	}
	return c.checkExtra()
}

// runsAs resolves OSUser. ok is false when mysqld runs as we do.
func (c Config) runsAs() (uid, gid int, ok bool, err error) {
	if c.OSUser == "" || os.Getuid() != 0 {
		return 0, 0, false, nil
	}
	u, err := user.Lookup(c.OSUser)
	if err != nil {
		return 0, 0, false, fmt.Errorf("%w: mysql.os_user: %w", ErrConfig, err)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("%w: mysql.os_user %s: %w", ErrConfig, c.OSUser, err)
	}
	return uid, gid, uid != 0, nil
}

// UID is the user that mysqld runs as.
func (c Config) UID() (int, error) {
	uid, _, other, err := c.runsAs()
	if !other {
		uid = os.Getuid()
	}
	return uid, err
}

// makeDirs makes the folders that are missing and gives them to mysqld's user.
func (c Config) makeDirs() error {
	uid, gid, other, err := c.runsAs()
	if err != nil {
		return err
	}
	if err := CheckPlace(c.Dir, c.OSUser); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("make mysqld's directory: %w", err)
	}
	if err := CheckPlace(c.Dir, c.OSUser); err != nil { // what was missing may have been made by somebody else
		return err
	}
	short := filepath.Dir(c.Socket())
	if filepath.Dir(short) == runtimeDir {
		if err := os.MkdirAll(runtimeDir, 0o755); err != nil {
			return fmt.Errorf(
				"make a folder for mysqld's socket, whose path would be too long below %s: %w; use a shorter directory", c.Dir, err)
		}
	}
	for _, d := range []string{c.RunDir(), c.LogDir(), c.BinlogDir(), c.RelayDir(), short} {
		if d == short && d != c.RunDir() && os.Mkdir(d, 0o750) != nil {
			continue // of an earlier start, or, in /tmp, of anybody: checkSocketDir looks whose it is
		}
		owner, group := -1, -1
		if other {
			owner, group = uid, gid
		}
		if err := MkdirOwned(filepath.Dir(d), filepath.Base(d), 0o750, owner, group); err != nil {
			return fmt.Errorf("make mysqld's directory: %w", err)
		}
	}
	return c.checkSocketDir(uid, other)
}

// checkSocketDir refuses a short socket folder that is not ours alone to write to: in /tmp somebody else may have made
// it first.
func (c Config) checkSocketDir(uid int, other bool) error {
	d := filepath.Dir(c.Socket())
	if d == c.RunDir() {
		return nil
	}
	owner, mode, err := ownerOf(d)
	if err != nil {
		return fmt.Errorf("socket folder: %w", err)
	}
	want := os.Getuid()
	if other {
		want = uid
	}
	if owner != want || mode&0o022 != 0 {
		return fmt.Errorf("%w: socket folder %s belongs to user %d with mode %o: remove it, or use a shorter data directory",
			ErrConfig, d, owner, mode)
	}
	return nil
}

// ListenAddr is host:port where mysqld listens, for a client on this host.
func (c Config) ListenAddr() string {
	host := c.bind()
	switch host {
	case "*", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(c.Port))
}
