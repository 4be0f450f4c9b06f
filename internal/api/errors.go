package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind is the closed set of ways in which a request fails. It decides the HTTP status and the exit code of the command line.
type Kind string

// The kinds.
const (
	KindInvalid      Kind = "invalid"      // 400 the request makes no sense
	KindUnauthorized Kind = "unauthorized" // 401 no or a wrong token
	KindForbidden    Kind = "forbidden"    // 403 not over plain HTTP from another host
	KindNotFound     Kind = "not-found"    // 404 no such node, no such path
	KindConflict     Kind = "conflict"     // 409 the cluster's state does not allow it now
	KindNoLeader     Kind = "no-leader"    // 503 no leader, or it cannot be reached
	KindUnreachable  Kind = "unreachable"  // 502 the node asked does not answer; made by the client
	KindTimeout      Kind = "timeout"      // 504 not done in time; may still happen
	KindInternal     Kind = "internal"     // 500 a bug or a broken disk
)

var statusOf = map[Kind]int{
	KindInvalid: http.StatusBadRequest, KindUnauthorized: http.StatusUnauthorized, KindForbidden: http.StatusForbidden,
	KindNotFound: http.StatusNotFound, KindConflict: http.StatusConflict, KindNoLeader: http.StatusServiceUnavailable,
	KindUnreachable: http.StatusBadGateway, KindTimeout: http.StatusGatewayTimeout, KindInternal: http.StatusInternalServerError,
}

// Error is a failure as an operator sees it: what happened, and what to do next. It is the body of every answer that failed.
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

// ExitCode of the command line for an error: 0 done, 1 failed, 2 usage, 3 unreachable or no quorum.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	switch KindOf(err) {
	case KindUnreachable, KindNoLeader, KindTimeout:
		return 3
	default:
		return 1
	}
}
