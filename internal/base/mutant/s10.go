//go:build mutant_s10

package mutant

const broken = "S10"
