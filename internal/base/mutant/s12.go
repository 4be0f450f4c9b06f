//go:build mutant_s12

package mutant

const broken = "S12"
