package campaign

import (
	"errors"
	"strings"
	"testing"
)

// TestBuild: what the Makefile links in is told apart into a commit and changes.
func TestBuild(t *testing.T) {
	defer func(before string) { revision = before }(revision)
	for text, want := range map[string]Build{"": {}, "abc": {Revision: "abc"},
		"abc-dirty": {Revision: "abc", Modified: true}} {
		revision = text
		if b := ThisBuild("v1"); b.Version != "v1" || b.Go == "" || b.Revision != want.Revision ||
			b.Modified != want.Modified {
			t.Errorf("%q: %+v", text, b)
		}
	}
}

// TestTags: a program built with tags is another one, and what a mutant does is never counted.
func TestTags(t *testing.T) {
	if b := (Build{CommitPath: "a", Tags: "failpoints"}).tagged(); b.CommitPath != "a+failpoints" {
		t.Errorf("%+v", b)
	}
	if b := (Build{Tags: "failpoints"}).tagged(); b.CommitPath != "" {
		t.Errorf("%+v", b)
	}
	o := Options{Build: Build{Tags: "mutant_s2"}}
	if _, err := o.withDefaults(); err != nil {
		t.Error(err)
	}
	o.State = "x.jsonl"
	if _, err := o.withDefaults(); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "mutant_s2") {
		t.Errorf("a mutant is counted: %v", err)
	}
}
