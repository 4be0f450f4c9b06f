package api

import "context"

// Owned are those of all, each a node's view, whose nodes the others take for members. A node that was removed or whose
// certificate was revoked has a certificate of the cluster's CA still, and may say anything: the others' word counts,
// and where each disowns the other that of the majority, that of last, the view that counted before, included. One
// against one is neither's: the caller needs a third.
func Owned[T any](all []T, view func(T) RouteView, last RouteView) []T {
	var clean, most []T
	voices := len(all)
	if last.Next != 0 {
		voices++
	}
	for _, one := range all {
		against := 0
		for _, other := range all {
			if view(other).Disowns(view(one)) {
				against++
			}
		}
		if last.Disowns(view(one)) {
			against++
		}
		if against == 0 {
			clean = append(clean, one)
		}
		if 2*against < voices {
			most = append(most, one)
		}
	}
	if len(clean) > 0 {
		return clean
	}
	return most
}

// Route is the asked node's view at this moment.
func (c *Client) Route(ctx context.Context) (v RouteView, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := false
	err = c.WatchRoute(ctx, func(first RouteView) {
		if !got {
			v, got = first, true
			cancel()
		}
	})
	if got {
		return v, nil
	}
	return v, err
}
