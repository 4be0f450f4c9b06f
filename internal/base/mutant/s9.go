//go:build mutant_s9

package mutant

const broken = "S9"
