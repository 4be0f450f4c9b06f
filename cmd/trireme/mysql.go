package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trireme/internal/config"
	"trireme/internal/mysqld"
)

type mysqlCmd struct {
	Config string   `type:"path" placeholder:"FILE" help:"Settings of this node. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
	Args   []string `arg:"" optional:"" help:"Options of the mysql client, after --; for example: -- -e 'SHOW DATABASES'."`
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
	args := append([]string{client, fmt.Sprintf("--defaults-extra-file=/proc/self/fd/%d", fd)}, c.Args...)
	return os.NewSyscallError("execve "+client, unix.Exec(client, args, os.Environ()))
}

// mysqlClient is the client of the MySQL that the node runs, or the one on PATH.
func mysqlClient(ctx context.Context, server string) (string, error) {
	if bin, err := mysqld.Find(ctx, server); err == nil {
		beside := filepath.Join(filepath.Dir(bin.Path), "mysql")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
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
