package bench

import (
	"fmt"
	"slices"

	"trireme/internal/base/config"
	"trireme/lab/report"
)

// Names of values of the suites replay and trx-size.
const (
	valWorkers       = "workers"
	valLoadTPS       = "load_tps"
	valBacklog       = "backlog"
	valApplyTPS      = "apply_tps"
	valApplyRows     = "apply_rows"
	valDrain         = "drain_s"
	valDrainAll      = "drain_all_s"
	valDrainStart    = "drain_start_s"
	valApplyUS       = "apply_cpu_us"
	valFeedUS        = "feed_cpu_us"
	valLag50         = "lag_p50_ms"
	valLag99         = "lag_p99_ms"
	valLagMax        = "lag_max_ms"
	valLagBack       = "lag_back_s"
	valBigStatements = "big_statements_s"
	valBigCommit     = "big_commit_s"
	valBigApplied    = "big_applied_s"
	valBigTimes      = "big_times"
	valOthersFailed  = "others_failed"
	valP99Before     = "p99_before_ms"
	valP99During     = "p99_during_ms"
	valP99After      = "p99_after_ms"
	valGapBefore     = "gap_before_ms"
	valGapDuring     = "gap_during_ms"
	valGapAfter      = "gap_after_ms"
	valMySQLRSS      = "mysqld_rss_mib"
	valMySQLRSS2     = "mysqld_rss2_mib"
)

var replayMetrics = []metric{
	{Name: valWorkers, Title: "workers"},
	{Name: valLoadTPS, Title: "TPS of the load"},
	{Name: valBacklog, Title: "transactions"},
	{Name: valApplyTPS, Title: "applied per s", Unit: " transactions/s", Brief: true},
	{Name: valApplyRows, Title: "rows per s", Unit: " rows/s", Brief: true},
	{Name: valDrain, Title: "applying s", Unit: " s", Lower: true, Digits: 2, Brief: true},
	{Name: valDrainStart, Title: "start-up s", Unit: " s start-up", Lower: true, Digits: 2, Brief: true},
	{Name: valDrainAll, Title: "both s", Lower: true, Digits: 2},
	{Name: valApplyUS, Title: "replica's CPU µs", Lower: true},
	{Name: valFeedUS, Title: "leader's CPU µs", Lower: true},
	{Name: valLag50, Title: "lag p50 ms", Unit: " ms lag p50", Lower: true, Digits: 1, Brief: true},
	{Name: valLag99, Title: "lag p99 ms", Unit: " ms p99", Lower: true, Digits: 1, Brief: true},
	{Name: valLagMax, Title: "longest lag ms", Unit: " ms at most", Lower: true, Digits: 1, Brief: true},
	{Name: valLagBack, Title: "back after s", Lower: true, Digits: 2},
	{Name: valBigStatements, Title: "statements s", Lower: true, Digits: 3},
	{Name: valBigCommit, Title: "commit s", Unit: " s commit", Lower: true, Digits: 3, Brief: true},
	{Name: valBigApplied, Title: "applied everywhere s", Unit: " s applied", Lower: true, Digits: 3, Brief: true},
	{Name: valBigTimes, Title: "times"},
	{Name: valOthersFailed, Title: "others' errors", Lower: true},
	{Name: valP99Before, Title: "others' p99 ms before", Lower: true, Digits: 1},
	{Name: valP99During, Title: "during", Unit: " ms others' p99", Lower: true, Digits: 1, Brief: true},
	{Name: valP99After, Title: "after", Lower: true, Digits: 1},
	{Name: valGapBefore, Title: "longest gap ms before", Lower: true, Digits: 1},
	{Name: valGapDuring, Title: "longest gap ms during", Unit: " ms gap", Lower: true, Digits: 1, Brief: true},
	{Name: valGapAfter, Title: "longest gap ms after", Lower: true, Digits: 1},
	{Name: valMySQLRSS, Title: "leader's mysqld MiB", Lower: true},
	{Name: valMySQLRSS2, Title: "other mysqlds MiB", Lower: true},
}

var replaySuite = Suite{
	Name: "replay", Title: "How fast followers apply",
	About: "One replica of three is stopped while write_only transactions (four changes of rows each) are committed. Then the load ends, the other replica catches up, and the stopped one is released. " +
		"Rates are measured between 90 % and 10 % of the backlog left; start-up is the time until the first transaction was applied. With semi-sync and asynchronous replication " +
		"only the applier stops (`STOP REPLICA SQL_THREAD`): the backlog is in the replica's own relay log. The applier of a Group Replication member cannot be stopped alone, so the member leaves the group and joins again; " +
		"a node of Trireme is shut down and started. With these two the backlog comes over the network from the others. " +
		"Rivals run with each number of applier workers, asynchronous replication also without log_replica_updates; Trireme with its own choice, twice as many as the machine has CPUs, and in full runs with each number (`replica_parallel_workers` in `mysql.options`). " +
		"In full: 30,000 transactions, 1, 4, 8 and 16 workers, 3 rounds. How much followers lag is for suite `lag`.",
	Defaults: func(quick bool) Settings {
		s := Settings{Topologies: []string{"lan"}, Workers: []int{1, 4, 8, 16}, Threads: []int{64}, Rounds: 3,
			WarmupSeconds: 5, Seconds: 60, Tables: 8, Rows: 20000, Transactions: 30000,
			Systems: []string{"async", "semisync", "mgr-eventual", "trireme"}}
		if quick {
			s.Workers, s.Rounds, s.Seconds, s.Transactions, s.Systems = []int{4, 16}, 1, 20, 15000,
				[]string{"semisync", "mgr-eventual", "trireme"}
		}
		return s
	},
	Check: func(s Settings) error {
		for _, w := range s.Workers {
			if w < 1 {
				return fmt.Errorf("%d workers: at least 1", w)
			}
		}
		if s.Transactions < 1 {
			return fmt.Errorf("a backlog of %d transactions: at least 1", s.Transactions)
		}
		return nil
	},
	Plan:    replayPlan,
	Compare: []Comparison{{valApplyRows}, {valDrain}, {valDrainAll}},
	Blocks: func(r *Results) []report.Block {
		drains := ofCase(r.summaries(), caseBacklog)
		return filled(
			pivot(best(drains, valApplyRows), valApplyRows, "Rows applied per second, with the system's best number of workers"),
			relative(best(drains, valDrain), valDrain,
				"Time to apply the backlog, without start-up: Trireme's divided by others'"),
			relative(best(drains, valDrainAll), valDrainAll, "The same with start-up"),
			lines(drains, "Applying a backlog", []string{valWorkers, valLoadTPS, valBacklog, valApplyTPS, valApplyRows, valDrain,
				valDrainStart, valDrainAll, valApplyUS, valFeedUS}),
			r.seriesChart(best(drains, valDrain), valBacklog, "Transactions left of the backlog", "transactions", 0),
		)
	},
}

