package sim

// Counts says how often something happened, by name.
type Counts map[string]int64

// Add adds b to c.
func (c Counts) Add(b Counts) {
	for k, v := range b {
		c[k] += v
	}
}

type counter int

const (
	cSteps counter = iota
	cProposals
	cAccepted
	cAcknowledged
	cCommits
	cReads
	cReadsAnswered
	cLeaseReads
	cLeaseSteps
	cElections
	cStarts
	cKills
	cPowerLosses
	cPauses
	cPartitions
	cBadLinks
	cClocks
	cSlowDisks
	cDiskFailures
	cFullDisks
	cBitFlips
	cCorruptFound
	cRotUnseen
	cLost
	cPeerGone
	cTransfers
	cDeposed
	cChangesAsked
	cChanges
	cPurges
	cSnapshots
	cMessages
	cLostMessages
	cAppends
	numCounters
)

var counterNames = [numCounters]string{
	"steps", "proposals", "accepted", "acknowledged", "commits", "reads", "reads_answered", "lease_reads", "lease_steps",
	"elections", "starts", "kills", "power_losses", "pauses", "partitions", "bad_links", "clock_changes", "slow_disks",
	"disk_failures", "full_disks", "bit_flips", "corruptions_found", "corruptions_of_the_tail", "disks_lost", "peer_gone",
	"transfers", "deposed", "membership_asked", "membership_changes", "purges", "snapshots", "messages", "messages_lost",
	"appends",
}

func (w *World) count(c counter) { w.counts[c]++ }

// Count adds n to a counter of the caller's own; it is in Result.Counts under that name.
func (w *World) Count(name string, n int64) {
	if w.extra == nil {
		w.extra = Counts{}
	}
	w.extra[name] += n
}

func (w *World) countsByName() Counts {
	out := Counts{}
	w.counts[cSteps] = int64(w.step)
	for i, v := range w.counts {
		out[counterNames[i]] = v
	}
	out.Add(w.extra)
	return out
}

// happens is what some forty seeds with mysqld have to have seen: a simulation in which nothing happens finds nothing.
var happens = []string{"acked", "unknown", "refused", "sql_reads", "opens", "retires", "guard_kills", "mysqld killed",
	"mysqld hangs", "dump connection lost", "binary log rotated", "switchover", "data directory lost",
	"leadership back and forth", "power_losses", "purges", "plugged", "refed", "seeds", "daemon stopped politely",
	"data tampered with", "mysqld shut down by somebody", "applier stops", "disk nearly full",
	"no room in the logs", "majorities_lost", "force_quorums"}

// Missing is what has to have happened in some forty seeds with mysqld, and did not.
func (c Counts) Missing() (none []string) {
	for _, what := range happens {
		if c[what] == 0 {
			none = append(none, what)
		}
	}
	return none
}
