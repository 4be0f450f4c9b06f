package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"trireme/internal/ops/cli"
)

// versionCmd is `trireme version`.
type versionCmd struct {
	JSON bool `help:"Print it as JSON."`
}

// Run prints what the build recorded.
func (c *versionCmd) Run(e *env) error {
	v := map[string]string{"version": buildVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" +
		runtime.GOARCH}
	if commitPath != "" {
		v["commit_path"] = commitPath
	}
	if commit, dirty := strings.CutSuffix(revision, "-dirty"); commit != "" {
		v["revision"], v["modified"] = commit, strconv.FormatBool(dirty)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision", "vcs.time", "vcs.modified":
				v[s.Key[len("vcs."):]] = s.Value
			case "-tags":
				v["tags"] = s.Value
			}
		}
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	fmt.Fprintf(e.out, "trireme %s %s %s\n", v["version"], v["go"], v["platform"])
	return nil
}

// What the build links in: version is that of a package (scripts/package.sh), commitPath the digest of the code that a
// node's daemon is made of (test/commitpath), revision the commit, with "-dirty" if sources were not those of
// it, where Go itself does not note it.
var version, commitPath, revision string

// buildVersion is the version that a daemon tells the others.
func buildVersion() string { return cli.Version(version) }
