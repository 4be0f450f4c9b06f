package main

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // not every host has it

	"trireme/internal/ops/backup"
)

// TestMoments: a time without a zone is this host's, and one that the zone has twice, or not at all, is refused.
func TestMoments(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"2026-11-22T14:03:59Z":         "2026-11-22T14:03:59Z",
		"2026-11-22T14:03:59.25+05:30": "2026-11-22T08:33:59.25Z",
		"2026-11-22 14:03:59":          "2026-11-22T13:03:59Z",
		"2026-07-22T14:03:59.5":        "2026-07-22T12:03:59.5Z",
		"2026-10-25 01:59:59":          "2026-10-24T23:59:59Z",
		"2026-10-25 02:30:00":          "", // twice
		"2026-10-25 03:00:00":          "2026-10-25T02:00:00Z",
		"2026-10-25T02:30:00+02:00":    "2026-10-25T00:30:00Z",
		"2026-03-29 02:30:00":          "", // never
		"2026-03-29 03:00:00":          "2026-03-29T01:00:00Z",
		"0001-01-01T00:00:00Z":         "",
		"2026-11-22":                   "",
		"2026-11-22 14:03:59 CET":      "",
		"2026-11-22 14:03:59Z":         "",
		"2026-11-31 14:03:59":          "",
		"":                             "",
	} {
		got, err := parseMoment(text, berlin)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is taken for %v", text, got)
		case want != "" && (err != nil || got.UTC().Format(time.RFC3339Nano) != want):
			t.Errorf("%q is %v, %v, want %s", text, got.UTC(), err, want)
		}
	}
}

// TestMomentsOfABackup: verify and prune tell moments, and entries alone only where no moment is known.
func TestMomentsOfABackup(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 4, 0, time.UTC)
	var out strings.Builder
	e := &env{out: &out}
	printVerification(e, &backup.Verification{Restorable: map[string]backup.Restorable{
		"a": {Stretch: backup.Stretch{From: 4, To: 13}, Since: at, Until: at.Add(time.Hour)},
		"b": {Stretch: backup.Stretch{From: 5, To: 5}}}})
	printPruned(e, &backup.Pruned{Kept: []string{"a"}, First: 4, Since: at}, false)
	for _, want := range []string{"copy a: 2026-11-22T12:00:04Z to 2026-11-22T13:00:04Z (entries 4 to 13) can be restored\n",
		"copy b: entries 5 to 5 can be restored\n", "the earliest moment that can be restored: 2026-11-22T12:00:04Z\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}
