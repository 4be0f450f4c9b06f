package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// forceQuorum needs no leader: any node reports, and the survivor with the newest log does it.
func (s *Server) forceQuorum(w http.ResponseWriter, r *http.Request) {
	var req ForceRequest
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil && !errors.Is(err, io.EOF) {
		s.fail(w, Errorf(KindInvalid, "the request is not what %s expects: %v", r.URL.Path, err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), controlTimeout)
	defer cancel()
	rep, at, err := s.opts.Backend.ForceQuorum(ctx, req)
	switch {
	case err != nil:
	case !at.Self && r.Header.Get(forwardedBy) != "":
		err = Errorf(KindConflict, "nothing is changed: the survivors do not agree which of them has the newest log").With("try again")
	case !at.Self:
		rep = ForceReport{}
		err = s.pass(ctx, at, http.MethodPost, r.URL.Path, req, &rep)
		if KindOf(err) == KindUnreachable && err != nil {
			err = Errorf(KindUnreachable, "%s, whose log is the newest, cannot be reached from %s: %v", at.Name, s.opts.Name, err).
				With("whether anything was done is shown by `trireme status --api %s`", at.API)
		}
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, rep)
}
