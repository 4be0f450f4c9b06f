package main

import (
	"testing"
	"time"
)

func TestPointInTime(t *testing.T) {
	now := time.Date(2026, 11, 23, 14, 30, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"90m": now.Add(-90 * time.Minute), "0s": now, "7d": now.Add(-7 * 24 * time.Hour),
		"2026-11-22T10:00:00Z": time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), "2026-11-22 10:00": time.Date(2026, 11, 22,
			10, 0, 0, 0, time.Local),
		"02:40": time.Date(2026, 11, 23, 2, 40, 0, 0, time.Local), "02:40:07": time.Date(2026, 11, 23, 2, 40, 7, 0,
			time.Local),
		"2026-11-22": time.Date(2026, 11, 22, 0, 0, 0, 0, time.Local),
	} {
		if got, err := pointInTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "yesterday", "-1h", "25:00"} {
		if got, err := pointInTime(text, now); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
