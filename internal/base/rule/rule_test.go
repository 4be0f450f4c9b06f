package rule

import (
	"errors"
	"fmt"
	"testing"
)

func TestOf(t *testing.T) {
	err := Breaks("S12", "entry %d", 3)
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""}, {errors.New("S12: only a text"), ""}, {err, "S12"}, {fmt.Errorf("the feed: %w", err), "S12"},
		{fmt.Errorf("%w: %w", err, errors.New("unreadable")), "S12"},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if err.Error() != "S12: entry 3" {
		t.Error(err)
	}
}
