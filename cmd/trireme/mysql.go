package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
)

type mysqlCmd struct {
	Config string   `type:"path" placeholder:"FILE" help:"Settings of this node. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
	Args   []string `arg:"" optional:"" passthrough:"" help:"Options of the mysql client, for example: -e 'SHOW DATABASES'. After --, also those that trireme has itself (-h)."`
}

// options are the client's. The parser leaves a "--" before them in.
func (c *mysqlCmd) options() []string {
	if len(c.Args) > 0 && c.Args[0] == "--" {
		return c.Args[1:]
	}
	return c.Args
}

// Run becomes the client. The password is in no argument and no file: the client reads it from memory of its own.
func (c *mysqlCmd) Run(e *env) error {
	path := cmp.Or(c.Config, defaultConfigFile())
	n, err := config.Load(path)
	if err != nil {
		return err
	}
	id, err := config.LoadIdentity(n.Dir)
	if err != nil {
		return err
	}
	if id.Role == config.RoleLogger {
		return fmt.Errorf("%s is a logger: it has no mysqld; run this on a data node", n.Name)
	}
	secrets, err := config.LoadSecrets(n.Dir)
	if err != nil {
		return err
	}
	client, err := mysqlClient(e.ctx, n.MySQL.Binary)
	if err != nil {
		return err
	}
	fd, err := optionFile(fmt.Sprintf("[client]\nuser=%q\npassword=%q\nsocket=%q\n", secrets.Admin.User,
		secrets.Admin.Password, mysqld.Config{Dir: n.MySQLDir()}.Socket()))
	if err != nil {
		return err
	}
	if len(c.options()) == 0 && isTerminal(e.in) {
		e.tellReadOnly(n)
	}
	args := append([]string{client, fmt.Sprintf("--defaults-extra-file=/proc/self/fd/%d", fd)}, c.options()...)
	return os.NewSyscallError("execve "+client, unix.Exec(client, args, os.Environ()))
}

// tellReadOnly says where writes go while this host's node does not lead.
func (e *env) tellReadOnly(n config.Node) {
	r := remote{API: listensAt(n)}
	view, err := ask(r, e, reads, (*api.Client).Cluster)
	if err == nil && view.Leader != n.Name {
		fmt.Fprintln(e.errOut, readOnlyText(n.Name, view.Leader))
	}
}

func readOnlyText(name, leader string) string {
	if leader == "" {
		return fmt.Sprintf("%s is read-only: there is no leader now.", name)
	}
	return fmt.Sprintf("%s is read-only: %s leads. To write, run `trireme mysql` there.", name, leader)
}

// mysqlClient is the client of the MySQL that the node runs, or the one on PATH.
func mysqlClient(ctx context.Context, server string) (string, error) {
	if bin, err := mysqld.Find(ctx, server); err == nil {
		sibling := filepath.Join(filepath.Dir(bin.Path), "mysql")
		if _, err := os.Stat(sibling); err == nil {
			return sibling, nil
		}
	}
	path, err := exec.LookPath("mysql")
	if err != nil {
		return "", fmt.Errorf("no mysql client: %w; install your distribution's", err)
	}
	return path, nil
}

// optionFile is a file in memory that the program which this one becomes can read. The client ignores one that others
// could write.
func optionFile(text string) (fd int, err error) {
	if fd, err = unix.MemfdCreate("my.cnf", 0); err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Fchmod(fd, 0o600); err == nil {
		_, err = unix.Pwrite(fd, []byte(text), 0)
	}
	return fd, err
}
