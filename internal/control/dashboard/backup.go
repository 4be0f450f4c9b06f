package dashboard

import (
	"fmt"
	"math"
	"strings"
	"time"

	"trireme/internal/api"
)

// How old a backup may be: the limits of the alerts TriremeBackupOld and TriremeArchiveOld as they are shipped
// (packaging/monitoring/alerts.yml). They are judged here, for the page and for `trireme status`.
const (
	maxCopyAge    = 8 * 24 * time.Hour
	maxArchiveAge = 15 * time.Minute
)

// BackupProblems says in words what is too old of a backup, each with its alert. A backup of which nothing is known has
// none: the nodes do not know whether there should be one, or whether copies are all it has.
func BackupProblems(b *api.BackupView) (problems []string) {
	if b == nil {
		return nil
	}
	if b.Copy != nil && b.CopyAgeS > maxCopyAge.Seconds() {
		problems = append(problems, fmt.Sprintf("the newest copy is %s old (TriremeBackupOld)",
			ago(b.CopyAgeS)))
	}
	if b.Archive != nil && b.ArchiveAgeS > maxArchiveAge.Seconds() {
		problems = append(problems, fmt.Sprintf("the log is archived up to %s ago (TriremeArchiveOld)",
			ago(b.ArchiveAgeS)))
	}
	return problems
}

// backupTile tells ages, and stands out when the alerts would fire.
func backupTile(v api.ClusterView) tile {
	t := tile{Name: "Last backup", Value: "none", Note: "no backup is known"}
	b := v.Backup
	if b == nil {
		return t
	}
	var notes []string
	if c := b.Copy; c != nil {
		t.Value, t.Unit = ago(b.CopyAgeS), "ago"
		if c.Place != "" {
			notes = append(notes, fmt.Sprintf("copy of %s in %s, %s", c.Donor, c.Place,
				bytesText(uint64(max(c.StoredBytes, 0)))))
		}
	} else {
		notes = append(notes, "no copy is known")
	}
	if b.Archive != nil {
		notes = append(notes, fmt.Sprintf("log archived up to %s ago", ago(b.ArchiveAgeS)))
	} else {
		notes = append(notes, "no archive of the log is known")
	}
	if first, last, known := restorable(b); known {
		notes = append(notes, fmt.Sprintf("can be restored:\n%s to\n%s", clock(first), clock(last)))
	}
	t.Note = strings.Join(notes, "\n")
	if len(BackupProblems(b)) > 0 {
		t.Level = levelWarn
	}
	return t
}

// restorable are the first and the last moment that the newest copy can be restored to, whole seconds, as
// `trireme backup list` shows them. Not known if copy and archive may be those of two backups. A gap in the archive
// since that copy is not seen here: the backup takes a new copy after one.
func restorable(b *api.BackupView) (first, last time.Time, known bool) {
	c, a := b.Copy, b.Archive
	if c == nil || a == nil || c.Place == "" || c.Place != a.Place || c.Made.IsZero() {
		return first, last, false
	}
	first, last = c.Made.Add(time.Second-1).Truncate(time.Second), a.Complete.Truncate(time.Second)
	return first, last, !last.Before(first)
}

// ago is an age in its largest unit.
func ago(s float64) string {
	for _, u := range []struct {
		seconds float64
		name    string
	}{{86400, "d"}, {3600, "h"}, {60, "min"}} {
		if s >= 2*u.seconds {
			return fmt.Sprintf("%.0f %s", math.Floor(s/u.seconds), u.name)
		}
	}
	return fmt.Sprintf("%.0f s", s)
}
