//go:build mutant_s7

package mutant

const broken = "S7"
