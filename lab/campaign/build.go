package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// commitPath is a digest of the code that a node's daemon is made of: test/commitpath makes it, and `make build` links
// it in. Counts of campaigns add up as long as it is the same. A digest of the sources themselves, and not of a commit,
// because it must be right for sources that are not committed, and without git.
var commitPath string

// revision is the commit, with "-dirty" if sources were not those of it; for builds in which Go itself does not note it
// (-buildvcs=false).
var revision string

// ThisBuild is the running program, which the simulation is a part of.
func ThisBuild(version string) Build {
	b := Build{Version: version, CommitPath: commitPath, Go: runtime.Version()}
	b.Revision, b.Modified = strings.CutSuffix(revision, "-dirty")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags":
			b.Tags = s.Value
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b.tagged()
}

// BuildOf is the program that nodes run, as it says itself.
func BuildOf(ctx context.Context, program string) (Build, error) {
	out, err := exec.CommandContext(ctx, program, "version", "--json").Output()
	if err != nil {
		return Build{}, fmt.Errorf("asking %s for its version: %w", program, err)
	}
	var v struct {
		Version, Revision, Modified, Tags, Go string
		CommitPath                            string `json:"commit_path"`
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return Build{}, fmt.Errorf("the version of %s: %w", program, err)
	}
	b := Build{Version: v.Version, Revision: v.Revision, Modified: v.Modified == "true", CommitPath: v.CommitPath,
		Tags: v.Tags, Go: v.Go}
	return b.tagged(), nil
}

// tagged makes another program of one that was built with tags.
func (b Build) tagged() Build {
	if b.CommitPath != "" && b.Tags != "" {
		b.CommitPath += "+" + b.Tags
	}
	return b
}

// unmade is the warning about a program without a commit path: at the start of a run, and when the report is drawn.
const unmade = "This program was not built by `make build`"

// toNobody is what to know before a run that is recorded in a file of counts; empty if it will count for a commit path.
func (b Build) toNobody(state string) string {
	if state == "" || b.CommitPath != "" {
		return ""
	}
	return unmade + ", so it does not know its commit path: what it records in " + state + " will count for none."
}

// mutant reports whether the program breaks a rule on purpose (internal/base/mutant).
func (b Build) mutant() bool { return strings.Contains(b.Tags, "mutant") }
