package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/setup"
)

// nodeFlags describe a new node; what is not given has its default from docs/configuration.md.
type nodeFlags struct {
	Name       string `help:"Name of this node. Default: this host's name."`
	Dir        string `default:"/var/lib/trireme" type:"path" help:"Directory of the node; must not exist or be empty. Its settings go to trireme.toml in it, those of the default to /etc/trireme."`
	Host       string `help:"Name or address by which the other nodes reach this host. Default: this host's name."`
	Bind       string `default:"0.0.0.0" help:"Address that all ports listen on."`
	PeerPort   int    `default:"7306" help:"Port for the other nodes."`
	APIPort    int    `name:"api-port" default:"8008" help:"Port of health checks, status and control."`
	RWPort     int    `name:"rw-port" default:"6446" help:"Router port that leads to the leader."`
	ROPort     int    `name:"ro-port" default:"6447" help:"Router port that leads to the followers."`
	SplitPort  int    `name:"split-port" default:"6450" help:"Router port that sends reads to a follower and all else to the leader; 0: none."`
	StreamPort int    `name:"stream-port" default:"7307" help:"Port of the change stream: the committed binary log, for replicas and change data capture; 0: none."`
	Mysqld     string `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	OSUser     string `name:"os-user" placeholder:"USER" help:"User to run mysqld as when the daemon runs as root. Default: mysql in /var/lib/trireme where there is such a user, else the daemon's own."`
	Durability string `default:"log" enum:"log,double" help:"log: the raft log's fsync counts; double: mysqld flushes each commit too."`
}

// mysqlPort is for a mysqld that is made; one that is adopted keeps its own.
type mysqlPort struct {
	MysqlPort int `default:"3306" help:"Port of mysqld."`
}

// node is the settings that the flags ask for.
func (f nodeFlags) node(port int) (config.Node, error) {
	host, err := os.Hostname()
	if (f.Name == "" || f.Host == "") && err != nil {
		return config.Node{}, fmt.Errorf("this host has no name (%w); give --name and --host", err)
	}
	n := config.Default()
	n.Name, n.Dir = f.Name, f.Dir
	if n.Name == "" {
		n.Name, _, _ = strings.Cut(host, ".")
	}
	if f.Host != "" {
		host = f.Host
	}
	listen := func(port int) string { return net.JoinHostPort(f.Bind, strconv.Itoa(port)) }
	reach := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	n.MySQL.Binary, n.MySQL.Bind, n.MySQL.Port, n.MySQL.Durability, n.MySQL.OSUser = f.Mysqld, f.Bind, port, f.Durability,
		f.OSUser
	n.Peer.Listen, n.Peer.Advertise = listen(f.PeerPort), reach(f.PeerPort)
	n.API = config.API{Listen: listen(f.APIPort), Advertise: reach(f.APIPort)}
	n.Router.Bind, n.Router.RWPort, n.Router.ROPort, n.Router.SplitPort, n.Router.StreamPort = f.Bind, f.RWPort, f.ROPort,
		f.SplitPort, f.StreamPort
	return n, nil
}

// tried is the settings with the server program and the user that were found to work, before anything is written. A
// program that was not named need not be there yet: the daemon looks for it in its own environment.
func tried(ctx context.Context, n config.Node) (config.Node, error) {
	n.MySQL.OSUser = cmp.Or(n.MySQL.OSUser, serviceUser(n.Dir))
	if err := mysqld.CheckPlace(n.Dir, n.MySQL.OSUser); err != nil {
		return n, err
	}
	b, err := mysqld.Try(ctx, n.MySQL.Binary, n.MySQL.OSUser, n.Dir)
	switch {
	case n.MySQL.Binary == "" && !errors.Is(err, mysqld.ErrConfig):
		return n, nil
	case err != nil && n.MySQL.OSUser != "":
		return n, fmt.Errorf("as the user %s: %w", n.MySQL.OSUser, err)
	case err != nil:
		return n, err
	}
	n.MySQL.Binary = b.Path // the daemon may run in another folder, or with another PATH
	return n, nil
}

// initCmd is `trireme init`.
type initCmd struct {
	nodeFlags
	mysqlPort
	Cluster string `default:"main" help:"Name of the cluster."`
	JSON    bool   `help:"Print what was made as JSON."`
}

// madeNode is what --json prints of a new node.
type madeNode struct {
	Name           string `json:"name"`
	ConfigFile     string `json:"config_file"`
	CredentialFile string `json:"credential_file,omitempty"` // of the first node
}

// Run makes the directory and says how to go on.
func (c *initCmd) Run(e *env) error {
	n, err := c.node(c.MysqlPort)
	if err != nil {
		return err
	}
	n.Cluster = c.Cluster
	if n, err = tried(e.ctx, n); err != nil {
		return err
	}
	res, err := setup.Init(setup.InitOptions{Node: n})
	if err != nil {
		return err
	}
	if busy, ok := errors.AsType[*api.Error](setup.BusyPort(n)); ok {
		fmt.Fprintf(e.errOut, "WARNING: %s. Before the start: %s\n\n", busy.Message, busy.Advice)
	}
	if c.JSON {
		return printJSON(e.out, madeNode{n.Name, res.ConfigFile, res.CredentialFile})
	}
	fmt.Fprintf(e.out, "Node %s of the new cluster %s is in %s.\n", n.Name, n.Cluster, n.Dir)
	fmt.Fprintf(e.out, "The operator's credential is %s; keep it safe.\n\n", res.CredentialFile)
	fmt.Fprintf(e.out, "Look over the settings   %s\n", res.ConfigFile)
	fmt.Fprintf(e.out, "start the node           %s\n", startCommand(res.ConfigFile))
	fmt.Fprintf(e.out, "then invite others with  trireme add NAME%s\n", apiFlag(n))
	return nil
}

// apiFlag is needed in the next command only when the node is not where the command line looks by itself.
func apiFlag(n config.Node) string {
	if _, port, err := net.SplitHostPort(n.API.Listen); err == nil && port == "8008" {
		return ""
	}
	return " --api " + n.API.Advertise
}

// joinAdvice replaces the advice for verbs that take --api: here the token says whom to ask.
func joinAdvice(err error) error {
	if a, ok := errors.AsType[*api.Error](err); ok && a.Kind == api.KindUnreachable {
		return a.With(
			"is the daemon running there, and its port open to this host? A token leads to the node that made it:\n" +
				"         `trireme add NAME` on another node makes one that leads there")
	}
	return err
}

// joinCmd is `trireme join`.
type joinCmd struct {
	nodeFlags
	mysqlPort
	Role  string `default:"voter" enum:"voter,logger,learner" help:"As given to trireme add."`
	JSON  bool   `help:"Print what was made as JSON."`
	Token string `arg:"" optional:"" help:"Join token from trireme add. Default: $$TRIREME_JOIN_TOKEN; - reads it from standard input."`
}

// Run joins and says how to start the node.
func (c *joinCmd) Run(e *env) error {
	token, err := e.joinToken(c.Token)
	if err != nil {
		return err
	}
	if token == "" {
		return usagef("a join token is needed; `trireme add NAME` on a running node makes one")
	}
	n, err := c.node(c.MysqlPort)
	if err != nil {
		return err
	}
	if c.Role == config.RoleLogger {
		n.MySQL.OSUser = cmp.Or(n.MySQL.OSUser, serviceUser(n.Dir))
	} else if n, err = tried(e.ctx, n); err != nil {
		return err
	}
	res, err := setup.Join(e.ctx, setup.JoinOptions{Token: token, Node: n, Role: c.Role})
	if err != nil {
		return joinAdvice(err)
	}
	if c.JSON {
		return printJSON(e.out, struct {
			madeNode
			Cluster string   `json:"cluster"`
			ID      uint64   `json:"id"`
			Members []string `json:"members"`
		}{madeNode{res.Identity.Name, res.ConfigFile, ""}, res.Identity.Cluster, res.Identity.ID, res.Members})
	}
	e.say("Node %s is a member of cluster %s (id %d; nodes are %s).", res.Identity.Name, res.Identity.Cluster,
		res.Identity.ID, strings.Join(res.Members, " "))
	fmt.Fprintf(e.out, "Start it: %s\n", startCommand(res.ConfigFile))
	return nil
}

// serviceUser is whom the mysqld of the packages' service runs as: the user that MySQL's own packages make, so that the
// daemon's keys, its log and the CA are nothing that mysqld can read. Empty: the daemon's own user.
func serviceUser(dir string) string {
	if filepath.Clean(dir) != config.DefaultDir || os.Getuid() != 0 {
		return ""
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		return ""
	}
	return u.Username
}

// unitFiles are where packages put the service.
var unitFiles = []string{"/etc/systemd/system/trireme.service", "/usr/lib/systemd/system/trireme.service",
	"/lib/systemd/system/trireme.service"}

// startCommand is how a node is started: by its service, if these are the settings that it takes and there is one.
func startCommand(file string) string {
	installed := func(unit string) bool { _, err := os.Stat(unit); return err == nil }
	if file == config.DefaultFile && slices.ContainsFunc(unitFiles, installed) {
		return "systemctl enable --now trireme"
	}
	return "trireme node --config " + file
}

// joinToken from the argument, the environment or standard input: an argument can be seen by every account of the host.
// Empty: none was given.
func (e *env) joinToken(token string) (string, error) {
	if token == "" {
		token = os.Getenv("TRIREME_JOIN_TOKEN")
	}
	if token == "-" {
		if isTerminal(e.in) {
			fmt.Fprintln(e.errOut, "Paste the token that `trireme add` printed, and press Enter:")
		}
		line, err := bufio.NewReader(io.LimitReader(e.in, 4096)).ReadString('\n')
		if err != nil && err != io.EOF {
			return "", err
		}
		token = line
	}
	return strings.TrimSpace(token), nil
}

// configCmd is `trireme config`.
type configCmd struct {
	Show     configShowCmd     `cmd:"" help:"Show the settings of the cluster."`
	Edit     configEditCmd     `cmd:"" help:"Change settings of the cluster."`
	History  configHistoryCmd  `cmd:"" help:"Show who changed which settings of the cluster, and when."`
	Diff     configDiffCmd     `cmd:"" help:"Show how two versions of the cluster's settings differ."`
	Rollback configRollbackCmd `cmd:"" help:"Restore an earlier version of the cluster's settings, as a new change."`
	Check    configCheckCmd    `cmd:"" help:"Say what is wrong in a node's settings file."`
}

type configCheckCmd struct {
	File string `arg:"" optional:"" type:"path" help:"Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
	JSON bool   `help:"Print whose settings they are as JSON."`
}

// Run loads the file as the daemon would.
func (c *configCheckCmd) Run(e *env) error {
	path := cmp.Or(c.File, defaultConfigFile())
	n, err := config.Load(path)
	if err != nil {
		return err
	}
	id, err := config.LoadIdentity(n.Dir)
	made := err == nil
	if c.JSON && (!made || id.Name == n.Name && id.Cluster == n.Cluster) {
		return printJSON(e.out, map[string]any{"file": path, "cluster": n.Cluster, "name": n.Name,
			"dir": filepath.Clean(n.Dir), "made": made})
	}
	switch {
	case !made:
		fmt.Fprintf(e.out, "%s has no mistakes; %s is not the directory of a node yet\n", path, n.Dir)
		return nil
	case id.Name != n.Name || id.Cluster != n.Cluster:
		return &config.Error{File: path, Key: "dir", What: fmt.Sprintf("%s belongs to node %q of cluster %q", n.Dir, id.Name,
			id.Cluster),
			Advice: fmt.Sprintf("this file is for node %q of cluster %q", n.Name, n.Cluster)}
	}
	fmt.Fprintf(e.out, "%s has no mistakes: node %s of cluster %s in %s\n", path, n.Name, n.Cluster, filepath.Clean(n.Dir))
	return nil
}
