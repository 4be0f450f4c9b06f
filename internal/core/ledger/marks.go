package ledger

import (
	"time"

	"trireme/internal/mysql/gtid"
)

// Marker collects what is not applied while the log is scanned.
type Marker struct {
	Executed gtid.Set
	Now      time.Time
	List     []Mark
}

// Add takes the next transaction of the log.
func (m *Marker) Add(t Txn) {
	lost := splitMissing(m.Executed, t.GTIDs)
	if len(lost) == 0 {
		return
	}
	if k := len(m.List); k > 0 && m.List[k-1].Index == t.Index {
		m.List[k-1].GTIDs = append(m.List[k-1].GTIDs, lost...)
		m.List[k-1].Bytes += t.Bytes
		m.List[k-1].Heavy = m.List[k-1].Heavy.Plus(t.Heavy)
		return
	}
	if len(m.List) >= maxMarks {
		m.List = mergeMarks(m.List)
	}
	m.List = append(m.List, Mark{Index: t.Index, First: t.Index, GTIDs: lost, Bytes: t.Bytes, Heavy: t.Heavy, Heard: m.Now,
		Committed: m.Now})
}
