package gtid

import "errors"

var (
	// ErrSyntax: the text is not a UUID, SID, GTID or GTID set.
	ErrSyntax = errors.New("gtid: bad syntax")
	// ErrEncoding: the bytes are not an encoded GTID set.
	ErrEncoding = errors.New("gtid: bad binary encoding")
)
