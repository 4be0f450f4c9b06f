package faultfs

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Loss counts what a power loss took.
type Loss struct {
	Writes  int // lost as a whole
	Torn    int // lost in part
	Sectors int // of both
	Cuts    int // changes of size to less
	Names   int // created, renamed, removed
	Files   int // that had something to lose
}

// Bytes reports whether anything was lost of what had been written.
func (l Loss) Bytes() bool { return l.Writes+l.Torn+l.Cuts > 0 }

// temper is what a power loss is like. Most are mixed; without the extremes, states in which all or nothing was lost
// would be rare.
type temper struct{ lose, keep bool }

func newTemper(rnd *rand.Rand, takeAll bool) temper {
	if takeAll {
		return temper{lose: true}
	}
	switch rnd.IntN(8) {
	case 0:
		return temper{lose: true}
	case 1:
		return temper{keep: true}
	}
	return temper{}
}

type fate int

const (
	keepAll fate = iota
	keepNone
	keepSome
)

func (t temper) write(rnd *rand.Rand) fate {
	switch {
	case t.lose:
		return keepNone
	case t.keep:
		return keepAll
	}
	return fate(rnd.IntN(3))
}

// loses decides about one thing.
func (t temper) loses(rnd *rand.Rand) bool {
	return t.lose || !t.keep && rnd.IntN(2) == 0
}

// prefix is how many of n things that happen in an order are kept.
func (t temper) prefix(rnd *rand.Rand, n int) int {
	switch t.write(rnd) {
	case keepAll:
		return n
	case keepNone:
		return 0
	}
	return rnd.IntN(n + 1)
}

// sortedKeys, so that a seed gives the same again.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
