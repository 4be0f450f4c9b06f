package advise

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"trireme/internal/api"
)

// Limits above which something is worth a word.
const (
	smallTable     = 1000    // rows: below, a scan costs nothing
	largeRows      = 50_000  // changed by one statement
	largeTrxRows   = 100_000 // changed by one open transaction
	longTrxS       = 60
	lagS           = 1.0
	hotShare       = 0.3  // of samples in which somebody waits for one row
	dependentShare = 0.3  // of samples in which the applier waits for dependent transactions
	diskShare      = 0.01 // of transactions that do not fit the binary log's cache
	lockShare      = 0.2  // of a statement's time
	lockMS         = 1000 // in all, or it does not matter
	mostOfOne      = 20   // findings of one code
)

// Judge makes findings, the dear ones first.
func Judge(f Facts) []Finding {
	all := slices.Concat(failover(f.View), cascades(f), sessions(f), tables(f.Tables), hot(f), statements(f.Statements),
		transactions(f.Transactions), counters(f.Status), nodes(f))
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank(a), rank(b)) })
	count := map[string]int{}
	return slices.DeleteFunc(all, func(x Finding) bool {
		count[x.Code]++
		return count[x.Code] > mostOfOne
	})
}

func rank(f Finding) int {
	if f.Severity == Warn {
		return 0
	}
	return 1
}

func warnIf(costs bool) string {
	if costs {
		return Warn
	}
	return Info
}

func failover(v api.ClusterView) []Finding {
	var out []Finding
	if p := v.Failover.Problem; p != "" {
		out = append(out, Finding{NoFailover, Warn, v.Cluster, "no node could take over: " + p,
			"the loss of the leader ends writes until it is back", "trireme status, trireme why-not NODE"})
	}
	for _, m := range v.Members {
		lag, _, _ := m.Lag()
		if lag < lagS || m.Name == v.Leader {
			continue
		}
		out = append(out, Finding{Lag, Warn, m.Name, fmt.Sprintf("it lags by %.1f s", lag),
			"a new leader applies everything before it opens writes: about as long is added to a failover to it",
			"see the other findings for what holds its applier up"})
	}
	return out
}

func tables(list []Table) []Finding {
	var out []Finding
	slices.SortFunc(list, func(a, b Table) int {
		return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range list {
		what := fmt.Sprintf("%d rows, %d changed or deleted and %d inserted since the server started", t.Rows, t.Changed,
			t.Inserted)
		switch {
		case t.Primary || t.Unique:
		case t.Spatial:
			out = append(out, Finding{SpatialKey, Warn, t.Name, "it has a SPATIAL index and no primary key: " + what,
				"a follower looks for rows in the first index, finds none if that is the SPATIAL one of a column with an SRID, " +
					"and stops at each UPDATE and DELETE (error 1032)",
				"ALTER TABLE … ADD PRIMARY KEY, or a column for it: ADD id BIGINT UNSIGNED AUTO_INCREMENT INVISIBLE PRIMARY KEY"})
		case t.Indexes == 0:
			out = append(out, Finding{NoIndex, warnIf(t.Changed > 0 && t.Rows >= smallTable), t.Name,
				"it has no index at all: " + what,
				fmt.Sprintf("a follower reads the whole table, about %d rows, to find those of each event; nothing else of it is applied in parallel", t.Rows),
				"ALTER TABLE … ADD PRIMARY KEY, or a column for it: ADD id BIGINT UNSIGNED AUTO_INCREMENT INVISIBLE PRIMARY KEY"})
		default:
			out = append(out, Finding{NoPrimaryKey, warnIf(t.Changed > 0 && t.Rows >= smallTable), t.Name,
				"it has no primary key: " + what,
				"its transactions cannot be told apart by their rows, so followers apply each after all before it; rows are looked for by an index that is not unique",
				"make an index of columns that are NOT NULL and unique the primary key, or ADD id BIGINT UNSIGNED AUTO_INCREMENT INVISIBLE PRIMARY KEY"})
		}
		if len(t.Children) > 0 {
			out = append(out,
				Finding{ForeignKeys, Info, t.Name, fmt.Sprintf("foreign keys of %s refer to it: %s", strings.Join(t.Children, ", "),
					what),
					"transactions that change it are not compared by their rows: followers apply each after those that were committed before it",
					"as it is, if it seldom changes; else check the reference in the application and drop the foreign key"})
		}
	}
	return out
}

func hot(f Facts) []Finding {
	var out []Finding
	keys := make([]Key, 0, len(f.Hot))
	for k := range f.Hot {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(f.Hot[b], f.Hot[a]), cmp.Compare(a.Table+a.Row, b.Table+b.Row))
	})
	for _, k := range keys {
		share := float64(f.Hot[k]) / float64(f.Samples)
		if share < hotShare {
			continue
		}
		out = append(out,
			Finding{HotRow, Warn, k.Table, fmt.Sprintf("sessions waited for the row %s of index %s in %d of %d looks", k.Row,
				k.Index, f.Hot[k], f.Samples),
				"its transactions run one after the other, each for a commit's round trip to the majority, and followers apply them so",
				"spread the counter over several rows, change it last in the transaction, or gather changes before they are written"})
	}
	return out
}

