package main

import (
	"syscall"

	"trireme/internal/access/standalone"
	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/core/raftlog"
	"trireme/internal/node"
	"trireme/internal/ops/adopt"
	"trireme/internal/ops/backup"
	"trireme/internal/ops/check"
	"trireme/internal/ops/cli"
)

// usagef is a failure of the command line itself.
func usagef(format string, args ...any) *api.Error { return api.Errorf(api.KindUsage, format, args...) }

// kindsOf are the kinds of the errors of what the command line does by itself.
var kindsOf = []cli.KindOf{
	{node.ErrFinal, api.KindFinal}, // first: it may wrap one of the others
	{standalone.ErrFiles, api.KindFinal},
	{backup.ErrCorrupt, api.KindCorrupt},
	{raftlog.ErrCorrupt, api.KindCorrupt},
	{backup.ErrMissing, api.KindMissing},
	{backup.ErrNone, api.KindMissing},
	{backup.ErrPurged, api.KindMissing},
	{raftlog.ErrPurged, api.KindMissing},
	{backup.ErrKey, api.KindKey},
	{raftlog.ErrKey, api.KindKey},
	{backup.ErrNoSpace, api.KindNoSpace},
	{syscall.ENOSPC, api.KindNoSpace},
	{backup.ErrNotEmpty, api.KindNotEmpty},
	{backup.ErrNotOurs, api.KindNotEmpty},
	{backup.ErrLocked, api.KindLocked},
	{raftlog.ErrLocked, api.KindLocked},
	{backup.ErrTarget, api.KindNotInBackup},
	{backup.ErrDenied, api.KindForbidden},
	{backup.ErrStore, api.KindUnreachable},
	{adopt.ErrChecks, api.KindConflict},
	{check.ErrAlone, api.KindConflict},
	{check.ErrNoAccount, api.KindForbidden},
	{check.ErrNoTable, api.KindNotFound},
	{pki.ErrBadToken, api.KindUnauthorized},
	{pki.ErrTokenExpired, api.KindUnauthorized},
}

// report prints an error, advice on a line of its own, and gives the exit code. With --json a program finds the same on
// standard output.
func (e *env) report(err error) int {
	return cli.Report(e.ctx, "trireme", e.out, e.errOut, e.json, err, kindsOf)
}
