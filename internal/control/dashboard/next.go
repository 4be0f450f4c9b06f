package dashboard

import (
	"strings"

	"trireme/internal/api"
)

// NextSteps are the steps of v as the command line and the page show them: with names, and none too early. The reasons
// of nodes are shown in a place such as "below".
func NextSteps(v api.ClusterView, reasons string) []api.Step {
	var starting, data []string
	voters, answering := 0, 0
	for _, m := range v.Members {
		if m.State == api.StateStarting || m.State == api.StateRecovering {
			starting = append(starting, m.Name)
		}
		if m.MySQL != nil && m.Role != api.RoleLeader && m.Answers() {
			data = append(data, m.Name)
		}
		if m.Raft.Voter {
			voters++
			if m.Answers() {
				answering++
			}
		}
	}
	wait := ""
	if v.Leader == "" && len(starting) > 0 {
		wait = "wait some seconds for the start of " + strings.Join(starting, ", ") + "; if nothing changes: "
	}
	steps := v.Steps()
	for i := range steps {
		do := strings.Replace(steps[i].Do, " below", " "+reasons, 1)
		switch alert := steps[i].Alert; {
		case alert == "TriremeNoFailover" && voters < 3 && answering == voters:
			do = "add voters until there are 3, which survive the loss of one: `trireme add NAME`; " +
				"a node that has just joined gets its vote by itself"
		case alert == "TriremeNoWrites" && v.Pause != nil && v.Doubt == "" && 2*answering > voters:
			steps[i].Alert = "TriremePaused"
			do = "have another node lead: `trireme resume`, or `trireme failover` during the pause"
		case alert == "TriremeNoWrites" || alert == "TriremeNodeDown" && i == 0:
			do = wait + do
		}
		if len(data) == 1 {
			do = strings.ReplaceAll(do, "why-not NODE", "why-not "+data[0])
		}
		steps[i].Do = do
	}
	return steps
}
