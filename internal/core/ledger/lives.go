package ledger

import "trireme/internal/mysql/gtid"

// Lives is what a node remembers of its mysqld's incarnations, to tell its own local statements from what was lost
// (S5). It is part of node.json.
type Lives struct {
	// Led are the incarnations for which this node proposed a barrier: GTIDs of theirs that Raft does not have are errant,
	// those of other lives are harmless local statements. adopt.Undo reads it too: before the first there was no write.
	Led []uint64 `json:"led,omitempty"`
	// Retired are those of Led that were drained and went on as followers, with the highest GNO that they had
	// committed: what they executed above it is local too.
	Retired map[uint64]int64 `json:"retired,omitempty"`
	// Prelude are the GNOs up to which a life of Led logged what is its own affair, before it led.
	Prelude map[uint64]int64 `json:"prelude,omitempty"`
}

// Lead notes that a life is about to propose its barrier; up to prelude what it logged is its own affair.
func (s *Lives) Lead(incarnation uint64, prelude int64) {
	if k := len(s.Led); k == 0 || s.Led[k-1] != incarnation {
		s.Led = append(s.Led, incarnation)
	}
	delete(s.Retired, incarnation)
	if prelude > 0 {
		s.Prelude[incarnation] = prelude
	}
}

// Harmless recognises local statements of a node of a cluster (S5): those of lives that never led, and of a life that
// was drained and went on as a follower what it executed from then on.
func (s *Lives) Harmless(cluster uint64, node uint16) func(gtid.Range) bool {
	led := make(map[uint64]bool, len(s.Led))
	for _, i := range s.Led {
		led[i] = true
	}
	return func(r gtid.Range) bool {
		c, n, inc, ok := gtid.ParseIncarnation(r.UUID)
		if !ok || c != cluster || n != node {
			return false
		}
		last, retired := s.Retired[inc]
		return !led[inc] || retired && r.First > last || r.Last <= s.Prelude[inc]
	}
}
