//go:build mutant_s6

package mutant

const broken = "S6"
