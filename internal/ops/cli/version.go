package cli

import "runtime/debug"

// Version of a program: what scripts/package.sh has linked in, or, if that is empty, what the Go toolchain has recorded
// of the sources.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
