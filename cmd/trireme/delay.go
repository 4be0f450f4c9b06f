package main

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/gtid"
)

// delayCmd is `trireme delay`.
type delayCmd struct {
	remote
	Node       string `arg:"" help:"Name of a learner with apply_delay."`
	Hold       bool   `xor:"order" help:"Apply nothing more."`
	StopBefore string `xor:"order" placeholder:"GTID" help:"Apply without delay up to just before this transaction, and stop there."`
	StopAfter  string `xor:"order" placeholder:"GTID" help:"Apply without delay up to and with this transaction, and stop there."`
	Now        bool   `xor:"order" help:"Apply what is committed, without delay."`
	Resume     bool   `xor:"order" help:"Apply with the delay again."`
	JSON       bool   `help:"Print the result as JSON."`
}

// Run shows the node's delay, or gives it an order. Both ask the node itself, so the token is needed for both.
func (c *delayCmd) Run(e *env) error {
	req := api.DelayRequest{Name: c.Node}
	switch {
	case c.Hold:
		req.Order = api.OrderHold
	case c.StopBefore != "":
		req.Order, req.GTID = api.OrderStopBefore, c.StopBefore
	case c.StopAfter != "":
		req.Order, req.GTID = api.OrderStopAfter, c.StopAfter
	case c.Now:
		req.Order = api.OrderApplyNow
	case c.Resume:
		req.Order = api.OrderResume
	}
	if req.GTID != "" {
		if _, err := gtid.ParseGTID(req.GTID); err != nil {
			return usagef(
				"%q is no GTID such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:4711 (`trireme delay %s` says which is next): %v",
				req.GTID, c.Node, err)
		}
	}
	res, err := ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (res api.DelayResult, err error) {
		if err := checkNode(ctx, client, c.Node); err != nil {
			return res, err
		}
		return api.Delay.Ask(ctx, client, req)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	e.say("%s", delayText(res.Name, res.DelayView))
	return nil
}

// delayText is a sentence about a delayed learner.
func delayText(name string, v api.DelayView) string {
	text := fmt.Sprintf("%s is delayed by %v as configured", name, config.Duration(seconds(v.Seconds)))
	switch {
	case v.Missed:
		text += fmt.Sprintf(
			": it is stopped, and its data holds %s, which it was to stop before, as a copy of another node's", v.GTID)
	case v.Stopped && v.Order == api.OrderStopBefore:
		text += ": it has STOPPED just before " + v.GTID
	case v.Stopped && v.GTID != "":
		text += ": it has STOPPED just after " + v.GTID
	case v.Stopped:
		text += ": it is STOPPED"
	case v.Order == api.OrderStopBefore:
		text += fmt.Sprintf(": it applies all up to just before %s without delay, and stops there", v.GTID)
	case v.Order == api.OrderStopAfter:
		text += fmt.Sprintf(": it applies all up to %s without delay, and stops there", v.GTID)
	case v.Order == api.OrderApplyNow:
		text += ", but applies what is committed without delay until `trireme delay " + name + " --resume`"
	case v.Next != "":
		text += fmt.Sprintf("; the next transaction, %s, is due in %v", v.Next, seconds(v.RemainingSeconds).
			Round(time.Second))
	}
	if v.Stopped && v.Next != "" && v.Next != v.GTID {
		text += "; the next transaction is " + v.Next
	}
	if v.BehindBytes > 0 {
		text += fmt.Sprintf("; it lags by %v, %.1f MiB", seconds(v.BehindSeconds).Round(time.Second),
			float64(v.BehindBytes)/(1<<20))
	}
	return text
}

// delayTexts are those of all delayed learners.
func delayTexts(v api.ClusterView) []string {
	var out []string
	for _, m := range v.Members {
		if m.Delay != nil && m.Answers() {
			out = append(out, delayText(m.Name, *m.Delay))
		}
	}
	return out
}

// lagTexts say how long nodes that lag much will need.
func lagTexts(v api.ClusterView) []string {
	const much = 1.0 // seconds
	var out []string
	for _, m := range v.Members {
		lag, bytes, _ := m.Lag()
		if lag < much || m.Name == v.Leader || m.Delay != nil {
			continue
		}
		text := fmt.Sprintf("%s lags by %.1f s and %.1f MiB", m.Name, lag, float64(bytes)/(1<<20))
		if s := m.MySQL.CatchUpSeconds; s != nil {
			text += fmt.Sprintf("; it needs about %.0f s for that", *s)
		}
		out = append(out, text)
	}
	return out
}
