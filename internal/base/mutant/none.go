//go:build !(mutant_s1 || mutant_s2 || mutant_s3 || mutant_s4 || mutant_s5 || mutant_s5judge || mutant_s6 || mutant_s7 || mutant_s8 || mutant_s9 || mutant_s10 || mutant_s11 || mutant_s12 || mutant_s13 || mutant_reopen)

package mutant

const broken = ""
