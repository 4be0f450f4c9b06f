package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind names what sort of failure it was, for programs. Kinds lists all of them: docs/cli.md and the command line's
// --json show the same words as the HTTP API.
type Kind string

// The kinds.
const (
	KindUsage        Kind = "usage"
	KindInvalid      Kind = "invalid"
	KindUnauthorized Kind = "unauthorized"
	KindForbidden    Kind = "forbidden"
	KindNotFound     Kind = "not-found"
	KindAlready      Kind = "already"
	KindChanged      Kind = "changed"
	KindBusy         Kind = "busy"
	KindNeeded       Kind = "needed"
	KindCannotLead   Kind = "cannot-lead"
	KindNotReady     Kind = "not-ready"
	KindConflict     Kind = "conflict"
	KindNoLeader     Kind = "no-leader"
	KindUnreachable  Kind = "unreachable" // made by the client
	KindTimeout      Kind = "timeout"
	KindInternal     Kind = "internal"

	// The rest are made by the command line only, of what it does on its own host.
	KindFailed      Kind = "failed"
	KindInterrupted Kind = "interrupted"
	KindCorrupt     Kind = "corrupt"
	KindMissing     Kind = "missing"
	KindKey         Kind = "key"
	KindNoSpace     Kind = "no-space"
	KindNotEmpty    Kind = "not-empty"
	KindLocked      Kind = "locked"
	KindNotInBackup Kind = "not-in-backup"
	KindFinal       Kind = "final"
)

// KindInfo says what a kind means.
type KindInfo struct {
	Kind   Kind
	Status int // of HTTP
	Exit   int // code of the command line
	Doc    string
}

// Kinds are all there are.
var Kinds = []KindInfo{
	{KindUsage, http.StatusBadRequest, 2,
		"The command line is wrong, or the question was not confirmed; nothing was done."},
	{KindInvalid, http.StatusBadRequest, 1, "The request makes no sense, such as a value out of range."},
	{KindUnauthorized, http.StatusUnauthorized, 1, "The credential or join token is missing, wrong or expired."},
	{KindForbidden, http.StatusForbidden, 1, "The role of the credential does not allow it, or plain HTTP does not."},
	{KindNotFound, http.StatusNotFound, 1, "There is no such node, token, setting, version or path."},
	{KindAlready, http.StatusConflict, 1, "It is so already, or not needed: there is nothing to do."},
	{KindChanged, http.StatusConflict, 1,
		"The term, the version or the cluster is not the one that was expected. Look again, then repeat it."},
	{KindBusy, http.StatusConflict, 1, "Another change of the same sort is in progress. Wait until it has ended."},
	{KindNeeded, http.StatusConflict, 1,
		"The node cannot be spared: it leads, or without it there is no majority or too little healthy data."},
	{KindCannotLead, http.StatusConflict, 1,
		"The node that was named cannot lead now, or no other node can. `trireme why-not NODE` says why."},
	{KindNotReady, http.StatusConflict, 1, "A node that has to take part does not answer, is unhealthy or not ready."},
	{KindConflict, http.StatusConflict, 1,
		"The state of the cluster or of the server does not allow it, for another reason."},
	{KindNoLeader, http.StatusServiceUnavailable, 3, "There is no leader or no majority."},
	{KindUnreachable, http.StatusBadGateway, 3, "The node or server that was asked does not answer."},
	{KindTimeout, http.StatusGatewayTimeout, 3, "It was not done in time, and may still happen."},
	{KindInternal, http.StatusInternalServerError, 1, "The daemon failed: a bug or a broken disk. Its log says more."},
	{KindFailed, http.StatusInternalServerError, 1, "It failed on this host, for a reason without a code of its own."},
	{KindInterrupted, http.StatusInternalServerError, 1, "A signal such as Ctrl-C stopped it."},
	{KindCorrupt, http.StatusInternalServerError, 1, "A backup or a log is damaged."},
	{KindMissing, http.StatusInternalServerError, 1, "A part of a backup or of a log is missing."},
	{KindKey, http.StatusInternalServerError, 1, "The encryption key is missing or is another one."},
	{KindNoSpace, http.StatusInternalServerError, 1, "The disk or the place of the backup is full."},
	{KindNotEmpty, http.StatusInternalServerError, 1, "The directory must be empty and is not."},
	{KindLocked, http.StatusInternalServerError, 1, "Another process uses the directory."},
	{KindNotInBackup, http.StatusInternalServerError, 1, "The backup does not hold the moment that was asked for."},
	{KindFinal, http.StatusInternalServerError, 4,
		"The daemon or router ended, and would end the same way if it were started again: do first what the error says. " +
			"The units do not restart it."},
}

// info of a kind; of one that a newer version sent, that of an internal failure.
func (k Kind) info() KindInfo {
	internal := KindInfo{}
	for _, i := range Kinds {
		if i.Kind == k {
			return i
		}
		if i.Kind == KindInternal {
			internal = i
		}
	}
	return internal
}

// Refused says that the request made sense, and the cluster's state does not allow it now: nothing was changed.
func (k Kind) Refused() bool { return k.info().Status == http.StatusConflict }

// Error is a failure as an operator sees it: what happened, and what to do next. It is the body of every answer that
// failed.
type Error struct {
	Message string `json:"error"`
	Advice  string `json:"advice,omitempty"`
	Kind    Kind   `json:"kind"`
}

// Errorf makes an Error without advice; set Advice on the result when there is some.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// With adds what to do next.
func (e *Error) With(format string, args ...any) *Error {
	d := *e
	d.Advice = fmt.Sprintf(format, args...)
	return &d
}

// Error gives "message; advice".
func (e *Error) Error() string {
	if e.Advice == "" {
		return e.Message
	}
	return e.Message + "; " + e.Advice
}

// KindOf is the kind of an error, KindInternal for one that is not an *Error.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// ExitCode of the command line for an error: 0 done, 1 failed, 2 usage, 3 unreachable or no quorum, 4 final.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return KindOf(err).info().Exit
}
