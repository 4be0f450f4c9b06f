package mysqld

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// ApplyError is what stopped the applier.
type ApplyError struct {
	Number int
	Text   string
	GTID   string // of the transaction that could not be applied; empty: not known
}

// ofGTID finds the transaction in a worker's message.
var ofGTID = regexp.MustCompile(`failed executing transaction '([0-9a-f-]+:[^']+)'`)

// ApplyError reads what stopped the applier: of the worker that met it, where performance_schema tells, since the
// coordinator may say only that some worker did. st is the ReplicaStatus that says that it has stopped.
func (a *Admin) ApplyError(ctx context.Context, st ReplicaStatus) (ApplyError, error) {
	e := ApplyError{Number: st.SQLErrno, Text: st.SQLError}
	err := limit(ctx, quickLimit, "read the applier's error", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SELECT LAST_ERROR_NUMBER AS n, LAST_ERROR_MESSAGE AS text"+
			" FROM performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0 ORDER BY LAST_ERROR_TIMESTAMP LIMIT 1")
		if err != nil || len(t) == 0 {
			return err
		}
		n, err := strconv.Atoi(t[0]["n"])
		if err != nil {
			return fmt.Errorf("replication_applier_status_by_worker: %w", err)
		}
		e.Number, e.Text = n, t[0]["text"]
		return nil
	})
	if m := ofGTID.FindStringSubmatch(e.Text); m != nil {
		e.GTID = m[1]
	}
	return e, err
}

// Applying lists what the applier's workers are at, one for each: the GTID of a transaction, or nothing. Needs
// performance_schema; without it the list is empty.
func (a *Admin) Applying(ctx context.Context) (list []string, err error) {
	err = limit(ctx, quickLimit, "list what is being applied", func(ctx context.Context) error {
		t, err := a.status.query(ctx,
			"SELECT APPLYING_TRANSACTION AS g FROM performance_schema.replication_applier_status_by_worker")
		for _, r := range t {
			list = append(list, r["g"])
		}
		return err
	})
	return list, err
}

// resourceErrors are the errors of a server, a host or a network that lacks something. They say nothing of the data,
// and pass.
var resourceErrors = []int{
	3, 5, 20, // the file library's: writing, memory, a full disk
	1004, 1015, 1016, 1021, 1023, 1026, // files: creating, locking, opening, a full disk, closing, writing
	1037, 1038, 1041, 1135, // memory, threads
	1114,                         // a table is full: the disk, or InnoDB's space
	1158, 1159, 1160, 1161, 1236, // the network, the source
	1197, 1705, // the binary log's caches
	1811, 1878, 3675, 3884, // files: writing, of temporary tables, a full disk for a new table
	3015, 3019, 3985, // memory, undo logs, metadata locks
	1205, 1206, 1213, 1637, // locks, too many transactions
	1290,       // a server that is read-only in a way that stops its applier too
	1296, 1297, // an engine's temporary errors
	1317, 1053, 3024, 3572, 1927, // interrupted, shutting down, a limit of time
	// the relay log, the coordinator: a start of mysqld fetches what was relayed again
	1593, 1594, 1595, 1755, 1756, 1872, 13121, 13122,
	3180, 3185, 3187, // no key ring
}

// withErrno are errors that mean what the operating system's error in their text means: making a table, a schema, a
// name; an engine's.
var withErrno = []int{1005, 1006, 1025, 1030, 1180}

// ofErrno finds it in "Got error 28 - 'No space left on device' from storage engine", "Can't create table 't' (errno:
// 28 - ...)".
var ofErrno = regexp.MustCompile(`(?i)(?:got error|errno:) ([0-9]+)\b`)

// resourceErrnos: ENOMEM, EAGAIN, ENFILE, EMFILE, ENOSPC, EDQUOT, EIO, and InnoDB's for a lock wait timeout and a full
// file.
var resourceErrnos = []int{5, 11, 12, 23, 24, 28, 122, 135, 146, 149}

// OfResources reports whether it says nothing of the data: what lacks may be there later, and another copy of the data
// would not help.
func (e ApplyError) OfResources() bool {
	if slices.Contains(resourceErrors, e.Number) {
		return true
	}
	if !slices.Contains(withErrno, e.Number) {
		return false
	}
	m := ofErrno.FindStringSubmatch(e.Text)
	if m == nil {
		return false
	}
	n, _ := strconv.Atoi(m[1])
	return slices.Contains(resourceErrnos, n)
}