func statements(list []Statement) []Finding {
	var out []Finding
	for _, s := range list {
		if s.Count == 0 {
			continue
		}
		if each := s.Rows / s.Count; each >= largeRows {
			out = append(out, Finding{LargeStatement, Warn, s.Text, fmt.Sprintf("%d times, about %d rows each", s.Count, each),
				"it holds up every other commit while mysqld copies it into the binary log; a follower applies it in one thread, and what comes after waits for it to commit: lag, and a longer failover",
				"do it in pieces of some thousand rows"})
		}
		if s.LockMS >= lockMS && s.LockMS >= lockShare*s.AllMS {
			out = append(out,
				Finding{LockWaits, Warn, s.Text, fmt.Sprintf("%.0f of %.0f s went into waits for locks, in %d executions",
					s.LockMS/1000, s.AllMS/1000, s.Count),
					"transactions wait for each other, and followers cannot apply in parallel what could not run in parallel",
					"shorten transactions that touch these rows; see " + HotRow})
		}
	}
	return out
}

func transactions(list []Transaction) []Finding {
	var out []Finding
	for _, t := range list {
		who := fmt.Sprintf("thread %d", t.Thread)
		what := fmt.Sprintf("open for %d s, %d rows changed, %s", t.AgeS, t.Rows, orNothing(t.Statement))
		switch {
		case t.Rows >= largeTrxRows:
			out = append(out, Finding{LargeTransaction, Warn, who, what,
				"its commit holds up all others; a switchover rolls it back, which takes about as long as it ran; a follower applies it in one thread", "commit in pieces of some thousand rows"})
		case t.AgeS >= longTrxS && t.Rows > 0:
			out = append(out,
				Finding{LongTransaction, Warn, who, what, "a switchover waits for it, then rolls it back; its locks block others",
					"find out who forgets to commit: KILL " + fmt.Sprint(t.Thread) + " ends it"})
		case t.AgeS >= longTrxS:
			out = append(out,
				Finding{LongTransaction, Info, who, what, "old versions of rows are kept for it, and DDL on its tables waits",
					"end transactions that only read, too"})
		}
	}
	return out
}

func orNothing(statement string) string {
	if statement == "" {
		return "idle"
	}
	return statement
}

func counters(s map[string]uint64) []Finding {
	use, disk := s["binlog_cache_use"], s["binlog_cache_disk_use"]
	if use < 1000 || float64(disk) < diskShare*float64(use) {
		return nil
	}
	return []Finding{{CacheOnDisk, Info, "binlog_cache_size",
		fmt.Sprintf("%d of %d transactions did not fit the binary log's cache", disk, use),
		"each goes through a temporary file before its commit",
		"a larger binlog_cache_size in mysql.options (it is memory for each session)"}}
}

// alike must be the same on all nodes: after a failover the application meets the other value.
var alike = []string{"sql_mode", "time_zone", "character_set_server", "collation_server", "max_allowed_packet",
	"max_connections", "transaction_isolation",
	"lower_case_table_names", "explicit_defaults_for_timestamp", "innodb_strict_mode", "group_concat_max_len"}

const bufferPool = "innodb_buffer_pool_size"

func nodes(f Facts) []Finding {
	var out []Finding
	if len(f.Nodes) == 0 {
		return nil
	}
	leader := f.Nodes[0]
	for _, n := range f.Nodes[1:] {
		for _, name := range alike {
			if n.Settings[name] != leader.Settings[name] {
				out = append(out, Finding{SettingsDiffer, Warn, n.Name, fmt.Sprintf("%s is %q, on %s %q", name, n.Settings[name],
					leader.Name, leader.Settings[name]),
					"after a failover to it the application meets another server than the one that it was tested with",
					"the same in mysql.options of every node"})
			}
		}
		mine, _ := strconv.ParseUint(n.Settings[bufferPool], 10, 64) // 0 if it was not read
		theirs, _ := strconv.ParseUint(leader.Settings[bufferPool], 10, 64)
		if mine < theirs/2 {
			out = append(out, Finding{SmallMemory, Warn, n.Name, fmt.Sprintf("its %s is %d MiB, that of %s %d MiB", bufferPool,
				mine>>20, leader.Name, theirs>>20),
				"it applies from disk what the leader changes in memory, and is slow once it leads",
				"the same memory, or a lower weight (trireme config)"})
		}
	}
	for _, n := range f.Nodes {
		if w, err := strconv.Atoi(n.Settings["replica_parallel_workers"]); err == nil && w <= 1 {
			out = append(out, Finding{OneWorker, Warn, n.Name, fmt.Sprintf("replica_parallel_workers is %d", w),
				"it applies one transaction after the other", "about twice the number of its CPUs, in mysql.options"})
		}
		if waits := n.Waits[dependentState]; f.Samples > 0 && float64(waits) >= dependentShare*float64(f.Samples) {
			out = append(out,
				Finding{Dependent, Warn, n.Name, fmt.Sprintf("its applier waited for dependent transactions in %d of %d looks",
					waits, f.Samples),
					"transactions that change the same rows, tables without a primary key or parents of foreign keys are applied one after the other", "see " + strings.Join([]string{HotRow, NoPrimaryKey, ForeignKeys}, ", ")})
		}
	}
	return out
}

// dependentState is what the applier's coordinator shows while the next transaction has to wait for others (mysqld.cc).
const dependentState = "Waiting for dependent transaction to commit"
