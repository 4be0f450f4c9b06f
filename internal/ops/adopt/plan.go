package adopt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
)

// Options are those of one adoption.
type Options struct {
	Node     config.Node // complete, but for what the server itself tells: mysql.port, mysql.options, mysql.os_user
	Login    Login
	Replicas []string // host:port; of a new cluster only

	// TrxWait is how long open transactions may go on before writes close. Outage bounds the time from there until the
	// server is asked to stop; when it is over, everything is taken back.
	TrxWait, Outage time.Duration

	// Token makes the server join the cluster that made it; empty: a new cluster.
	Token string
	Role  string

	CredentialDir string // as of setup.InitOptions
	Say           func(format string, args ...any)
}

// Limits of waits.
const (
	DefaultOutage = 10 * time.Second
	stopLimit     = 10 * time.Minute // for SHUTDOWN: it writes all changed pages
	catchUp       = 3                // times Outage: for replicas to get Trireme's accounts, while writes go on
	stepLimit     = 30 * time.Second // to take a step back
)

// Plan is a server that was looked at, and what would become of it.
type Plan struct {
	Checks   []Check        `json:"checks"`
	Settings []OptionChange `json:"settings"`
	Executed string         `json:"gtid_executed"`

	opts   Options
	node   config.Node
	facts  *facts
	server *server
	reps   []*server
}

// OK reports whether nothing forbids to begin.
func (p *Plan) OK() bool { return len(failed(p.Checks)) == 0 }

// Close ends the connections.
func (p *Plan) Close() {
	for _, s := range append(p.reps, p.server) {
		s.close()
	}
}

// Look checks everything and changes nothing.
func Look(ctx context.Context, opts Options) (*Plan, error) {
	if opts.Outage == 0 {
		opts.Outage = DefaultOutage
	}
	if opts.Say == nil {
		opts.Say = func(string, ...any) {}
	}
	s, err := connect(ctx, opts.Login)
	if err != nil {
		return nil, err
	}
	p := &Plan{opts: opts, node: opts.Node, server: s}
	if err := p.look(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Plan) look(ctx context.Context) error {
	var remotes []remote
	for _, addr := range p.opts.Replicas {
		r, err := p.lookAt(ctx, addr)
		if err != nil {
			return err
		}
		remotes = append(remotes, r)
	}
	f, err := readFacts(ctx, p.server)
	if err != nil {
		return err
	}
	p.facts, p.Executed = f, line(f.Executed)
	for _, s := range append(p.reps, p.server) {
		if err := s.ready(ctx); err != nil {
			return err
		}
	}
	if err := f.readHost(p.node.Dir); err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	p.Checks = common(f, os.Getuid())
	if p.opts.Token == "" {
		p.Checks = append(p.Checks, source(f, remotes)...)
	} else {
		p.Checks = append(p.Checks, replica(f)...)
	}
	return nil
}

// lookAt asks a replica. One that cannot be reached is a failed check, not an error.
func (p *Plan) lookAt(ctx context.Context, addr string) (remote, error) {
	r := remote{Addr: addr}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return r, fmt.Errorf("--replica %s: %w", addr, err)
	}
	l := Login{Host: host, User: p.opts.Login.User, Password: p.opts.Login.Password}
	if l.Port, err = strconv.Atoi(port); err != nil {
		return r, fmt.Errorf("--replica %s: %w", addr, err)
	}
	s, err := connect(ctx, l)
	if err != nil {
		r.Problem = err.Error()
		return r, nil
	}
	p.reps = append(p.reps, s)
	version, err := s.value(ctx, "SELECT @@version AS v")
	if err == nil {
		r.Version, err = mysqld.ParseVersion(version)
	}
	if err == nil {
		r.UUID, err = s.value(ctx, "SELECT @@server_uuid AS v")
	}
	if err == nil {
		r.Channels, err = s.channels(ctx)
	}
	if err == nil {
		r.Executed, err = s.executed(ctx)
	}
	if err != nil {
		r.Problem = err.Error()
	}
	return r, nil
}

// settle finds the program, the settings that the node's mysqld gets, and whether they will do.
func (p *Plan) settle(ctx context.Context) (err error) {
	f := p.facts
	if p.node.MySQL.Port, err = strconv.Atoi(f.Vars["port"]); err != nil {
		return fmt.Errorf("port %q: %w", f.Vars["port"], err)
	}
	if os.Getuid() == 0 && f.Local && f.Process.UID != 0 && p.node.MySQL.OSUser == "" {
		u, err := user.LookupId(strconv.Itoa(f.Process.UID))
		if err != nil {
			return fmt.Errorf("the user of mysqld: %w", err)
		}
		p.node.MySQL.OSUser = u.Username
	}
	if err := mysqld.CheckPlace(p.node.Dir, p.node.MySQL.OSUser); err != nil {
		return err
	}
	if f.Binary, err = mysqld.Find(ctx, p.node.MySQL.Binary); err != nil {
		f.BinaryErr = err.Error()
		return nil
	}
	cfg := mysqldConfig(p.node, config.NewSecrets(), f.Binary)
	p.node.MySQL.Options, p.Settings = takeOver(f, cfg)
	if err := p.node.Validate(); err != nil && p.opts.Token == "" {
		return err
	}
	if err := p.validate(ctx); err != nil {
		f.OptionErr = err.Error()
	}
	for _, addr := range []string{p.node.Peer.Listen, p.node.API.Listen, p.node.Router.RWAddr(), p.node.Router.ROAddr(),
		p.node.Router.SplitAddr(), p.node.Router.StreamAddr()} {
		if addr == "" {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			f.Ports = append(f.Ports, err.Error())
			continue
		}
		_ = l.Close()
	}
	return nil
}

var unknownVariable = regexp.MustCompile(`unknown variable '([a-z0-9_.]+)`)

// validate has mysqld read the settings that it would get. A variable that can be set on a running server and is no
// option goes.
func (p *Plan) validate(ctx context.Context) error {
	for {
		cfg := mysqldConfig(p.node, config.NewSecrets(), p.facts.Binary)
		err := cfg.ValidateOptions(ctx)
		if err == nil {
			return nil
		}
		m := unknownVariable.FindStringSubmatch(err.Error())
		if m == nil {
			return err
		}
		i := slices.IndexFunc(p.Settings, func(o OptionChange) bool { return o.Name == m[1] && o.Kept })
		if i < 0 {
			return err
		}
		delete(p.node.MySQL.Options, m[1])
		p.Settings[i].Kept, p.Settings[i].New, p.Settings[i].Why = false, "", "it is no option of a start"
	}
}

// mysqldConfig is what the daemon will make of the node's settings, as far as it matters here.
func mysqldConfig(n config.Node, s config.Secrets, bin mysqld.Binary) mysqld.Config {
	return mysqld.Config{Binary: bin, Dir: n.MySQLDir(), Bind: n.MySQL.Bind, Port: n.MySQL.Port, ServerID: 1,
		ReportHost: n.MySQLHost(),
		Admin:      mysqld.Account(s.Admin), Repl: mysqld.Account(s.Repl), Clone: mysqld.Account(s.Clone),
		Durability: mysqld.Durability(n.MySQL.Durability), OSUser: n.MySQL.OSUser, Extra: n.MySQL.Options}
}

// ErrChecks: at least one check failed, so nothing was begun.
var ErrChecks = errors.New("nothing was changed: see the checks marked FAIL")
