//go:build mutant_s1

package mutant

const broken = "S1"
