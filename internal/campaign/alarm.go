package campaign

import (
	"fmt"
	"slices"
	"strings"

	"trireme/internal/lab"
)

// explains says which alarms a fault may raise on the hosts that it hits: a node must end when its disk fails or is full, and so must mysqld; one that
// is removed has nothing left to do. A host without power sees nothing of it: its processes are stopped first.
func (k Kind) explains(a lab.AlarmKind) bool {
	switch k {
	case DiskError, DiskFull:
		return a == lab.DaemonEnded || a == lab.MySQLCrashed
	case Replace:
		return a == lab.DaemonEnded
	}
	return false
}

// forgive what the faults of a step explain, until the system is whole again.
func (c *campaign) forgive(strikes []*strike) {
	for _, st := range strikes {
		for _, h := range st.hosts {
			c.forgiven[h] = append(c.forgiven[h], st.fault.Kind)
		}
	}
}

// alarms are a violation unless faults explain them. A node that has found a rule broken ends and is started again, so that everything may look well afterwards.
// The system being whole, nothing is forgiven any more.
func (c *campaign) alarms(sys system, whole bool) error {
	w, ok := sys.Breakable.(lab.Watched)
	if !ok {
		return nil
	}
	var wrong []string
	for _, a := range w.Alarms() {
		expected := slices.ContainsFunc(c.forgiven[a.Host], func(k Kind) bool { return k.explains(a.What) })
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
