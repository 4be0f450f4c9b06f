//go:build mutant_s13

package mutant

const broken = "S13"
