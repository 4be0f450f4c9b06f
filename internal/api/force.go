package api

import (
	"context"
	"net/http"
)

// forceQuorum needs no leader: any node reports, and the survivor with the newest log does it.
func (s *Server) forceQuorum(ctx context.Context, r *http.Request, req ForceRequest) (ForceReport, error) {
	rep, at, err := s.opts.Backend.ForceQuorum(ctx, req)
	switch {
	case err != nil || at.Self:
		return rep, err
	case forwarder(r) != "":
		return rep, Errorf(KindConflict, "nothing is changed: the survivors do not agree which of them has the newest log").
			With("try again")
	}
	rep = ForceReport{}
	err = s.pass(ctx, at, http.MethodPost, r.URL.Path, req, &rep)
	if err != nil && KindOf(err) == KindUnreachable {
		err = Errorf(KindUnreachable, "%s, whose log is the newest, cannot be reached from %s: %v", at.Name, s.opts.Name,
			err).
			With("whether anything was done is shown by `trireme status --api %s`", at.API)
	}
	return rep, err
}
