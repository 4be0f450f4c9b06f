package bench

import (
	"math"
	"os"
	"testing"
	"time"

	"trireme/lab/rivals"
)

func TestParseStat(t *testing.T) {
	line := "123 (a ) b) S 1 123 123 0 -1 4194560 1 0 0 0 150 50 7 9 20 0 4 0 999 1 1 1"
	if d, err := parseStat(line); err != nil || d != 2*time.Second {
		t.Fatalf("%v %v, want 2s", d, err)
	}
	for _, broken := range []string{"", "123 (x", "123 (x) S 1 2"} {
		if _, err := parseStat(broken); err == nil {
			t.Errorf("accepted %q", broken)
		}
	}
	if d, err := cpuTime(os.Getpid()); err != nil || d < 0 {
		t.Fatalf("own CPU time: %v %v", d, err)
	}
	before, err := switchesOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for deadline, now := time.Now().Add(10*time.Second), before; now <= before; {
		time.Sleep(time.Millisecond) // blocks
		if now, err = switchesOf(os.Getpid()); err != nil || time.Now().After(deadline) {
			t.Fatal(now, before, err)
		}
	}
	if now, peak, err := resident(os.Getpid()); err != nil || now < 1<<20 || peak < now {
		t.Fatalf("own memory: %d %d %v", now, peak, err)
	}
}

func TestStolenCPU(t *testing.T) {
	before := rivals.ParseTicks("cpu  100 1 50 800 20 3 6 20 7 0\ncpu0 1 2 3\n")
	if before != (rivals.Ticks{All: 1000, Steal: 20}) {
		t.Fatalf("%+v", before) // guest time counts once
	}
	after := rivals.ParseTicks("cpu  140 1 90 830 20 3 6 60 7 0\n")
	if got := after.Stolen(before); math.Abs(got-100.0*40/150) > 1e-9 {
		t.Errorf("%v %%", got)
	}
	for _, old := range []string{"", "cpu", "cpu 1 2 3", "intr 5"} {
		if got := rivals.ParseTicks(old).Stolen(before); got != 0 {
			t.Errorf("%q: %v %%", old, got)
		}
	}
	if now := rivals.ReadTicks(); now.All == 0 {
		t.Error("/proc/stat was not read")
	}
	r := Results{Records: []Record{{Seconds: 10, Stolen: 1}, {Seconds: 30, Stolen: 41}}}
	if mean, most := r.stolen(); mean != 31 || most != 41 {
		t.Errorf("%v %% of all, %v %% in the worst", mean, most)
	}
}

func TestMedianAndQuantile(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.v, got, c.want)
		}
	}
	v := []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	if quantile(v, 0.99) != 10 || quantile(v, 0.5) != 5 || v[0] != 10 {
		t.Error("quantile is wrong, or changed its argument")
	}
}

func TestStudentT(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.706, 4: 2.776, 5: 2.571, 9: 2.262, 29: 2.045, 1000: 1.962} {
		if got := studentT(freedom); math.Abs(got/want-1) > 0.01 {
			t.Errorf("%d degrees of freedom: %.3f, want %.3f", freedom, got, want)
		}
	}
}
