package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/config"
)

// healthCheck reports whether a node passes, and if not why. The request carries the parameters.
type healthCheck func(Health, *http.Request) (ok bool, why string, err error)

// healthChecks by path. The names are those that load balancer recipes for MySQL and PostgreSQL clusters use.
var healthChecks = map[string]healthCheck{
	"/primary":   primary,
	"/replica":   replica,
	"/read-only": readOnly,
	"/health":    healthy,
	"/readiness": readiness,
	"/liveness":  liveness,
}

// health answers 200 or 503 with Health as the body; OPTIONS is answered like GET, without the body, as some balancers
// probe with it.
func (s *Server) health(check healthCheck) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
		default:
			get(nil)(w, r)
			return
		}
		h := s.opts.Backend.Local()
		ok, why, err := check(h, r)
		if err != nil {
			s.fail(w, err)
			return
		}
		status := http.StatusOK
		if !ok {
			status = http.StatusServiceUnavailable
			h.Reason = why
		}
		h.Reason = s.redactedReason(r, h)
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		if r.Method == http.MethodOptions {
			w.WriteHeader(status)
			return
		}
		writeJSON(w, status, h)
	}
}

// primary: writes are taken here.
func primary(h Health, _ *http.Request) (bool, string, error) {
	if h.Writable {
		return true, "", nil
	}
	if h.Leader != "" && h.Leader != h.Name {
		return false, "the leader is " + h.Leader, nil
	}
	return false, reason(h, "writes are not open"), nil
}

// replica: a follower or learner that serves reads and lags by at most ?lag=: a time ("5", "5s", "500ms") or a size
// ("16MiB"). A delayed learner does not count: its data is old on purpose. On a node that knows no leader no lag is
// small enough, because it does not know what was committed since.
func replica(h Health, r *http.Request) (bool, string, error) {
	within, err := withinLag(h, r.URL.Query().Get("lag"))
	if err != nil {
		return false, "", err
	}
	switch {
	case h.Role != RoleFollower && h.Role != RoleLearner:
		return false, "this is a " + h.Role, nil
	case h.State != StateHealthy || !h.Readable:
		return false, reason(h, "reads are not served"), nil
	case h.Delayed != "":
		return false, "it is " + h.Delayed, nil
	case !within && h.Leader == "":
		return false, "no leader is known, so the lag is not either", nil
	case !within:
		return false, "it lags more than asked for", nil
	}
	return true, "", nil
}

// readOnly: reads are served here, by a leader or by a replica.
func readOnly(h Health, r *http.Request) (bool, string, error) {
	if h.Role == RoleLeader && h.Writable {
		return true, "", nil
	}
	return replica(h, r)
}

// healthy: the node does what its role asks for.
func healthy(h Health, _ *http.Request) (bool, string, error) {
	if h.State != StateHealthy {
		return false, reason(h, "state is "+h.State), nil
	}
	if h.Role != RoleLogger && !h.MySQLAlive {
		return false, "mysqld does not answer", nil
	}
	return true, "", nil
}

// readiness: healthy, and in touch with a leader. For rolling restarts: go on to the next node when this one says 200.
func readiness(h Health, r *http.Request) (bool, string, error) {
	if h.Leader == "" {
		return false, "no leader is known", nil
	}
	return healthy(h, r)
}

// liveness: the daemon answers. It says nothing about mysqld, so that no supervisor restarts a daemon because of
// mysqld.
func liveness(Health, *http.Request) (bool, string, error) { return true, "", nil }

func reason(h Health, otherwise string) string {
	if h.Reason != "" {
		return h.Reason
	}
	return otherwise
}

// balancerUnits are sizes as recipes for other clusters spell them, where "MB" has always been 1024 kB.
var balancerUnits = strings.NewReplacer("kB", "KiB", "KB", "KiB", "MB", "MiB", "GB", "GiB")

// withinLag compares with a limit; unknown lag is within none.
func withinLag(h Health, limit string) (bool, error) {
	if limit == "" {
		return true, nil
	}
	h.LagKnown = h.LagKnown && h.Leader != ""
	if strings.HasSuffix(limit, "B") {
		b, err := config.ParseBytes(balancerUnits.Replace(limit))
		if err != nil {
			return false, Errorf(KindInvalid, "lag: %v", err)
		}
		return h.LagKnown && h.LagBytes <= uint64(b), nil
	}
	d, err := time.ParseDuration(limit)
	if seconds, errNumber := strconv.ParseFloat(limit, 64); errNumber == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return false, Errorf(KindInvalid, "lag=%s is neither a time nor a size", limit).
			With(`give seconds ("5"), a time ("500ms") or a size ("16MiB")`)
	}
	return h.LagKnown && h.Lag <= d, nil
}

// String of a Health is one line for logs.
func (h Health) String() string {
	return fmt.Sprintf("%s %s %s", h.Name, h.Role, h.State)
}
