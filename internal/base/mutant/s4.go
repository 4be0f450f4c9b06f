//go:build mutant_s4

package mutant

const broken = "S4"
