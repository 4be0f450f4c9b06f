package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/ops/cli"
)

// logCmd is `trireme log`.
type logCmd struct {
	Dump   logDumpCmd   `cmd:"" help:"Print the entries, one per line."`
	Verify logVerifyCmd `cmd:"" help:"Read every byte and say whether the log is whole."`
	NewKey logKeyCmd    `cmd:"" help:"Make a key to encrypt the log with: append it to a key file, or make one."`
}

// logDir is what both verbs that read a log are given.
type logDir struct {
	Dir     string `arg:"" type:"path" help:"Directory of a node, or the raft directory in it."`
	KeyFile string `type:"path" placeholder:"FILE" help:"Keys of an encrypted log. Default: those that the node's settings name."`
	Config  string `type:"path" placeholder:"FILE" help:"Settings that say where they are. Default: trireme.toml in the node's directory, $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
}

// keys of the log; nil if neither a flag nor the node's settings name any. Settings that are not there matter only to a
// log that is encrypted, which says so.
func (d logDir) keys(e *env) (*raftlog.Keys, error) {
	if d.KeyFile != "" {
		return raftlog.LoadKeys(e.ctx, d.KeyFile, nil)
	}
	settings := cmp.Or(d.Config, defaultConfigFile())
	if own := filepath.Join(d.Dir, "trireme.toml"); d.Config == "" { // where init --dir puts them
		if _, err := os.Stat(own); err == nil {
			settings = own
		}
	}
	n, err := config.Load(settings)
	if err != nil && d.Config != "" {
		return nil, err
	} else if err != nil {
		return nil, nil
	}
	return raftlog.LoadKeys(e.ctx, n.Raft.LogKeyFile, n.Raft.LogKeyCommand)
}

type logKeyCmd struct {
	File string `arg:"" type:"path" help:"Key file, as raft.log_key_file names it. Keep a copy of it elsewhere than the log."`
	ID   string `name:"id" placeholder:"ID" help:"Name of the key: letters, digits, and ._:-. Default: the time of day."`
}

// Run makes a key. Nodes that use the file take it up within a minute.
func (c *logKeyCmd) Run(e *env) error {
	text, err := raftlog.ReadKeyFile(c.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id := cmp.Or(c.ID, time.Now().UTC().Format("2006-01-02T15:04:05Z"))
	if text, err = raftlog.AddKey(text, id); err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if err := durable.WriteFile(c.File, text, 0o600); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "key %s is in %s\n", id, c.File)
	return nil
}

// open finds the log itself, and its keys. It looks for the log's state file only to word the most common mistake well.
func (d logDir) open(e *env) (string, *raftlog.Keys, error) {
	for _, dir := range []string{config.Node{Dir: d.Dir}.RaftDir(), d.Dir} {
		if _, err := os.Stat(filepath.Join(dir, "state")); err == nil {
			keys, err := d.keys(e)
			return dir, keys, err
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", nil, err
		}
	}
	return "", nil, fmt.Errorf("%s holds no raft log; give the directory of a node, or the raft directory in it", d.Dir)
}

type logDumpCmd struct {
	logDir
	From   uint64 `placeholder:"INDEX" help:"First entry."`
	To     uint64 `placeholder:"INDEX" help:"Last entry."`
	Events bool   `help:"A line for each binary-log event too."`
	JSON   bool   `help:"An object for each entry, one a line."`
}

// Run prints the log. A running node is not disturbed.
func (c *logDumpCmd) Run(e *env) error {
	if c.To != 0 && c.To < c.From {
		return usagef("--to=%d is before --from=%d", c.To, c.From)
	}
	if c.Events && c.JSON {
		return usagef("--events and --json exclude each other: mysqlbinlog reads a segment and knows its events best")
	}
	dir, keys, err := c.open(e)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(e.out, 64<<10)
	show, enc := func(e *raftlog.EntryInfo) error { return c.line(w, e) }, json.NewEncoder(w)
	if c.JSON {
		show = func(e *raftlog.EntryInfo) error { return enc.Encode(logObject(e)) }
	}
	errEnough := errors.New("that was the last one")
	err = raftlog.Walk(nil, dir, keys, func(e *raftlog.EntryInfo) error {
		if c.To != 0 && e.Index > c.To {
			return errEnough
		}
		if e.Index < c.From {
			return nil
		}
		return show(e)
	})
	if flushErr := w.Flush(); err == nil || err == errEnough {
		err = flushErr
	}
	return err
}

// line prints an entry, and with --events a line for each of its events:
//
//	41  term 3  trx  node 1 incarnation 12  binlog.000001:4711..9803  1746 bytes  unfinished  3e11…:17-19
func (c *logDumpCmd) line(w *bufio.Writer, e *raftlog.EntryInfo) error {
	kind, m := entryKind(e), e.Meta
	fmt.Fprintf(w, "%d\tterm %d\t%s", e.Index, e.Term, kind)
	if m != nil {
		fmt.Fprintf(w, "\tnode %d incarnation %d\t%v..%d:%d\t%d bytes", m.Node, m.Incarnation, m.Start, m.End.File, m.End.Off,
			len(e.Events))
		for _, f := range []struct {
			is   bool
			name string
		}{{m.Flags&raftlog.FlagContinues != 0, "continues"}, {m.Flags&raftlog.FlagUnfinished != 0, "unfinished"},
			{m.Flags&raftlog.FlagSpecial != 0, "special"}, {e.Aborts, "aborts"}} {
			if f.is {
				fmt.Fprint(w, "\t", f.name)
			}
		}
		for _, r := range m.GTIDs {
			fmt.Fprint(w, "\t", r)
		}
	} else if len(e.Data) > 0 {
		fmt.Fprintf(w, "\t%d bytes", len(e.Data))
	}
	if _, err := fmt.Fprintf(w, "\t%s:%d\n", e.File, e.Offset); err != nil || !c.Events || m == nil ||
		m.Kind == raftlog.Settings {
		return err
	}
	for events := e.Events; len(events) > 0; {
		h, ev, rest, err := binlog.Cut(events)
		if err != nil {
			_, err = fmt.Fprintf(w, "\t%d bytes that are no event: %v\n", len(events), err)
			return err
		}
		note := ""
		if err := binlog.VerifyChecksum(ev); err != nil {
			note = "  " + err.Error()
		}
		fmt.Fprintf(w, "\t%v\t%d bytes\tend %d%s\n", h.Type, h.EventSize, h.LogPos, note)
		events = rest
	}
	return nil
}

// logEntry is one entry as --json prints it.
type logEntry struct {
	Index       uint64   `json:"index"`
	Term        uint64   `json:"term"`
	Kind        string   `json:"kind"`
	Node        uint16   `json:"node,omitempty"`
	Incarnation uint64   `json:"incarnation,omitempty"`
	Start       string   `json:"start,omitempty"`
	End         string   `json:"end,omitempty"`
	Bytes       int      `json:"bytes"`
	Unfinished  bool     `json:"unfinished,omitempty"`
	GTIDs       []string `json:"gtids,omitempty"`
	File        string   `json:"file"`
	Offset      int64    `json:"offset"`
}

func logObject(e *raftlog.EntryInfo) *logEntry {
	o := &logEntry{Index: e.Index, Term: e.Term, Kind: entryKind(e), Bytes: len(e.Data), File: e.File, Offset: e.Offset}
	if m := e.Meta; m != nil {
		o.Bytes, o.Node, o.Incarnation = len(e.Events), m.Node, m.Incarnation
		o.Start, o.End, o.Unfinished = m.Start.String(), m.End.String(), m.Flags&raftlog.FlagUnfinished != 0
		for _, g := range m.GTIDs {
			o.GTIDs = append(o.GTIDs, g.String())
		}
	}
	return o
}

// entryKind is one of Trireme's own, or raft's, such as a change of the membership.
func entryKind(e *raftlog.EntryInfo) string {
	switch {
	case e.Meta != nil:
		return e.Meta.Kind.String()
	case len(e.Data) == 0:
		return "empty"
	}
	return strings.ToLower(strings.TrimPrefix(e.Type.String(), "Entry"))
}

type logVerifyCmd struct {
	logDir
	JSON bool `help:"Print the report as JSON."`
}

// Run prints the report, also that of a damaged log as far as it could be read.
func (c *logVerifyCmd) Run(e *env) error {
	dir, keys, err := c.open(e)
	if err != nil {
		return err
	}
	r, err := raftlog.Verify(nil, dir, keys)
	if c.JSON {
		if jsonErr := printJSON(e.out, r); err == nil {
			err = jsonErr
		}
		return err
	}
	if r != nil && len(r.Segments) > 0 {
		printReport(e, r)
	}
	if err == nil {
		fmt.Fprintln(e.out, "the log is whole")
	}
	return err
}

func printReport(e *env, r *raftlog.Report) {
	fmt.Fprintf(e.out, "node %d · term %d · entries %d to %d (%d) · durable to %d · committed to at least %d\n", r.Node,
		r.Term, r.First, r.Last, r.Entries, r.Durable, r.Commit)
	fmt.Fprintf(e.out, "voters %v · learners %v\n", r.Voters, r.Learners)
	gtids := strings.ReplaceAll(r.GTIDs.String(), ",", ", ")
	if gtids == "" {
		gtids = "none"
	}
	for i, line := range cli.Wrap("GTIDs "+gtids, 94) {
		if i > 0 {
			line = "      " + line
		}
		fmt.Fprintln(e.out, line)
	}
	if r.OpenTransactionAt != 0 {
		fmt.Fprintf(e.out, "the log ends in the middle of the transaction that begins at entry %d\n", r.OpenTransactionAt)
	}
	rows := [][]string{{"SEGMENT", "FIRST", "LAST", "BYTES", "TORN"}}
	encrypted := slices.ContainsFunc(r.Segments, func(s raftlog.SegmentReport) bool { return s.Key != "" })
	if encrypted {
		rows[0] = append(rows[0], "KEY")
	}
	for _, s := range r.Segments {
		row := []string{s.File, fmt.Sprint(s.First), fmt.Sprint(s.Last), fmt.Sprint(s.Bytes), fmt.Sprint(s.TornBytes)}
		if encrypted {
			row = append(row, cmp.Or(s.Key, "not encrypted"))
		}
		rows = append(rows, row)
	}
	cli.PrintTable(e.out, rows)
}
