package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/mysql/gtid"
	"trireme/internal/ops/backup"
	"trireme/internal/ops/cli"
)

// backupCmd is `trireme backup`.
type backupCmd struct {
	Take   backupTakeCmd   `cmd:"" default:"withargs" help:"Copy the data of a node, and archive the log from there on. Runs on the host of a node. This is what backup does without another verb."`
	List   backupListCmd   `cmd:"" help:"Show what a backup holds, and which moments can be restored."`
	Verify backupVerifyCmd `cmd:"" help:"Read every byte of a backup and say whether it is whole."`
	Drill  backupDrillCmd  `cmd:"" help:"Prove a backup: restore it into a scratch directory, compare every table with this host's node at the same moment, and remove it."`
	Prune  backupPruneCmd  `cmd:"" help:"Remove old copies, and the log that none of the others needs."`
	NewKey backupKeyCmd    `cmd:"" help:"Make a key to encrypt a backup with."`
}

type backupKeyCmd struct {
	File string `arg:"" type:"path" help:"File to make; it must not be there. Keep a copy of it elsewhere than the backup."`
}

// Run makes a key.
func (c *backupKeyCmd) Run(*env) error { return backup.NewKeyFile(c.File) }

type backupTakeCmd struct {
	To     string `required:"" placeholder:"PLACE" help:"Directory of the backup, or s3://BUCKET/PREFIX; it is made, or continued. One for each cluster, on another disk."`
	Work   string `type:"path" placeholder:"DIR" help:"Where the copy lies, uncompressed, while it is made. Default: in the directory of the backup; for a bucket, and where others than root may write to it, in the node's."`
	Follow bool   `help:"Keep archiving the log, some seconds later than the cluster, until Ctrl-C. Take a copy only if the backup has none yet."`
	Config string `type:"path" placeholder:"FILE" help:"Settings of this host's node. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
	JSON   bool   `help:"Print what was made as JSON."`
	placeFlags
}

// Run backs up.
func (c *backupTakeCmd) Run(e *env) error {
	src, err := backupSource(c.Config)
	if err != nil {
		return err
	}
	defer src.Daemon.Close()
	p := &progressLine{w: e.errOut}
	to, work, err := c.place(e, src.Node, p)
	if err != nil {
		return err
	}
	tell, done := teller(e, src, p)
	defer done()
	res, err := backup.Run(e.ctx, backup.Options{Source: src, To: to, Work: work, Follow: c.Follow, Logger: e.warnings(),
		Say: p.say, Tell: tell, Copying: p.bytes})
	p.end()
	if e.ctx.Err() != nil && (err != nil || !c.Follow) {
		return fmt.Errorf("interrupted; what is in %s is intact, and the same command continues: %w", to, e.ctx.Err())
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, struct {
			Dir     string         `json:"dir"`
			Base    *baseLine      `json:"base"`
			Reached backup.Reached `json:"reached"`
		}{to.String(), lineOf(res.Base), res.Reached})
	}
	if b := res.Base; b != nil {
		fmt.Fprintf(e.out, "The copy %s of %s is in %s: %d MiB, %d MiB compressed.\n", b.Name, b.Donor, to, b.Bytes>>20,
			b.Stored>>20)
	}
	fmt.Fprintf(e.out, "The log is archived up to entry %d%s.\n", res.Reached.Index, newestText(res.Reached.Newest))
	printGTIDs(e, res.Reached.GTIDs)
	return nil
}

// tellLimit is how long a backup waits for its daemon to take its word.
const tellLimit = 5 * time.Second

// teller tells the node's daemon what was made, by the right of a node, which the rest of a backup does not need. The
// age of the archive can be seen in the cluster anyway, so a failed report is told only for a copy.
func teller(e *env, src backup.Source, p *progressLine) (tell func(api.BackupReport), done func()) {
	client := api.NewClient(src.Daemon.URL(), src.Secrets.APIToken, pki.FilesTLS(src.Node.TLSDir()))
	return func(r api.BackupReport) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), tellLimit)
		defer cancel()
		if _, err := api.NoteBackup.Ask(ctx, client, r); err != nil && r.Copy != nil {
			p.say("the copy is complete; the cluster was not told of it, and shows an older one or none: %v", err)
		}
	}, client.Close
}

// place is where the backup goes, and where the copy lies meanwhile.
func (c *backupTakeCmd) place(e *env, node config.Node, p *progressLine) (to backup.Place, work string, err error) {
	// What is gathered is stored after Ctrl-C, too.
	if to, err = c.openWith(context.WithoutCancel(e.ctx), c.To, backup.NewDir, p.say); err != nil {
		return nil, "", err
	}
	if dir, ok := to.(*backup.Dir); ok && c.Work == "" && dir.Work() != "" {
		return to, dir.Work(), nil
	}
	return to, filepath.Join(cmp.Or(c.Work, node.Dir), "backup-work"), nil
}

// backupSource is this host's node and its daemon.
func backupSource(file string) (src backup.Source, err error) {
	if src.Node, err = config.Load(cmp.Or(file, defaultConfigFile())); err != nil {
		return src, err
	}
	if src.Identity, err = config.LoadIdentity(src.Node.Dir); err != nil {
		return src, err
	}
	if src.Secrets, err = config.LoadSecrets(src.Node.Dir); err != nil {
		return src, err
	}
	if _, err := os.Stat(filepath.Join(src.Node.TLSDir(), pki.NodeCertFile)); err != nil {
		return src, err
	}
	// The node's certificate may look, whatever read_login says.
	src.Daemon = api.NewClient("https://"+listensAt(src.Node), "", pki.FilesTLS(src.Node.TLSDir()))
	return src, nil
}

func newestText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", the newest transaction committed at " + t.UTC().Format(time.RFC3339Nano)
}

func printGTIDs(e *env, set gtid.Set) {
	for i, line := range cli.Wrap("GTIDs "+strings.ReplaceAll(set.String(), ",", ", "), 94) {
		if i > 0 {
			line = "      " + line
		}
		fmt.Fprintln(e.out, line)
	}
}

// progressLine shows what happens, and below it, on a terminal, how far it is.
type progressLine struct {
	w     io.Writer
	mu    sync.Mutex
	shown bool      // the cursor is at the end of a progress line
	last  time.Time // when it was drawn

	stageNow string // the stage that is under way, what its figure was at first, and when
	from     uint64
	began    time.Time
}

func (p *progressLine) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progressLine) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

func (p *progressLine) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// bytes draws a stage that is counted in bytes, count one that is counted in something else.
func (p *progressLine) bytes(stage string, done, total uint64) {
	p.draw(stage, done>>20, total>>20, " MiB")
}
func (p *progressLine) count(stage string, done, total uint64) { p.draw(stage, done, total, "") }

// stage is one of a restoration.
func (p *progressLine) stage(stage string, done, total uint64) {
	if stage == "unpacking" {
		p.bytes(stage, done, total)
		return
	}
	p.count(stage, done, total)
}

func (p *progressLine) draw(stage string, done, total uint64, unit string) {
	p.mu.Lock()
	if p.stageNow != stage || done < p.from {
		p.stageNow, p.from, p.began = stage, done, time.Now()
	}
	text := progressText(stage, p.from, done, total, unit, time.Since(p.began))
	p.mu.Unlock()
	p.show(text)
}

// progressText is a stage with its bar and, once it can be told, its rate and the time that is left. It has come from
// one figure to done in the time took.
func progressText(stage string, from, done, total uint64, unit string, took time.Duration) string {
	text := fmt.Sprintf("%s: %d%s", stage, done, unit)
	if total > 0 {
		full := int(min(done, total) * barWidth / total)
		text = fmt.Sprintf("%s: [%s%s] %d of %d%s", stage, strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
			done, total, unit)
	}
	if took < time.Second || done == from {
		return text
	}
	rate := float64(done-from) / took.Seconds()
	text += fmt.Sprintf(", %.0f%s/s", rate, unit)
	if done < total {
		text += fmt.Sprintf(", about %v left", time.Duration(float64(total-done)/rate*float64(time.Second)).
			Round(time.Second))
	}
	return text
}

// show draws a text, on a terminal only.
func (p *progressLine) show(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isTerminal(p.w) || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	p.clear()
	p.shown = true
	fmt.Fprint(p.w, text)
}

type backupListCmd struct {
	Place string `arg:"" help:"Directory of the backup, or s3://BUCKET/PREFIX."`
	JSON  bool   `help:"Print it as JSON."`
	placeFlags
}

// baseLine is a copy as it is listed.
type baseLine struct {
	Name    string    `json:"name"`
	Donor   string    `json:"donor"`
	MySQL   string    `json:"mysql"`
	From    uint64    `json:"restorable_from"`         // index
	To      uint64    `json:"restorable_to,omitempty"` // index; 0: the log after it is missing
	Since   time.Time `json:"restorable_since,omitzero"`
	Until   time.Time `json:"restorable_until,omitzero"`
	Bytes   int64     `json:"bytes"`
	Stored  int64     `json:"stored_bytes"`
	Made    time.Time `json:"made"`
	Problem string    `json:"problem,omitempty"`
}

func lineOf(b *backup.Base) *baseLine {
	if b == nil {
		return nil
	}
	return &baseLine{Name: b.Name, Donor: b.Donor, MySQL: b.MySQL, From: b.Last, Bytes: b.Bytes, Stored: b.Stored,
		Made: b.Made}
}

// Run lists.
func (c *backupListCmd) Run(e *env) error {
	dir, err := c.open(e, c.Place)
	if err != nil {
		return err
	}
	have, err := backup.Read(dir)
	if err != nil {
		return err
	}
	lines := []baseLine{}
	for i := range have.Bases {
		l := lineOf(&have.Bases[i])
		if s, err := have.Restorable(&have.Bases[i]); err != nil {
			l.Problem = err.Error()
		} else {
			l.To = s.To
			l.Since, l.Until = have.Moments(&have.Bases[i], s)
		}
		lines = append(lines, *l)
	}
	bytes := int64(0)
	for i := range have.Segments {
		bytes += have.Segments[i].Bytes
	}
	if c.JSON {
		return printJSON(e.out, struct {
			Cluster  string           `json:"cluster"`
			Bases    []baseLine       `json:"bases"`
			Segments int              `json:"segments"`
			LogBytes int64            `json:"log_bytes"`
			Reached  backup.Reached   `json:"reached"`
			Damaged  []backup.Problem `json:"damaged"`
		}{have.Cluster, lines, len(have.Segments), bytes, have.Reached, append([]backup.Problem{}, have.Damaged...)})
	}
	fmt.Fprintf(e.out, "backup of cluster %s · %s · log in %s, %d MiB\n", have.Cluster, copies(len(lines)),
		count(len(have.Segments), "segment", "segments"), bytes>>20)
	rows := [][]string{{"COPY", "OF", "MYSQL", "MIB", "STORED", "RESTORABLE"}}
	for _, l := range lines {
		restorable := momentsText(l.Since, l.Until, l.From, l.To)
		if l.Problem != "" {
			restorable = e.bad("none: ") + l.Problem
		}
		rows = append(rows, []string{l.Name, l.Donor, l.MySQL, fmt.Sprint(l.Bytes >> 20), fmt.Sprint(l.Stored >> 20),
			restorable})
	}
	if len(lines) > 0 {
		cli.PrintTable(e.out, rows)
	}
	if have.Reached.Index > 0 {
		fmt.Fprintf(e.out, "the log ends at entry %d%s\n", have.Reached.Index, newestText(have.Reached.Newest))
	}
	if !have.Reached.At.IsZero() {
		fmt.Fprintf(e.out, "everything committed before %s is in it\n", have.Reached.At.UTC().Format(time.RFC3339))
	}
	printProblems(e, have.Damaged)
	return nil
}

// momentsText is what can be restored: moments if they are known, and entries of the log.
func momentsText(since, until time.Time, from, to uint64) string {
	entries := fmt.Sprintf("entries %d to %d", from, to)
	if since.IsZero() {
		return entries
	}
	return fmt.Sprintf("%s to %s (%s)", since.Format(time.RFC3339), until.Format(time.RFC3339), entries)
}

type backupVerifyCmd struct {
	Place string `arg:"" help:"Directory of the backup, or s3://BUCKET/PREFIX."`
	JSON  bool   `help:"Print the outcome as JSON."`
	placeFlags
}

// Run verifies. A backup that is damaged, or of which nothing can be restored, is exit code 1.
func (c *backupVerifyCmd) Run(e *env) error {
	dir, err := c.open(e, c.Place)
	if err != nil {
		return err
	}
	p := &progressLine{w: e.errOut}
	v, err := backup.Verify(e.ctx, dir, func(name string) { p.count("reading "+name, 0, 0) })
	p.end()
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(e.out, v)
	} else {
		printVerification(e, v)
	}
	if err == nil && (len(v.Problems) > 0 || len(v.Restorable) == 0) {
		err = cli.Silent(exitFailed)
	}
	return err
}

func printProblems(e *env, problems []backup.Problem) {
	for _, p := range problems {
		fmt.Fprintf(e.out, "%s %s: %s\n", e.bad("DAMAGED"), p.Object, p.What)
	}
}

func copies(n int) string { return count(n, "copy", "copies") }

func printVerification(e *env, v *backup.Verification) {
	fmt.Fprintf(e.out, "backup of cluster %s: %s and %s of log read, %d MiB\n", v.Cluster, copies(v.Bases),
		count(v.Segments, "segment", "segments"), v.Bytes>>20)
	var names []string
	for name := range v.Restorable {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r := v.Restorable[name]
		fmt.Fprintf(e.out, "copy %s: %s can be restored\n", name, momentsText(r.Since, r.Until, r.From, r.To))
	}
	printProblems(e, v.Problems)
	switch {
	case len(v.Problems) > 0:
	case len(names) == 0:
		fmt.Fprintln(e.out, "nothing can be restored: there is no complete copy yet; run `trireme backup` to its end")
	default:
		fmt.Fprintln(e.out, "the backup is whole")
	}
}

type backupPruneCmd struct {
	Place   string `arg:"" help:"Directory of the backup, or s3://BUCKET/PREFIX."`
	Keep    int    `placeholder:"N" help:"Keep the N newest copies that can be restored, and the log after the oldest of them."`
	KeepFor string `placeholder:"TIME" help:"Keep every moment of this period, such as 30d or 36h."`
	DryRun  bool   `help:"Only say what would be removed."`
	JSON    bool   `help:"Print it as JSON."`
	placeFlags
}

// Run prunes.
func (c *backupPruneCmd) Run(e *env) error {
	keep, err := c.retention()
	if err != nil {
		return err
	}
	dir, err := c.open(e, c.Place)
	if err != nil {
		return err
	}
	p, err := backup.Prune(e.ctx, dir, keep, time.Now(), c.DryRun)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, p)
	}
	printPruned(e, p, c.DryRun)
	return nil
}

func printPruned(e *env, p *backup.Pruned, dry bool) {
	verb := "removed"
	if dry {
		verb = "to remove"
	}
	fmt.Fprintf(e.out, "%s: %s and %s of log, %d MiB\n", verb, copies(len(p.Copies)),
		count(p.Segments, "segment", "segments"), p.Bytes>>20)
	for _, name := range p.Copies {
		fmt.Fprintf(e.out, "%s the copy %s\n", verb, name)
	}
	fmt.Fprintf(e.out, "kept: %s, and the log from entry %d on\n", copies(len(p.Kept)), p.First)
	if !p.Since.IsZero() {
		fmt.Fprintf(e.out, "the earliest moment that can be restored: %s\n", p.Since.Format(time.RFC3339))
	}
}

func (c *backupPruneCmd) retention() (r backup.Retention, err error) {
	if (c.Keep != 0) == (c.KeepFor != "") {
		return r, usagef("give one of --keep and --keep-for")
	}
	if c.KeepFor == "" {
		if r.Copies = c.Keep; c.Keep < 1 {
			err = usagef("--keep=%d is not 1 or more", c.Keep)
		}
		return r, err
	}
	if r.For, err = cli.Duration(c.KeepFor); err != nil || r.For <= 0 {
		return r, usagef("--keep-for=%s is not a time such as 30d or 36h", c.KeepFor)
	}
	return r, nil
}
