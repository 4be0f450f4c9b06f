//go:build mutant_reopen

package mutant

const broken = "Reopen"
