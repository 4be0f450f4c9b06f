package gtid

import (
	"fmt"
	"strconv"
	"strings"
)

// Append appends the text form to dst, exactly as mysqld prints a GTID set.
func (s Set) Append(dst []byte) []byte {
	for i := range s.sids {
		e := &s.sids[i]
		if i == 0 || s.sids[i-1].UUID != e.UUID {
			if i > 0 {
				dst = append(dst, ",\n"...)
			}
			dst = e.UUID.Append(dst)
		}
		if e.Tag != "" {
			dst = append(dst, ':')
			dst = append(dst, e.Tag...)
		}
		for _, iv := range e.list {
			dst = appendInterval(append(dst, ':'), iv)
		}
	}
	return dst
}

// String gives the set exactly as mysqld prints it: UUIDs are separated by ",\n". An empty set is "".
func (s Set) String() string { return string(s.Append(nil)) }

// MarshalText is String.
func (s Set) MarshalText() ([]byte, error) { return s.Append([]byte{}), nil }

// UnmarshalText is ParseSet.
func (s *Set) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSet(string(b))
	return err
}

func appendInterval(dst []byte, iv interval) []byte {
	dst = strconv.AppendInt(dst, iv.first, 10)
	if iv.last != iv.first {
		dst = append(dst, '-')
		dst = strconv.AppendInt(dst, iv.last, 10)
	}
	return dst
}

// ParseSet reads a GTID set in mysqld's text form: "uuid:1-5:9:tag:1-3,uuid:7", in any order and case, intervals
// overlapping or not, with white space and newlines around every part and with empty elements between commas.
// "" is the empty set. As in mysqld an interval whose end lies before its start is empty. Unlike mysqld, to which it is
// empty too, a UUID or a tag without any interval is refused: it is a slip. The error is ErrSyntax.
func ParseSet(text string) (Set, error) {
	var s Set
	for element := range strings.SplitSeq(text, ",") {
		if element = trim(element); element == "" {
			continue
		}
		if err := s.addElement(element); err != nil {
			return Set{}, err
		}
	}
	return s, nil
}

// addElement reads "uuid[:tag]:interval…[:tag:interval…]".
func (s *Set) addElement(element string) error {
	head, rest, ok := strings.Cut(element, ":")
	if !ok {
		return fmt.Errorf("%w: %q has no interval", ErrSyntax, clip(element))
	}
	uuid, err := ParseUUID(trim(head))
	if err != nil {
		return err
	}
	sid, wantInterval := SID{UUID: uuid}, true
	for part := range strings.SplitSeq(rest, ":") {
		part = trim(part)
		if part != "" && tagStart(part[0]) {
			if wantInterval && sid.Tag != "" {
				return fmt.Errorf("%w: tag %q has no interval", ErrSyntax, sid.Tag)
			}
			if sid.Tag, err = ParseTag(part); err != nil {
				return err
			}
			wantInterval = true
			continue
		}
		iv, err := parseInterval(part)
		if err != nil {
			return err
		}
		if iv.first <= iv.last {
			s.entry(sid).add(iv)
		}
		wantInterval = false
	}
	if wantInterval {
		return fmt.Errorf("%w: %q ends without an interval", ErrSyntax, clip(element))
	}
	return nil
}

// parseInterval reads "n" or "n-m".
func parseInterval(s string) (interval, error) {
	first, last, isRange := strings.Cut(s, "-")
	var iv interval
	var err error
	if iv.first, err = parseGNO(trim(first)); err != nil {
		return interval{}, err
	}
	iv.last = iv.first
	if isRange {
		// "5-0" is an empty interval to mysqld, as is any other that ends before it starts.
		if last = trim(last); strings.Trim(last, "0") == "" && last != "" {
			return interval{iv.first, 0}, nil
		}
		if iv.last, err = parseGNO(last); err != nil {
			return interval{}, err
		}
	}
	return iv, nil
}

// trim removes what mysqld's charset calls white space.
func trim(s string) string { return strings.Trim(s, " \t\n\v\f\r") }
