package campaign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is one thing that happens.
type Fault struct {
	Kind Kind
	Whom Whom
	Pick uint32        // which of those that qualify
	Hold time.Duration // how long it lasts; 0: it is over at once
	Lag  time.Duration // after the previous fault of its step
}

func (f Fault) String() string {
	text := fmt.Sprintf("%s %s", f.Kind, f.Whom)
	if f.Hold > 0 {
		text += fmt.Sprintf(" for %v", f.Hold.Round(10*time.Millisecond))
	}
	if f.Lag > 0 {
		text += fmt.Sprintf(" %v later", f.Lag.Round(10*time.Millisecond))
	}
	return text
}

// Step is what happens before the system may recover, and how far.
type Step struct {
	Number int // from 1
	Faults []Fault
	Rest   Rest
	// Whole: it begins with all nodes healthy. A fault lasts longer than writes may stop for it, and a majority has to be
	// whole; or it cannot be made otherwise.
	Whole bool
}

// Rest is how far a system recovers before the next step.
type Rest string

// The rests.
const (
	// until a write that began after the faults is acknowledged, by another leader if one was killed
	UntilWrites Rest = "writes"
	// and a majority of the nodes is healthy, so that the next fault meets a system that can stand it
	UntilMajority Rest = "a majority"
	UntilHealthy  Rest = "all" // and all nodes are
)

const (
	// of steps are of two faults: half of them at once, the others with the second before the system has recovered, as
	// a rule
	pairPercent    = 20
	healthyPercent = 5  // of steps wait until all is healthy
	demandPercent  = 25 // of faults that last and leave a majority whole: they last longer than writes may stop
	longestLag     = time.Second
)

// Schedule deals steps. Two with the same seed and kinds deal the same.
type Schedule struct {
	rand  *rand.Rand
	kinds []kind
	deck  []kind // the rest of it, dealt from the end
	steps int
	pairs int // of a hundred steps are of two faults
}

// NewSchedule of some kinds.
func NewSchedule(seed uint64, of []Kind) *Schedule {
	s := &Schedule{rand: rand.New(rand.NewPCG(seed, 0x7452_6952_656d_4531)), pairs: pairPercent}
	for _, name := range of {
		s.kinds = append(s.kinds, kindOf(name))
	}
	return s
}

// Next step.
func (s *Schedule) Next() Step {
	s.steps++
	made := []kind{s.draw()}
	if len(s.kinds) > 1 && s.rand.IntN(100) < s.pairs {
		if second := s.draw(); second.name == made[0].name {
			s.deck = append(s.deck, second) // the next step's
		} else if made = append(made, second); second.whole {
			slices.Reverse(made) // it could not be made after another fault
		}
	}
	step, heavy := Step{Number: s.steps, Rest: UntilWrites}, false
	for i, k := range made {
		f := s.fault(k)
		if i > 0 && s.rand.IntN(2) == 0 {
			f.Lag = time.Duration(s.rand.Int64N(int64(longestLag)))
		}
		step.Faults = append(step.Faults, f)
		step.Whole = step.Whole || k.whole || f.demands()
		heavy = heavy || k.heavy
	}
	switch {
	case s.rand.IntN(100) < healthyPercent:
		step.Rest = UntilHealthy
	case heavy:
		step.Rest = UntilMajority
	}
	return step
}

// draw a card. A deck has every kind once at its top, in an order of its own, and the more frequent ones below: so even
// a short campaign meets all.
func (s *Schedule) draw() kind {
	if len(s.deck) == 0 {
		for _, k := range s.kinds {
			for range k.deck - 1 {
				s.deck = append(s.deck, k)
			}
		}
		s.shuffle(s.deck)
		top := append([]kind(nil), s.kinds...)
		s.shuffle(top)
		s.deck = append(s.deck, top...)
	}
	k := s.deck[len(s.deck)-1]
	s.deck = s.deck[:len(s.deck)-1]
	return k
}

func (s *Schedule) shuffle(cards []kind) {
	s.rand.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
}

func (s *Schedule) fault(k kind) Fault {
	f := Fault{Kind: k.name, Whom: k.whom[s.rand.IntN(len(k.whom))], Pick: s.rand.Uint32()}
	if least, most := k.hold[0], k.hold[1]; most > 0 {
		f.Hold = least + time.Duration(s.rand.Int64N(int64(most-least)))
		if f.Whom != Majority && f.Whom != All && s.rand.IntN(100) < demandPercent {
			f.Hold = k.limit(f.Whom) + demandLeast + time.Duration(s.rand.Int64N(int64(demandMost-demandLeast)))
		}
	}
	return f
}

// A fault of which writes are demanded lasts so much longer than they may stop for it.
const demandLeast, demandMost = 2 * time.Second, 5 * time.Second

// demands reports whether a stall that ends with the fault is one for certain.
func (f Fault) demands() bool { return f.Hold >= kindOf(f.Kind).limit(f.Whom)+demandLeast }
