package main

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"trireme/internal/backup"
	"trireme/internal/gtid"
)

// restoreCmd is `trireme restore`.
type restoreCmd struct {
	From    string `required:"" type:"path" placeholder:"DIR" help:"Directory of the backup."`
	Data    string `required:"" type:"path" placeholder:"DIR" help:"Where the restored server goes; must not exist or be empty."`
	ToTime  string `placeholder:"TIME" help:"Up to the first transaction committed later: 2026-11-22T14:03:59Z, or \"2026-11-22 14:03:59.5\" in this host's zone. Default: all there is."`
	ToGTID  string `name:"to-gtid" placeholder:"GTID" help:"Up to and with this transaction: UUID:NUMBER."`
	ToIndex uint64 `placeholder:"N" help:"Up to and with this entry of the raft log."`
	Port    int    `default:"3306" help:"Port of the restored server."`
	Mysqld  string `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	OSUser  string `name:"os-user" placeholder:"USER" help:"User to run mysqld as, who gets the files, when this runs as root. Default: our own."`
	JSON    bool   `help:"Print what was made as JSON."`
}

// Run restores.
func (c *restoreCmd) Run(e *env) error {
	to, err := c.target()
	if err != nil {
		return err
	}
	if c.Port < 1 || c.Port > 65535 {
		return usagef("--port=%d is not in 1..65535", c.Port)
	}
	from, err := backup.OpenDir(c.From)
	if err != nil {
		return err
	}
	p := &progressLine{w: e.errOut}
	show := func(stage string, done, total uint64) {
		if stage == "unpacking" {
			p.bytes(stage, done, total)
			return
		}
		p.count(stage, done, total)
	}
	res, err := backup.Restore(e.ctx, backup.RestoreOptions{From: from, To: to, Dir: c.Data, Mysqld: c.Mysqld, OSUser: c.OSUser, Port: c.Port,
		Logger: slog.New(slog.NewTextHandler(e.errOut, &slog.HandlerOptions{Level: slog.LevelWarn})), Say: p.say, Done: show})
	p.end()
	if err != nil && e.ctx.Err() != nil {
		return fmt.Errorf("interrupted; no server runs, and %s is as it was: %w", c.Data, err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	c.print(e, res)
	return nil
}

func (c *restoreCmd) target() (t backup.Target, err error) {
	given := 0
	for _, set := range []bool{c.ToTime != "", c.ToGTID != "", c.ToIndex != 0} {
		if set {
			given++
		}
	}
	if given > 1 {
		return t, usagef("--to-time, --to-gtid and --to-index name one moment each: give one")
	}
	t.Index = c.ToIndex
	if c.ToGTID != "" {
		if t.GTID, err = gtid.ParseGTID(c.ToGTID); err != nil {
			return t, usagef("--to-gtid=%s is not UUID:NUMBER: %v", c.ToGTID, err)
		}
	}
	if c.ToTime != "" {
		if t.Time, err = parseMoment(c.ToTime); err != nil {
			return t, err
		}
	}
	return t, nil
}

// parseMoment reads a time with its zone, or one of this host's.
func parseMoment(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	t, err := time.ParseInLocation("2006-01-02 15:04:05", strings.Replace(text, "T", " ", 1), time.Local)
	if err != nil {
		return t, usagef("--to-time=%s is neither 2026-11-22T14:03:59Z nor \"2026-11-22 14:03:59\"", text)
	}
	return t, nil
}

func (c *restoreCmd) print(e *env, res *backup.Restored) {
	fmt.Fprintf(e.out, "Restored in %s: everything up to entry %d%s.\n", res.Dir, res.Index, newestText(res.Newest))
	printGTIDs(e, res.GTIDs)
	for _, x := range res.RolledBack {
		fmt.Fprintf(e.out, "The XA transaction %s was prepared at that moment; it is rolled back.\n", x)
	}
	fmt.Fprintf(e.out, "The password of root@localhost is in %s; all other accounts are as they were, those of the cluster included.\n\n", res.PasswordFile)
	fmt.Fprintf(e.out, "Start it as a server of its own   %s\n", strings.Join(res.Command, " "))
	fmt.Fprintf(e.out, "then, for a new cluster           trireme adopt --socket %s --user root --password-file %s --dir NEWDIR\n", res.Socket, res.PasswordFile)
	fmt.Fprintf(e.out, "and                               trireme node --config NEWDIR/trireme.toml\n")
}
