//go:build mutant_s2

package mutant

const broken = "S2"
