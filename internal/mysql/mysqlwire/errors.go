package mysqlwire

import (
	"errors"
	"fmt"
)

// Errors of this package. A server's own refusal is a *ServerError; a broken connection is the net.Conn's error.
var (
	// ErrMalformed is wrapped by every decoder when bytes do not follow the protocol.
	ErrMalformed = errors.New("malformed packet")
	// ErrSequence reports a packet out of order: the two sides no longer agree on where they are.
	ErrSequence = errors.New("packet out of sequence")
	// ErrTooLarge reports a payload over the connection's limit.
	ErrTooLarge = errors.New("packet exceeds the limit")
	// ErrAuthPlugin reports an authentication plugin this package does not speak.
	ErrAuthPlugin = errors.New("unsupported authentication plugin")
	// ErrNoRow reports a query that was expected to yield exactly one row and yielded none, or several.
	ErrNoRow = errors.New("query did not yield exactly one row")
)

// ServerError is an ERR packet.
type ServerError struct {
	Code    uint16 // as in mysqld_error.h, for example 1236
	State   string // five characters of SQLSTATE; "HY000" when the server sent none
	Message string
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("mysql error %d (%s): %s", e.Code, e.State, e.Message)
}

// Codes that the product handles or sends.
const (
	CodeAccessDenied     = 1045 // ER_ACCESS_DENIED_ERROR
	CodeUnknownCommand   = 1047 // ER_UNKNOWN_COM_ERROR
	CodeHandshake        = 1043 // ER_HANDSHAKE_ERROR
	CodeServerShutdown   = 1053 // ER_SERVER_SHUTDOWN: a receiver reconnects after it
	CodeNotSupported     = 1235 // ER_NOT_SUPPORTED_YET
	CodeSourceFatalDump  = 1236 // ER_MASTER_FATAL_ERROR_READING_BINLOG: a receiver stops permanently
	CodeTooManyConns     = 1040 // ER_CON_COUNT_ERROR
	stateGeneral         = "HY000"
	stateAccessDenied    = "28000"
	stateConnectionError = "08S01"
)

func malformed(what string) error { return fmt.Errorf("%s: %w", what, ErrMalformed) }

// IsServerCode reports that err is, or wraps, a ServerError of this code.
func IsServerCode(err error, code uint16) bool {
	var e *ServerError
	return errors.As(err, &e) && e.Code == code
}
