package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"trireme/internal/adopt"
	"trireme/internal/alone"
	"trireme/internal/api"
	"trireme/internal/backup"
	"trireme/internal/check"
	"trireme/internal/node"
	"trireme/internal/pki"
	"trireme/internal/raftlog"
)

// usagef is a failure of the command line itself.
func usagef(format string, args ...any) *api.Error { return api.Errorf(api.KindUsage, format, args...) }

// kindsOf are the kinds of the errors of what the command line does by itself.
var kindsOf = []struct {
	err  error
	kind api.Kind
}{
	{node.ErrFinal, api.KindFinal}, // first: it may wrap one of the others
	{alone.ErrFiles, api.KindFinal},
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
	{fs.ErrPermission, api.KindForbidden},
	{fs.ErrNotExist, api.KindNotFound},
	{context.Canceled, api.KindInterrupted}, // last: one failure cancels what else is under way
}

// failure is an error as --json prints it: what an API would have answered.
func failure(err error) *api.Error {
	if a, ok := errors.AsType[*api.Error](err); ok {
		if a.Error() == err.Error() {
			return a
		}
		return &api.Error{Kind: a.Kind, Message: err.Error()}
	}
	for _, k := range kindsOf {
		if errors.Is(err, k.err) {
			return &api.Error{Kind: k.kind, Message: err.Error()}
		}
	}
	return &api.Error{Kind: api.KindFailed, Message: err.Error()}
}

// asksJSON says whether a command line has --json. It must be known before the rest is: what is wrong with the rest is said in JSON, too.
func asksJSON(args []string) bool {
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// report prints an error, advice on a line of its own, and gives the exit code. With --json a program finds the same on standard output.
func (e *env) report(err error) int {
	if err == nil {
		return exitDone
	}
	if silent, ok := errors.AsType[errSilent](err); ok {
		return int(silent)
	}
	f := failure(err)
	if f.Kind == api.KindFailed && e.ctx.Err() != nil {
		f.Kind = api.KindInterrupted
	}
	fmt.Fprintln(e.errOut, "trireme:", f.Message)
	if f.Advice != "" {
		fmt.Fprintln(e.errOut, "        ", f.Advice)
	}
	if e.json {
		_ = printJSON(e.out, f) // the exit code says it, too
	}
	return api.ExitCode(f)
}
