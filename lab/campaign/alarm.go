package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/lab/rivals"
)

// explains says which alarms a fault may raise on the hosts that it hits: a node must end when its disk fails or is
// full, and so must mysqld; one that is removed has nothing left to do. A host without power sees nothing of it: its
// processes are stopped first.
func (k Kind) explains(a rivals.AlarmKind) bool {
	switch k {
	case DiskError, DiskFull:
		return a == rivals.DaemonEnded || a == rivals.MySQLCrashed
	case Replace:
		return a == rivals.DaemonEnded
	}
	return false
}

// aftermath is how long after the end of a fault a process may still end because of it: a daemon hands over, kills its
// mysqld and waits for both.
const aftermath = 20 * time.Second

// forgive what the faults of a step explain, in this step and in its aftermath, or until the system is whole.
func (c *campaign) forgive(strikes []*strike) {
	for _, st := range strikes {
		for _, h := range st.hosts {
			c.forgiven[h] = append(c.forgiven[h], st)
		}
	}
}

// explained reports whether a fault explains what was seen.
func (c *campaign) explained(a rivals.Alarm) bool {
	return slices.ContainsFunc(c.forgiven[a.Host], func(st *strike) bool {
		return st.fault.Kind.explains(a.What) && !a.At.After(st.over().Add(aftermath))
	})
}

// over is when a fault ended, or will.
func (st *strike) over() time.Time {
	if st.ended.IsZero() {
		return st.end()
	}
	return st.ended
}

// alarms are a violation unless faults explain them. A node that has found a rule broken ends and is started again, so
// that everything may look well afterwards. The system being whole, nothing is forgiven any more.
func (c *campaign) alarms(sys system, whole bool) error {
	w, ok := sys.Breakable.(rivals.Watched)
	if !ok {
		return nil
	}
	var wrong []string
	for _, a := range w.Alarms() {
		expected := c.explained(a)
		fmt.Fprintf(c.script, "%s %v (expected: %v)\n", c.clock(), a, expected)
		if !expected {
			wrong = append(wrong, a.String())
		}
	}
	if whole {
		clear(c.forgiven)
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errViolated, strings.Join(wrong, "; "))
}
