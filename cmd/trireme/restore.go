package main

import (
	"fmt"
	"strings"
	"time"

	"trireme/internal/mysql/gtid"
	"trireme/internal/ops/backup"
)

// restoreCmd is `trireme restore`.
type restoreCmd struct {
	From    string  `required:"" placeholder:"PLACE" help:"Directory of the backup, or s3://BUCKET/PREFIX."`
	Data    string  `required:"" type:"path" placeholder:"DIR" help:"Where the restored server goes; must not exist or be empty."`
	ToTime  *string `placeholder:"TIME" help:"Up to the first transaction committed later: 2026-11-22T14:03:59Z, or \"2026-11-22 14:03:59.5\" in this host's zone (TZ). Default: all there is."`
	ToGTID  *string `name:"to-gtid" placeholder:"GTID" help:"Up to and with this transaction: UUID:NUMBER."`
	ToIndex *uint64 `placeholder:"N" help:"Up to and with this entry of the raft log."`
	Port    int     `default:"3306" help:"Port of the restored server."`
	Mysqld  string  `placeholder:"PATH" help:"mysqld to run. Default: $$MYSQLD, then PATH."`
	OSUser  string  `name:"os-user" placeholder:"USER" help:"User to run mysqld as, who gets the files, when this runs as root. Default: our own."`
	placeFlags
	JSON bool `help:"Print what was made as JSON."`
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
	from, err := c.open(e, c.From)
	if err != nil {
		return err
	}
	p := &progressLine{w: e.errOut}
	if !to.Time.IsZero() {
		p.say("up to the first transaction that was committed after %s", to.Time.UTC().Format(time.RFC3339Nano))
	}
	res, err := backup.Restore(e.ctx, backup.RestoreOptions{From: from, To: to, Dir: c.Data, Mysqld: c.Mysqld,
		OSUser: c.OSUser, Port: c.Port, Logger: e.warnings(), Say: p.say, Done: p.stage})
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

// target is the moment that was asked for. A flag that is given and says nothing, a script's empty variable, is no
// request for everything.
func (c *restoreCmd) target() (t backup.Target, err error) {
	given := 0
	for _, set := range []bool{c.ToTime != nil, c.ToGTID != nil, c.ToIndex != nil} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return t, usagef("--to-time, --to-gtid and --to-index name one moment each: give one")
	case c.ToIndex != nil:
		if t.Index = *c.ToIndex; t.Index == 0 {
			return t, usagef("--to-index=0: the first entry is 1; leave the flag out to restore all there is")
		}
	case c.ToGTID != nil:
		if t.GTID, err = gtid.ParseGTID(*c.ToGTID); err != nil {
			return t, usagef("--to-gtid=%s is not UUID:NUMBER: %v", *c.ToGTID, err)
		}
	case c.ToTime != nil:
		t.Time, err = parseMoment(*c.ToTime, time.Local)
	}
	return t, err
}

// parseMoment reads a time with its zone, or one of a host's. Where clocks are set back an hour comes twice: such a
// time is refused, and one that never was.
func parseMoment(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil && !t.IsZero() {
		return t, nil
	}
	wall, err := time.Parse("2006-01-02 15:04:05", strings.Replace(text, "T", " ", 1)) // as if it were UTC
	if err != nil || wall.IsZero() {
		return wall, usagef("--to-time=%s is neither 2026-11-22T14:03:59Z nor \"2026-11-22 14:03:59\"", text)
	}
	var found []time.Time
	for _, around := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(around).In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		if _, at := t.Zone(); at == offset && (len(found) == 0 || !found[0].Equal(t)) {
			found = append(found, t)
		}
	}
	if len(found) != 1 {
		return wall,
			usagef(
				"--to-time=%s comes %d times in the zone %s, because clocks are changed there: give it with its offset, such as %s",
				text, len(found), zone, wall.Format("2006-01-02T15:04:05Z"))
	}
	return found[0], nil
}

func (c *restoreCmd) print(e *env, res *backup.Restored) {
	e.say("Restored in %s: everything up to entry %d%s.", res.Dir, res.Index, newestText(res.Newest))
	printGTIDs(e, res.GTIDs)
	for _, x := range res.RolledBack {
		fmt.Fprintf(e.out, "The XA transaction %s was prepared at that moment; it is rolled back.\n", x)
	}
	e.say("The password of root@localhost is in %s; Trireme's own accounts are gone, all others are as they were.",
		res.PasswordFile)
	if len(res.Administrators) > 0 {
		e.say("Accounts that may change accounts, files or settings: %s. Check that you know them.",
			strings.Join(res.Administrators, ", "))
	}
	if !res.Proven {
		e.say("This backup is not encrypted, so anyone who can write to %s may have changed it, and may have added data and accounts.", c.From)
	}
	fmt.Fprintln(e.out)
	fmt.Fprintf(e.out, "Start it as a server of its own   %s\n", strings.Join(res.Command, " "))
	fmt.Fprintf(e.out,
		"then, for a new cluster           trireme adopt --socket %s --user root --password-file %s --dir NEWDIR\n",
		res.Socket, res.PasswordFile)
	fmt.Fprintf(e.out, "and                               trireme node --config NEWDIR/trireme.toml\n")
}
