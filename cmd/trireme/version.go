package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd is `trireme version`.
type versionCmd struct {
	JSON bool `help:"Print it as JSON."`
}

// Run prints what the build recorded.
func (c *versionCmd) Run(e *env) error {
	v := map[string]string{"version": buildVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision", "vcs.time", "vcs.modified":
				v[s.Key[len("vcs."):]] = s.Value
			}
		}
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	fmt.Fprintf(e.out, "trireme %s %s %s\n", v["version"], v["go"], v["platform"])
	return nil
}

// version is that of a package; scripts/package.sh links it in. Empty: what the Go toolchain has recorded of the sources.
var version string

// buildVersion is the version that a daemon tells the others.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
