package backup

import (
	"io"
	"net/http"
	"sync"
)

// calm is a transport that has let go of a request's body when it returns an error, or when the body of its answer is
// closed. Go's own may read on for a while if the service answers before it has taken all (http.RoundTripper allows
// that), but the S3 client sends the same reader again after a failure, and we fill the memory below it with the next
// part.
type calm struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. It waits for what Go's transport promises: each body is closed, as soon as
// its connection is.
func (c calm) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return c.RoundTripper.RoundTrip(r)
	}
	sent := &sentBody{ReadCloser: r.Body, closed: make(chan struct{})}
	r = r.Clone(r.Context())
	r.Body = sent
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		<-sent.closed
		return nil, err
	}
	answer.Body = answerBody{answer.Body, sent}
	return answer, nil
}

// sentBody tells when the transport has closed it.
type sentBody struct {
	io.ReadCloser
	once   sync.Once
	closed chan struct{}
}

func (b *sentBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { close(b.closed) })
	return err
}

type answerBody struct {
	io.ReadCloser
	sent *sentBody
}

func (b answerBody) Close() error {
	err := b.ReadCloser.Close()
	<-b.sent.closed
	return err
}
