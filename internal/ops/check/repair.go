package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
)

// Repair has every node that the majority outvotes throw its data away and copy another node's, one after the other,
// and compares what differed again. The result is that of the second comparison. It refuses when it cannot tell who is
// right, or when the leader is wrong.
func Repair(ctx context.Context, o Options, r Result) (Result, error) {
	wrong, tables, err := plan(r)
	if err != nil || wrong == nil {
		return r, err
	}
	for _, name := range wrong {
		if err := reinit(ctx, o, name); err != nil {
			return r, fmt.Errorf("reinit %s: %w", name, err)
		}
	}
	o.Only, o.State = tables, ""
	o.Say("comparing again: %s", strings.Join(tables, " "))
	return Run(ctx, o)
}

// plan returns the nodes to copy again and the tables to compare afterwards.
func plan(r Result) (wrong, tables []string, err error) {
	for _, d := range r.Differences {
		if len(d.Wrong) == 0 {
			return nil, nil,
				fmt.Errorf("%s: there is no majority that could be right; decide which node is, move leadership to it (trireme switchover --to NODE), "+
					"and copy it to each of the others (trireme reinit NODE)", d.Table)
		}
		wrong, tables = append(wrong, d.Wrong...), append(tables, d.Table)
	}
	slices.Sort(wrong)
	slices.Sort(tables)
	wrong, tables = slices.Compact(wrong), slices.Compact(tables)
	if !slices.Contains(wrong, r.Leader) {
		return wrong, tables, nil
	}
	right := slices.DeleteFunc(slices.Clone(r.Nodes), func(n string) bool { return slices.Contains(wrong, n) })
	if len(right) == 0 {
		return nil, nil,
			fmt.Errorf("each of %s differs from the others somewhere: restore a backup, or decide which one is right",
				strings.Join(r.Nodes, ", "))
	}
	return nil, nil, api.Errorf(api.KindNeeded, "%s leads and is the one that differs: a leader's data is not thrown away",
		r.Leader).
		With("move leadership first (trireme switchover --to %s), then repair", right[0])
}

// reinit has a node copied again and waits until it is a healthy member.
func reinit(ctx context.Context, o Options, name string) error {
	before, err := member(ctx, o, name)
	if err != nil {
		return err
	}
	o.Say("%s deletes its data and copies another node's", name)
	rctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	if _, err := o.Cluster.Reinit(rctx, api.MemberRequest{Name: name}); err != nil {
		return err
	}
	last := before.State // it is so until the node has begun
	for {
		m, err := member(ctx, o, name)
		if err == nil && m.State == api.StateHealthy && m.MySQL != nil && m.MySQL.PID != 0 &&
			m.MySQL.PID != before.MySQL.PID {
			o.Say("%s is healthy again", name)
			return nil
		}
		if err == nil && m.State != last {
			last = m.State
			o.Say("%s is %s", name, last)
		}
		if err := poll.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

func member(ctx context.Context, o Options, name string) (api.MemberView, error) {
	ctx, cancel := context.WithTimeout(ctx, quickLimit)
	defer cancel()
	v, err := o.Cluster.Cluster(ctx)
	if err != nil {
		return api.MemberView{}, err
	}
	for _, m := range v.Members {
		if m.Name == name && m.MySQL != nil {
			return m, nil
		}
	}
	return api.MemberView{}, fmt.Errorf("there is no node %q with data", name)
}
