package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size. In a file it is text with a binary unit ("64MiB", "1GiB", "512KiB", "100B").
type Bytes int64

// Sizes for use in code.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = []struct {
	name string
	size Bytes
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// ParseBytes reads a size with its unit. A bare number is refused: it does not show whether it means bytes or
// megabytes.
func ParseBytes(s string) (Bytes, error) {
	text := strings.TrimSpace(s)
	for _, u := range byteUnits {
		number, found := strings.CutSuffix(text, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 {
			break
		}
		if n > math.MaxInt64/int64(u.size) {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return Bytes(n) * u.size, nil
	}
	return 0,
		fmt.Errorf("%q is not a size; write a whole number with a unit, such as \"64MiB\" (units: B KiB MiB GiB TiB)", s)
}

// String gives the shortest exact form: 65536 KiB is "64MiB".
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Duration is a length of time. In a file it is text with a unit ("100ms", "1s", "5m").
type Duration time.Duration

// ParseDuration reads a time with its unit, never negative.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 {
		return 0,
			fmt.Errorf("%q is not a time; write a number with a unit, such as \"500ms\" or \"10s\" (units: ms s m h)", s)
	}
	return Duration(d), nil
}

// String gives the form that a file holds.
func (d Duration) String() string {
	s := time.Duration(d).String()
	// "1m0s" and "1h0m0s" are how Go prints what a person writes as "1m" and "1h".
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Std is the value as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }
