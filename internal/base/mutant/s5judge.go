//go:build mutant_s5judge

package mutant

const broken = "S5Judge"
