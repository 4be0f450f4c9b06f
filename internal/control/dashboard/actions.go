package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// resultPage tells what an action would do, or has done.
type resultPage struct {
	Cluster, Node string
	Title         string
	Done, Problem string
	Advice        string
	Facts         []fact
	Candidates    []api.Candidate
	Open          []api.OpenTransaction
	OpenMore      int
	Confirm       *confirm
}

type fact struct{ Name, Value string }

// confirm is the form that carries out what was shown.
type confirm struct {
	Path, Token, Button string
	Fields              []fact
	TypeName            string // a name that has to be typed; empty: none
}

func (p *Pages) page(title string) resultPage {
	return resultPage{Cluster: p.opts.Cluster, Node: p.opts.Source.Node(), Title: title}
}

// show answers with what came of an action, and the log tells who had it done.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, page resultPage, did string, err error) {
	status := http.StatusOK
	if err != nil {
		page.Problem, status = err.Error(), http.StatusConflict
		if e, ok := errors.AsType[*api.Error](err); ok {
			page.Problem, page.Advice = e.Message, e.Advice
		}
	}
	if did != "" {
		p.opts.Logger.Info("dashboard: an action", "action", did, "from", r.RemoteAddr, "problem", page.Problem)
	}
	p.render(w, status, "result.html", page)
}

// switchover shows a dry run first; with the term that was shown there it moves leadership.
func (p *Pages) switchover(w http.ResponseWriter, r *http.Request, sess *session) {
	to, term := r.PostForm.Get("to"), r.PostForm.Get("term")
	if term != "" {
		p.switchOver(w, r, to, term)
		return
	}
	page := p.page("Switchover: dry run")
	res, err := p.opts.Source.Switchover(r.Context(), api.SwitchoverRequest{To: to, DryRun: true})
	page.Candidates, page.Open, page.OpenMore = res.Candidates, res.OpenTransactions,
		res.OpenCount-len(res.OpenTransactions)
	switch {
	case err != nil:
	case res.Problem != "":
		page.Problem = res.Problem
	default:
		page.Facts = []fact{{"From", res.From}, {"To", res.To},
			{"Without writes", fmt.Sprintf("about %.0f ms", res.WriteGapMS)},
			{"Open transactions", fmt.Sprintf("%d; those that do not end within %.0f s are rolled back", res.OpenCount,
				api.DefaultTrxWait.Seconds())}}
		page.Confirm = &confirm{Path: "/ui/switchover", Token: p.sessions.actionToken(sess), Button: "Switch over to " +
			res.To,
			Fields: []fact{{"to", res.To}, {"term", strconv.FormatUint(res.Term, 10)}}}
	}
	p.show(w, r, page, "", err)
}

func (p *Pages) switchOver(w http.ResponseWriter, r *http.Request, to, term string) {
	page := p.page("Switchover to " + to)
	n, err := strconv.ParseUint(term, 10, 64)
	if err != nil || n == 0 || to == "" {
		p.show(w, r, page, "", api.Errorf(api.KindInvalid, "the request does not say what was shown in the dry run").
			With("start again"))
		return
	}
	// What has begun goes on to its end, whether or not the browser waits for it.
	res, err := p.opts.Source.Switchover(context.WithoutCancel(r.Context()), api.SwitchoverRequest{To: to, IfTerm: n})
	if err == nil {
		page.Done = switchoverText(res)
	}
	p.show(w, r, page, "switchover to "+to, err)
}

// switchoverText says what a switchover did, and first what became of clients: a session that moved has lost nothing.
func switchoverText(res api.SwitchoverResult) string {
	text, what := fmt.Sprintf("%s leads in term %d. Writes were closed for %.0f ms.", res.To, res.Term, res.WriteGapMS),
		"connection"
	if res.SessionsMoved > 0 {
		text, what = text+fmt.Sprintf(" %s moved to %s.", count(res.SessionsMoved, "session"), res.To), "other connection"
	}
	if others := res.ConnectionsCut - res.SessionsMoved; others > 0 {
		text += fmt.Sprintf(" %s to %s ended; clients connect again unless a router of their own moved them.",
			count(others, what), res.From)
	}
	if res.OpenCount > 0 {
		text += fmt.Sprintf(" Rolled back: %s.", count(res.OpenCount, "open transaction"))
	}
	return text
}

// maxPause that the page offers.
const maxPause = 7 * 24 * time.Hour

