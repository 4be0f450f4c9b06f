package sim

import (
	"context"
	"testing"
)

func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(5) {
		a, _ := Run(context.Background(), seed, Options{Trace: true})
		b, _ := Run(context.Background(), seed, Options{Trace: true})
		if a.Hash != b.Hash || a.Trace != b.Trace {
			t.Fatalf("seed %d gave two runs: %x and %x", seed, a.Hash, b.Hash)
		}
		if a.Violation != nil {
			t.Errorf("seed %d: %v\n%s", seed, a.Violation, Shrink(context.Background(), seed, Options{}))
		}
	}
}