var trxSizeSuite = Suite{
	Name: "trx-size", Title: "Large transactions, and their effect on others",
	About: "One session inserts rows of 1 KiB in one transaction of the given size, while 16 sessions run write_only transactions, 50 per second in all. " +
		"Commit is the COMMIT statement alone, statements is the time before it; applied everywhere is the time from COMMIT until the last replica shows the rows. Small transactions are repeated; the median is shown. " +
		"The others' latency counts from the time at which a transaction was due, so it includes waiting. The longest gap is the longest time without any acknowledged commit. " +
		"Memory is the highest resident size during that time. group_replication_transaction_size_limit is raised from its default of 150,000,000 to the highest, 2,147,483,647. " +
		"In full: 1 KiB to 1 GiB on four systems, 3 rounds, 10 s before and after each.",
	Defaults: func(quick bool) Settings {
		s := Settings{Topologies: []string{"lan"}, Cases: []string{"1KiB", "64KiB", "1MiB", "16MiB", "128MiB", "1GiB"},
			Threads: []int{16}, Rounds: 3, Seconds: 10, CPUs: -1, Tables: 8, Rows: 20000,
			Systems: []string{"standalone", "semisync", "mgr-after", "trireme"}}
		if quick {
			s.Cases, s.Rounds, s.Seconds, s.Systems = []string{"1KiB", "1MiB", "16MiB", "128MiB"}, 1, 5,
				[]string{"semisync", "mgr-after", "trireme"}
		}
		return s
	},
	Check: func(s Settings) error {
		for _, c := range s.Cases {
			if n, err := config.ParseBytes(c); err != nil || n < bigRow {
				return fmt.Errorf("case %q: a size of at least 1KiB, such as 16MiB", c)
			}
		}
		return nil
	},
	Plan:    trxSizePlan,
	Compare: []Comparison{{valP99During}, {valBigCommit}, {valGapDuring}, {valBigApplied}},
	Blocks: func(r *Results) []report.Block {
		all := r.summaries()
		return filled(
			pivot(all, valBigCommit, "Seconds of COMMIT"),
			pivot(all, valBigApplied, "Seconds until every replica has applied it"),
			pivot(all, valP99During, "p99 of the others' transactions, ms, while it is committed and applied"),
			pivot(all, valGapDuring, "Longest time without any commit, ms"),
			bySize(all, valP99During, "p99 of the others"),
			bySize(all, valBigCommit, "COMMIT"),
			lines(all, "Everything", []string{valBigTimes, valBigStatements, valBigCommit, valBigApplied, valP99Before,
				valP99During, valP99After, valGapBefore, valGapDuring, valGapAfter, valOthersFailed}),
			lines(all, "Highest resident memory", []string{valMySQLRSS, valMySQLRSS2, valDaemonRSS, valDaemonRSS2}),
		)
	},
}

func ofCase(all []summary, name string) []summary {
	return only(all, func(k Key) bool { return k.Case == name })
}

// filled drops tables and charts with nothing in them: of cases that were not run.
func filled(blocks ...report.Block) []report.Block {
	return slices.DeleteFunc(blocks, func(b report.Block) bool {
		switch b := b.(type) {
		case report.Table:
			return len(b.Rows) == 0
		case report.Chart:
			return len(b.Series) == 0
		}
		return false
	})
}

// bySize is a chart of a metric over the size that is a cell's case.
func bySize(all []summary, metric, title string) report.Chart {
	c := report.Chart{Title: title, X: "MiB in one transaction", Y: metricOf(metric).Title, LogX: true, LogY: true}
	c.Series = curves(all, metric, func(k Key) (float64, error) {
		size, err := config.ParseBytes(k.Case)
		return float64(size) / (1 << 20), err
	})
	return c
}

// seriesChart draws a series of the first round of each summary, a value for each second from begin on.
func (r *Results) seriesChart(of []summary, name, title, y string, begin float64) report.Chart {
	c := report.Chart{Title: title, X: "seconds", Y: y}
	for _, s := range of {
		for _, rec := range r.first(s) {
			if rec.Series[name] == nil {
				continue
			}
			line := report.Series{Name: shortName(s.System), Ours: isOurs(s.System)}
			for i, v := range rec.Series[name] {
				line.Points = append(line.Points, report.Point{X: begin + float64(i), Y: v})
			}
			c.Series = append(c.Series, line)
		}
	}
	return c
}
