//go:build mutant_s8

package mutant

const broken = "S8"
