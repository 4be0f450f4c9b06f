package campaign

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Fault is one thing that happens.
type Fault struct {
	Kind Kind
	Whom Whom
	Pick uint32        // which of those that qualify
	Hold time.Duration // how long it lasts; 0: it is over at once
}

func (f Fault) String() string {
	if f.Hold == 0 {
		return fmt.Sprintf("%s %s", f.Kind, f.Whom)
	}
	return fmt.Sprintf("%s %s for %v", f.Kind, f.Whom, f.Hold.Round(10*time.Millisecond))
}

// Step is what happens at once, and how far the system recovers before the next step: until writes go on, or until all of it is healthy.
type Step struct {
	Number  int // from 1
	Faults  []Fault
	Healthy bool
}

func (s Step) String() string {
	var out []string
	for _, f := range s.Faults {
		out = append(out, f.String())
	}
	return strings.Join(out, " + ")
}

const (
	pairPercent    = 15 // of steps are of two faults at once
	healthyPercent = 25 // of steps wait until all is healthy
)

// Schedule deals steps. Two with the same seed and kinds deal the same.
type Schedule struct {
	rand  *rand.Rand
	kinds []kind
	deck  []kind // the rest of it, dealt from the end
	steps int
}

// NewSchedule of some kinds.
func NewSchedule(seed uint64, of []Kind) *Schedule {
	s := &Schedule{rand: rand.New(rand.NewPCG(seed, 0x7452_6952_656d_4531))}
	for _, name := range of {
		s.kinds = append(s.kinds, kindOf(name))
	}
	return s
}

// Next step.
func (s *Schedule) Next() Step {
	s.steps++
	first := s.draw()
	step := Step{Number: s.steps, Faults: []Fault{s.fault(first)}, Healthy: first.heavy}
	if len(s.kinds) > 1 && s.rand.IntN(100) < pairPercent {
		if second := s.draw(); second.name != first.name {
			step.Faults = append(step.Faults, s.fault(second))
			step.Healthy = step.Healthy || second.heavy
		} else {
			s.deck = append(s.deck, second) // the next step's
		}
	}
	step.Healthy = step.Healthy || s.rand.IntN(100) < healthyPercent
	return step
}

// draw a card. A deck has every kind once at its top, in an order of its own, and the more frequent ones below: so even a short campaign meets all.
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
	}
	return f
}
