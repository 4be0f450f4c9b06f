package ledger

import (
	"fmt"
	"slices"
	"strings"

	"trireme/internal/base/mutant"
)

// LogRetainer is a member as the purge of the log sees it: what it still needs.
type LogRetainer struct {
	ID    uint64
	Name  string
	Data  bool
	Live  bool
	Ready bool // its data is judged, and is fed or serves
	// lowest index that its recovery, or a logger's catching up, may need; 0: not known, or XA transactions are open
	Keep uint64
}

// Membership is raft's: the halves of a joint configuration, or one.
type Membership [][]uint64

// Votes reports whether id is a voter of either half.
func (m Membership) Votes(id uint64) bool {
	return slices.ContainsFunc(m, func(half []uint64) bool { return slices.Contains(half, id) })
}

// Holds reports whether every majority has a member that ok accepts.
func (m Membership) Holds(ok func(uint64) bool) bool {
	return !slices.ContainsFunc(m, func(half []uint64) bool { return countOf(half, ok) <= len(half)-majority(len(half)) })
}

// Reaches reports whether those that ok accepts are a majority.
func (m Membership) Reaches(ok func(uint64) bool) bool {
	return !slices.ContainsFunc(m, func(half []uint64) bool { return countOf(half, ok) < majority(len(half)) })
}

func countOf(ids []uint64, ok func(uint64) bool) (k int) {
	for _, id := range ids {
		if ok(id) {
			k++
		}
	}
	return k
}

// PurgePoint is the highest index up to which no node that is there, and no data voter, needs the log (S8). Other
// absent nodes are restored by a snapshot: a learner is seeded, a logger begins a new log. pin names the node that
// needs the entries after the index.
func PurgePoint(commit uint64, m Membership, all []LogRetainer) (safe uint64, pin string) {
	safe = commit
	for _, k := range all {
		votes := m.Votes(k.ID)
		switch {
		case !k.Live && !(k.Data && votes):
			continue
		case !k.Live:
			return 0,
				k.Name + " is away, and its data may need every entry (bring it back, or take it out with `trireme remove " +
					k.Name + "`)"
		case k.Keep == 0 && k.Ready:
			return 0, "it is not known what " + k.Name + " needs, or transactions are prepared there (XA RECOVER)"
		case k.Keep == 0:
			return 0, k.Name + " recovers, or is seeded"
		}
		if k.Keep < safe && !mutant.S8 {
			safe, pin = k.Keep, fmt.Sprintf("%s needs everything from entry %d on", k.Name, k.Keep)
		}
	}
	return safe, pin
}

// BoundPoint is the purge point of a log that has reached its size limit: it gives up every node that can be seeded. S8
// stays true: every majority has a data voter that is durable there. given are the data voters that it gives up.
func BoundPoint(commit uint64, m Membership, all []LogRetainer) (safe uint64, given []string, pin string) {
	safe = commit
	keeps := map[uint64]bool{}
	for _, k := range all {
		switch {
		case !k.Data || !m.Votes(k.ID):
		case !k.Live || !k.Ready:
			given = append(given, k.Name)
		case k.Keep == 0:
			return 0, nil, "transactions are prepared on " + k.Name +
				", or it has just come up (see XA RECOVER; raise raft.log_limit and restart the daemons, " +
				"then end them on the leader: ended while writes are closed, they end on that server alone)"
		default:
			keeps[k.ID] = true
			if k.Keep < safe {
				safe, pin = k.Keep, fmt.Sprintf("%s needs everything from entry %d on", k.Name, k.Keep)
			}
		}
	}
	if len(given) > 0 && !m.Holds(func(id uint64) bool { return keeps[id] }) {
		return 0, nil,
			fmt.Sprintf("%s is away, and without it a majority could come together that has neither the data nor the log "+
				"(bring it back, or add a data node and take it out with `trireme remove`)", strings.Join(given, ", "))
	}
	return safe, given, pin
}

func majority(voters int) int { return voters/2 + 1 }
