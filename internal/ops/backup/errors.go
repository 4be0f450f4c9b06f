package backup

import "errors"

// What can be wrong with a backup, for errors.Is. Each arrives wrapped with the name of the object and what to do.
var (
	// ErrCorrupt: an object is not what was written.
	ErrCorrupt = errors.New("backup: corrupt")
	// ErrMissing: an object, or a part of the log, is not there.
	ErrMissing = errors.New("backup: missing")
	// ErrForeign: the backup is of another cluster, or of another history of this one.
	ErrForeign = errors.New("backup: of another cluster")
	// ErrNewer: a newer version of Trireme wrote it.
	ErrNewer = errors.New("backup: written by a newer version")
	// ErrNone: there is no backup.
	ErrNone = errors.New("backup: none here")
	// ErrLocked: another process is writing.
	ErrLocked = errors.New("backup: in use")
	// ErrNoSpace: the target is full.
	ErrNoSpace = errors.New("backup: no space")
	// ErrNotEmpty: there is something where the data should be restored.
	ErrNotEmpty = errors.New("restore: directory is not empty")
	// ErrTarget: the moment that was asked for is not in the backup.
	ErrTarget = errors.New("restore: not in this backup")
	// ErrNotOurs: a directory that is no backup has something in it. A backup clears up in its directory; so it takes
	// none that may be somebody else's.
	ErrNotOurs = errors.New("backup: the directory is not empty, and no backup")
	// ErrKey: the backup's key is needed, or it is another one.
	ErrKey = errors.New("backup: key")
	// ErrPurged: the node's log no longer holds what the archive needs next.
	ErrPurged = errors.New("backup: purged from the node's log")
	// ErrHoles: a copy lacks transactions that its donor had.
	ErrHoles = errors.New("backup: the copy lacks transactions")
	// ErrStore: the place of the backup does not answer, or not as it should. Nothing is known of the backup by that.
	ErrStore = errors.New("backup: the store fails")
	// ErrDenied: the place of the backup does not let us.
	ErrDenied = errors.New("backup: the store refuses")
)
