package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"trireme/internal/base/pki"
)

// hidden stands for what only those who have logged in see.
const hidden = "(log in to see it)"

// redacted answers with v. Statements and what mysqld says of rows are left out, wherever they are quoted, unless the
// one who asks has shown a token or a node's certificate.
func (s *Server) redacted(w http.ResponseWriter, r *http.Request, v any, members []MemberView) {
	data, err := json.Marshal(v)
	if err != nil || s.knows(r) {
		writeJSON(w, http.StatusOK, v) // an error is its to tell
		return
	}
	for _, text := range dataOf(members) {
		if quoted, err := json.Marshal(text); err == nil {
			data = bytes.ReplaceAll(data, quoted[1:len(quoted)-1], []byte(hidden))
		}
	}
	writeJSON(w, http.StatusOK, json.RawMessage(data))
}

// redactedReason is a health's reason, for who asks as redacted does.
func (s *Server) redactedReason(r *http.Request, h Health) string {
	why := h.Reason
	if h.ApplyError == nil || s.knows(r) {
		return why
	}
	for _, text := range dataOf([]MemberView{{ApplyError: h.ApplyError}}) {
		why = strings.ReplaceAll(why, text, hidden)
	}
	return why
}

// knows reports whether a request comes from somebody who may see all.
func (s *Server) knows(r *http.Request) bool {
	p, err := s.authorize(r)
	return err == nil && p.Role.May(pki.Viewer) && encrypted(r)
}

// redactedHistory is the events without what they quote of an entry that could not be applied, or was applied wrongly,
// which may be known by now to them alone, and without the names of tokens and the places of backups.
func redactedHistory(all []Event) []Event {
	all = slices.Clone(all)
	for i := range all {
		switch all[i].Kind {
		case EventApplyError:
			all[i].Message = "an entry could not be applied " + hidden
		case EventDivergent:
			all[i].Message = "a node's data differs from the log " + hidden
		case EventToken:
			all[i].Message = "a token was made or removed " + hidden
		case EventBackup:
			all[i].Message, all[i].Backup = "a backup has made a copy "+hidden, nil
		}
		if all[i].By != "" {
			all[i].By = hidden
		}
	}
	return all
}

// withoutPlaces is what is known of the backup without where it is.
func (v *BackupView) withoutPlaces() *BackupView {
	if v == nil {
		return nil
	}
	out := *v
	if out.Copy != nil {
		c := *out.Copy
		c.Place, out.Copy = hidden, &c
	}
	if out.Archive != nil {
		a := *out.Archive
		a.Place, out.Archive = hidden, &a
	}
	return &out
}

// dataOf are the texts in views that come from applications, longer ones before their parts.
func dataOf(members []MemberView) (texts []string) {
	for _, m := range members {
		for _, h := range m.Heavy {
			if h.Kind == HeavyDDL {
				texts = append(texts, h.Text)
			}
		}
		if e := m.ApplyError; e != nil {
			texts = append(texts, e.Error, e.Statement)
		}
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return texts
}
