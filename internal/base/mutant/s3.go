//go:build mutant_s3

package mutant

const broken = "S3"
