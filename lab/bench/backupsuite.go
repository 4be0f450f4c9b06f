package bench

import (
	"fmt"
	"time"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// Cases of the suite backup.
const (
	caseCopy    = "copy"
	caseRestore = "restore"
	caseArchive = "archive"
	caseCheck   = "check"
)

var backupCases = []string{caseCopy, caseRestore, caseArchive, caseCheck}

// Names of values of the suite backup.
const (
	valDataMiB   = "data_mib"
	valCopyS     = "copy_s"
	valCopyMiBs  = "copy_mib_per_s"
	valBusyS     = "busy_s"
	valStored    = "stored_mib"
	valRestoreS  = "restore_s"
	valRestoreMB = "restore_mib_per_s"
	valTPSAlone  = "tps_alone"
	valTPSDuring = "tps_during"
	valTPSKept   = "tps_kept"
	valRPO50     = "rpo_p50_s"
	valRPO99     = "rpo_p99_s"
	valRPOMax    = "rpo_max_s"
	valCheckRows = "check_rows_per_s"
	valBusyRows  = "busy_rows_per_s"
	valLocked    = "locked_ranges"
)

// rpoWanted is how old the newest transaction in Trireme's archive may be.
const rpoWanted = 5 * time.Second

var backupMetrics = []metric{
	{Name: valDataMiB, Title: "data MiB"},
	{Name: valCopyS, Title: "copy s", Unit: " s", Lower: true, Digits: 1, Brief: true},
	{Name: valCopyMiBs, Title: "MiB/s", Unit: " MiB/s", Digits: 1, Brief: true},
	{Name: valBusyS, Title: "with writers s", Unit: " s with writers", Lower: true, Digits: 1, Brief: true},
	{Name: valStored, Title: "stored MiB", Lower: true},
	{Name: valRestoreS, Title: "restore s", Unit: " s", Lower: true, Digits: 1, Brief: true},
	{Name: valRestoreMB, Title: "MiB/s", Unit: " MiB/s", Digits: 1, Brief: true},
	{Name: valTPSAlone, Title: "writers' TPS without"},
	{Name: valTPSDuring, Title: "during"},
	{Name: valTPSKept, Title: "kept %", Unit: " % of the writers' TPS kept", Digits: 1, Brief: true},
	{Name: valRPO50, Title: "age p50 s", Lower: true, Digits: 2},
	{Name: valRPO99, Title: "age p99 s", Unit: " s p99", Lower: true, Digits: 2, Brief: true},
	{Name: valRPOMax, Title: "longest s", Unit: " s at most", Lower: true, Digits: 2, Brief: true},
	{Name: valCheckRows, Title: "rows per s at full share", Unit: " rows/s", Brief: true},
	{Name: valBusyRows, Title: "rows per s at share 0.2, with writers", Unit: " rows/s with writers", Brief: true},
	{Name: valLocked, Title: "ranges under a lock", Lower: true},
}

var backupSuite = Suite{
	Name: "backup", Title: "Backups, restorations and checks, and what they cost writers",
	About: "`copy`: a copy of all data of the last replica, on its host and with its CPU budget, first without load, then with writers (oltp_write_only). The writers' TPS during the copy is compared with the seconds before and after it, in one run. Speeds are the size of the tables divided by the time. " +
		"`trireme backup` compresses with zstd, checks, and archives the log meanwhile; CLONE (`CLONE LOCAL DATA DIRECTORY`) copies files as they are; `mysqldump --single-transaction` writes SQL. " +
		"`restore`: the time to make that copy the data directory of a server, on this machine without a budget. That is `trireme restore` with the log after the copy; for CLONE, copying the files back and starting a server; for mysqldump, loading it into a new server without a binary log. " +
		"`archive`: the age of the newest transaction in the archive of the log, while writers write as fast as they can. The end of the log is read every 200 ms, the end of the archive every 100 ms. `trireme backup --follow` stores complete, fsynced, compressed segments; `mysqlbinlog --read-from-remote-server --raw --stop-never` appends to a file without fsync, " +
		"so its host may lose what it has written. `check`: `trireme check` of two tables on all nodes, at full share without load, then at its default share of 0.2 with writers.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Threads, s.Cases, s.Systems, s.AllVariants = []int{16}, backupCases, []string{"semisync", "trireme"}, false
		s.Seconds, s.Rows = 60, 1_000_000
		if quick {
			s.Seconds, s.Rows = 15, 150_000
		}
		return s
	},
	Check: func(s Settings) error {
		if err := knownCases(s.Cases, backupCases); err != nil {
			return err
		}
		return s.oneLoad()
	},
	Plan:    backupPlan,
	Compare: []Comparison{{valCopyMiBs}, {valRestoreMB}, {valTPSKept}, {valRPO99}},
	Blocks: func(r *Results) []report.Block {
		all := r.summaries()
		archive := ofCase(all, caseArchive)
		return filled(
			lines(ofCase(all, caseCopy), "A copy", []string{valDataMiB, valStored, valCopyS, valCopyMiBs, valBusyS, valTPSAlone,
				valTPSDuring, valTPSKept}),
			lines(ofCase(all, caseRestore), "Its restoration", []string{valDataMiB, valRestoreS, valRestoreMB}),
			rpoWantedTable(archive),
			lines(ofCase(all, caseCheck), "A check", []string{valDataMiB, valCheckRows, valBusyRows, valLocked, valTPSAlone,
				valTPSDuring, valTPSKept}),
			r.seriesChart(archive, valRPOMax, "Age of the newest transaction in the archive, the highest in each second",
				"s", 0),
		)
	},
}

// rpoWantedTable reports whether what is wanted of the archive is kept.
func rpoWantedTable(all []summary) report.Table {
	t := lines(all, "An archive of the log", []string{valTPSAlone, valTPSDuring, valTPSKept, valRPO50, valRPO99,
		valRPOMax})
	t.Columns = append(t.Columns, report.Column{Title: fmt.Sprintf("at most %v", rpoWanted)})
	for i, s := range all {
		c := report.Cell{Text: "–", Mark: report.Absent}
		if s.has(valRPOMax) {
			c = report.Cell{Text: "always", Mark: report.Better}
			if s.Values[valRPOMax].High > rpoWanted.Seconds() {
				c = report.Cell{Text: "not always", Mark: report.Worse}
			}
		}
		t.Rows[i] = append(t.Rows[i], c)
	}
	return t
}

// backupTools are what a system's operators use for a case; nil: there is nothing.
func backupTools(system rivals.System, c string) []string {
	switch {
	case system.Ours:
		return []string{"trireme " + c}
	case c == caseCopy || c == caseRestore:
		return []string{rivals.ToolClone, rivals.ToolDump}
	case c == caseArchive:
		return []string{rivals.ToolBinlog}
	}
	return nil
}

// backupPlan: one start for each system, on which all cases follow one another, each with every tool.
func backupPlan(s Settings) ([]Group, error) {
	if err := lookSysbench(); err != nil {
		return nil, err
	}
	cases := s.Cases
	s.Cases = nil
	return s.groups(func(g *Group, base Key) error {
		g.Prepare = prepareTables
		g.Shape.Options = rivals.BackupOptions(g.System)
		base.Threads = s.Threads[0]
		for _, c := range cases {
			for _, tool := range backupTools(g.System, c) {
				k := base
				k.Case, k.Variant = c, tool
				g.Cells = append(g.Cells, Cell{Key: k, Takes: 2*time.Duration(s.Seconds)*time.Second + time.Minute,
					Measure: backupCell(k, tool)})
			}
		}
		return nil
	})
}
