//go:build mutant_s11

package mutant

const broken = "S11"