func (p *Pages) pause(w http.ResponseWriter, r *http.Request, _ *session) {
	page := p.page("Pause automatic failover")
	var d time.Duration
	if text := r.PostForm.Get("for"); text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil || d <= 0 || d > maxPause {
			p.show(w, r, page, "", api.Errorf(api.KindInvalid, "%q is no time that a pause can last", text))
			return
		}
	}
	res, err := p.opts.Source.Pause(context.WithoutCancel(r.Context()), api.PauseRequest{For: d})
	if err == nil {
		page.Done = "Automatic failover is off until an operator resumes it. Fences stay on."
		if res.Pause != nil && res.Pause.Until != nil {
			page.Done = fmt.Sprintf("Automatic failover is off until %s. Fences stay on.", clock(*res.Pause.Until))
		}
	}
	p.show(w, r, page, "pause", err)
}

func (p *Pages) resume(w http.ResponseWriter, r *http.Request, _ *session) {
	page := p.page("Resume automatic failover")
	res, err := p.opts.Source.Resume(context.WithoutCancel(r.Context()))
	if err == nil {
		page.Done = "Automatic failover is on."
		if res.Before == nil {
			page.Done = "Automatic failover was on already."
		}
	}
	p.show(w, r, page, "resume", err)
}

// remove asks for the name to be typed: of what can be done here it is the one that is not undone by a click.
func (p *Pages) remove(w http.ResponseWriter, r *http.Request, sess *session) {
	name, typed, term := r.PostForm.Get("name"), r.PostForm.Get("typed"), r.PostForm.Get("term")
	page := p.page("Remove " + name)
	v := p.opts.Source.View(r.Context())
	if !isMember(v, name) {
		p.show(w, r, page, "", api.Errorf(api.KindNotFound, "there is no node %q", name))
		return
	}
	if typed == name && term != "" {
		n, err := strconv.ParseUint(term, 10, 64)
		if err != nil || n == 0 {
			p.show(w, r, page, "", api.Errorf(api.KindInvalid, "the request does not say what was shown").With("start again"))
			return
		}
		res, err := p.opts.Source.Remove(context.WithoutCancel(r.Context()), api.MemberRequest{Name: name, IfTerm: n})
		if err == nil {
			page.Done = fmt.Sprintf("%s. %d voters are left, of which %d may fail.", res.Message, res.Voters, res.Survives)
		}
		p.show(w, r, page, "remove "+name, err)
		return
	}
	if term != "" {
		page.Problem = "What was typed is not the node's name. Nothing was done."
	}
	page.Facts = []fact{{"Node", name},
		{"What happens", "it loses its vote and its place in the cluster; its daemon ends, its data stays on its disk"},
		{"Before", "if it leads, it hands leadership over; what the others cannot bear is refused"}}
	page.Confirm = &confirm{Path: "/ui/remove", Token: p.sessions.actionToken(sess), Button: "Remove " + name,
		TypeName: name, Fields: []fact{{"name", name}, {"term", strconv.FormatUint(v.Term, 10)}}}
	p.show(w, r, page, "", nil)
}

// add makes an invitation and shows what to do with it. The token is in that answer and nowhere else.
func (p *Pages) add(w http.ResponseWriter, r *http.Request, _ *session) {
	name, role := r.PostForm.Get("name"), r.PostForm.Get("role")
	err := config.CheckName("node", name)
	if err == nil && !slices.Contains(roles, role) {
		err = fmt.Errorf("%q is not a role: %s", role, strings.Join(roles, ", "))
	}
	if err != nil {
		p.show(w, r, p.page("Add a node"), "", api.Errorf(api.KindInvalid, "%v", err))
		return
	}
	res, err := p.opts.Source.Invite(context.WithoutCancel(r.Context()), api.JoinTokenRequest{Name: name, Role: role})
	if err != nil {
		p.show(w, r, p.page("Add "+name), "invitation of "+name, err)
		return
	}
	p.opts.Logger.Info("dashboard: an action", "action", "invitation of "+name, "from", r.RemoteAddr)
	p.render(w, http.StatusOK, "add.html", addPage{state: p.watch.look(r.Context()).state, Name: name, Role: role,
		Token: res.Token, Expires: clock(res.Expires)})
}

func isMember(v api.ClusterView, name string) bool {
	for _, m := range v.Members {
		if m.Name == name {
			return true
		}
	}
	return false
}
