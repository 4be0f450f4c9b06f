//go:build mutant_s5

package mutant

const broken = "S5"
