package api

import (
	"fmt"
	"time"
)

// BackupCopy is a copy of a node's data that `trireme backup` has made.
type BackupCopy struct {
	Name        string    `json:"name,omitempty"` // in the backup
	Place       string    `json:"place,omitempty"`
	Donor       string    `json:"donor,omitempty"`
	Made        time.Time `json:"made"`
	Bytes       int64     `json:"bytes,omitempty"`
	StoredBytes int64     `json:"stored_bytes,omitempty"`
}

// Text says it in words.
func (c *BackupCopy) Text() string {
	return fmt.Sprintf("the copy %s of %s is in %s: %d MiB, %d MiB compressed", c.Name, c.Donor, c.Place, c.Bytes>>20,
		c.StoredBytes>>20)
}

// Size is how many bytes its texts have.
func (c *BackupCopy) Size() int {
	if c == nil {
		return 0
	}
	return len(c.Name) + len(c.Place) + len(c.Donor)
}

// BackupArchive is how far the log is archived.
type BackupArchive struct {
	Place    string    `json:"place"`
	Index    uint64    `json:"index"`    // last entry
	Complete time.Time `json:"complete"` // everything that was committed before this moment is in it
}

// BackupReport is what `trireme backup` tells its node's daemon; a field that is nil is not told of.
type BackupReport struct {
	Copy    *BackupCopy    `json:"copy,omitempty"`
	Archive *BackupArchive `json:"archive,omitempty"`
}

// BackupResult is the answer.
type BackupResult struct {
	Noted bool `json:"noted"`
}

// BackupView is the newest that `trireme backup` has told the nodes, whatever the place.
type BackupView struct {
	Copy        *BackupCopy    `json:"copy,omitempty"` // absent: none is known
	CopyAgeS    float64        `json:"copy_age_s,omitempty"`
	Archive     *BackupArchive `json:"archive,omitempty"` // absent: none is known
	ArchiveAgeS float64        `json:"archive_age_s,omitempty"`
}

// maxPlace bounds the texts of a report.
const maxPlace = 1024

// clockSlack is how far in the future the moments of a report may lie: a host's clock may be a bit ahead.
const clockSlack = time.Minute

// Check says what is wrong with a report.
func (r BackupReport) Check(now time.Time) error {
	if c := r.Copy; c != nil {
		if err := checkMade(now, c.Made, c.Name, c.Place, c.Donor); err != nil {
			return err
		}
	}
	if a := r.Archive; a != nil {
		return checkMade(now, a.Complete, a.Place)
	}
	return nil
}

func checkMade(now, at time.Time, texts ...string) error {
	for _, text := range texts {
		if len(text) > maxPlace {
			return Errorf(KindInvalid, "a text of %d bytes is too long", len(text))
		}
	}
	if at.IsZero() || at.After(now.Add(clockSlack)) {
		return Errorf(KindInvalid, "a backup cannot be of %s; it is %s", at.UTC().Format(time.RFC3339), now.UTC().
			Format(time.RFC3339)).
			With("set the clock of this host")
	}
	return nil
}

// BackupOf is the newest copy of a history and an archive, with their ages; nil: neither is known.
func BackupOf(history []Event, archive *BackupArchive, now time.Time) *BackupView {
	v := BackupView{Archive: archive}
	for i := range history {
		e := &history[i]
		if e.Kind != EventBackup {
			continue
		}
		c := e.Backup
		if c == nil { // an older daemon has passed it on, without what it does not know
			c = &BackupCopy{Made: e.Time}
		}
		if v.Copy == nil || c.Made.After(v.Copy.Made) {
			v.Copy = c
		}
	}
	if v.Copy == nil && archive == nil {
		return nil
	}
	if v.Copy != nil {
		v.CopyAgeS = max(0, now.Sub(v.Copy.Made).Seconds())
	}
	if archive != nil {
		v.ArchiveAgeS = max(0, now.Sub(archive.Complete).Seconds())
	}
	return &v
}
