package gtid

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	// MaxGNO is the highest sequence number that a server gives out (GNO_END - 1 in
	// libs/mysql/binlog/event/control_events.h).
	MaxGNO = math.MaxInt64 - 1
	// MaxTagLen is the length limit of a tag, in bytes.
	MaxTagLen = 32
)

// UUID is a server's UUID in network byte order.
type UUID [16]byte

// SID names a stream of GNOs: a server's UUID and a tag, which is "" for an untagged GTID.
// A tag is lower case, at most MaxTagLen bytes of [a-z_][a-z0-9_]*.
type SID struct {
	UUID UUID
	Tag  string
}

// GTID names one transaction. The zero value is not a valid GTID: see IsZero.
type GTID struct {
	SID
	GNO int64
}

// Range is a closed interval of GNOs of one SID: First <= Last.
type Range struct {
	SID
	First, Last int64
}

// ParseUUID reads the 8-4-4-4-12 form, in either case; as mysqld does it also takes 32 hex digits without dashes and
// the dashed form in braces. The error is ErrSyntax.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	t := s
	if len(t) == 38 && t[0] == '{' && t[37] == '}' {
		t = t[1:37]
	}
	switch len(t) {
	case 32:
		if _, err := hex.Decode(u[:], []byte(t)); err == nil {
			return u, nil
		}
	case 36:
		if t[8] == '-' && t[13] == '-' && t[18] == '-' && t[23] == '-' {
			var digits [32]byte
			b := append(digits[:0], t[:8]...)
			b = append(b, t[9:13]...)
			b = append(b, t[14:18]...)
			b = append(b, t[19:23]...)
			b = append(b, t[24:]...)
			if _, err := hex.Decode(u[:], b); err == nil {
				return u, nil
			}
		}
	}
	return UUID{}, fmt.Errorf("%w: UUID %q", ErrSyntax, clip(s))
}

// Append appends the dashed lower-case form to dst.
func (u UUID) Append(dst []byte) []byte {
	dst = hex.AppendEncode(dst, u[:4])
	for _, part := range [...][]byte{u[4:6], u[6:8], u[8:10], u[10:]} {
		dst = append(dst, '-')
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}

// String gives the dashed lower-case form.
func (u UUID) String() string { return string(u.Append(make([]byte, 0, 36))) }

// IsZero reports whether all 16 bytes are zero, as in an ANONYMOUS_GTID event.
func (u UUID) IsZero() bool { return u == UUID{} }

// Compare orders UUIDs as mysqld does: by bytes.
func (u UUID) Compare(v UUID) int { return bytes.Compare(u[:], v[:]) }

// MarshalText gives the dashed lower-case form.
func (u UUID) MarshalText() ([]byte, error) { return u.Append(nil), nil }

// UnmarshalText is ParseUUID.
func (u *UUID) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUUID(string(b))
	return err
}

// Append appends "uuid" or "uuid:tag" to dst.
func (s SID) Append(dst []byte) []byte {
	dst = s.UUID.Append(dst)
	if s.Tag != "" {
		dst = append(dst, ':')
		dst = append(dst, s.Tag...)
	}
	return dst
}

// String gives "uuid" or "uuid:tag".
func (s SID) String() string { return string(s.Append(nil)) }

// Compare orders SIDs as mysqld prints them: by UUID, then by tag, untagged first.
func (s SID) Compare(t SID) int {
	if c := s.UUID.Compare(t.UUID); c != 0 {
		return c
	}
	return cmp.Compare(s.Tag, t.Tag)
}

// ParseGTID reads "uuid:gno" or "uuid:tag:gno". Upper case is folded. The error is ErrSyntax.
func ParseGTID(s string) (GTID, error) {
	uuid, rest, ok := strings.Cut(s, ":")
	if !ok {
		return GTID{}, fmt.Errorf("%w: GTID %q has no sequence number", ErrSyntax, clip(s))
	}
	var g GTID
	var err error
	if g.UUID, err = ParseUUID(strings.TrimSpace(uuid)); err != nil {
		return GTID{}, err
	}
	if tag, gno, tagged := strings.Cut(rest, ":"); tagged {
		if g.Tag, err = ParseTag(strings.TrimSpace(tag)); err != nil {
			return GTID{}, err
		}
		rest = gno
	}
	if g.GNO, err = parseGNO(strings.TrimSpace(rest)); err != nil {
		return GTID{}, err
	}
	return g, nil
}

// Append appends "uuid:gno" or "uuid:tag:gno" to dst.
func (g GTID) Append(dst []byte) []byte {
	dst = g.SID.Append(dst)
	dst = append(dst, ':')
	return strconv.AppendInt(dst, g.GNO, 10)
}

// String gives "uuid:gno" or "uuid:tag:gno".
func (g GTID) String() string { return string(g.Append(make([]byte, 0, 64))) }

// IsZero reports whether g is the zero value, which names no transaction.
func (g GTID) IsZero() bool { return g == GTID{} }

// MarshalText is String.
func (g GTID) MarshalText() ([]byte, error) { return g.Append(nil), nil }

// UnmarshalText is ParseGTID.
func (g *GTID) UnmarshalText(b []byte) (err error) {
	*g, err = ParseGTID(string(b))
	return err
}

// Len is the number of GNOs in r.
func (r Range) Len() uint64 { return uint64(r.Last-r.First) + 1 }

// String gives "uuid:first-last", or "uuid:gno" when there is only one.
func (r Range) String() string {
	return string(appendInterval(append(r.SID.Append(nil), ':'), interval{r.First, r.Last}))
}

// ParseTag checks a tag, folds it to lower case and returns it. "" is not a tag here. The error is ErrSyntax.
func ParseTag(s string) (string, error) {
	if !validTag(s) {
		return "", fmt.Errorf("%w: tag %q", ErrSyntax, clip(s))
	}
	return strings.ToLower(s), nil
}

// validTag is libs/mysql/gtids/tag.h: is_valid, less the empty tag.
func validTag(s string) bool {
	if len(s) == 0 || len(s) > MaxTagLen || !tagStart(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if !tagStart(s[i]) && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}

func tagStart(c byte) bool {
	return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}

func parseGNO(s string) (int64, error) {
	if len(s) == 0 || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("%w: sequence number %q", ErrSyntax, clip(s))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > MaxGNO {
		return 0, fmt.Errorf("%w: sequence number %q is not in 1..%d", ErrSyntax, clip(s), int64(MaxGNO))
	}
	return n, nil
}

// clip keeps an error message readable when the bad text is long.
func clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
