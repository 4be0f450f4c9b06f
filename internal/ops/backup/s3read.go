package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// readTries is how often a read that broke off goes on without having got a byte.
const readTries = 3

// Open implements Store.
func (s *S3) Open(name string) (io.ReadCloser, error) {
	r := &s3Reader{s: s, name: name}
	if err := r.open(); err != nil {
		return nil, s.explain("read "+name, err)
	}
	return s.read(name, r)
}

// s3Reader reads an object, and goes on where a connection was cut. An object that does not come is no damaged one: no
// error of its is the end of a file.
type s3Reader struct {
	s        *S3
	name     string
	etag     string
	at, size int64
	body     io.ReadCloser
	idle     *time.Timer // cuts a body that stands still
	cancel   context.CancelFunc
	tries    int // since the last byte
	err      error
}

// open asks for the object from at on.
func (r *s3Reader) open() error {
	ctx, cancel := context.WithCancel(r.s.ctx)
	var opts minio.GetObjectOptions
	if r.etag != "" {
		if err := errors.Join(opts.SetRange(r.at, 0), opts.SetMatchETag(r.etag)); err != nil {
			cancel()
			return err
		}
	}
	idle := time.AfterFunc(r.s.time.request, cancel)
	body, info, head, err := r.s.api.GetObject(ctx, r.s.bucket, r.s.prefix+r.name, opts)
	if err != nil {
		idle.Stop()
		cancel()
		return err
	}
	idle.Reset(r.s.time.idle)
	if from, _, _ := strings.Cut(head.Get("Content-Range"), "-"); info.Size < 0 || r.at > 0 &&
		from != fmt.Sprintf("bytes %d", r.at) {
		cancel()
		return errors.Join(fmt.Errorf("%w: the answer for %s has no length, or is not the part that was asked for", ErrStore,
			r.name), body.Close())
	}
	if r.etag == "" {
		r.etag, r.size = info.ETag, info.Size
	}
	r.body, r.idle, r.cancel = body, idle, cancel
	return nil
}

func (r *s3Reader) Read(p []byte) (int, error) {
	for r.err == nil {
		if r.at == r.size {
			return 0, io.EOF
		}
		err := error(nil)
		if r.body == nil {
			err = r.open()
		}
		if err == nil {
			var n int
			n, err = r.body.Read(p[:min(int64(len(p)), r.size-r.at)])
			r.idle.Reset(r.s.time.idle)
			r.at += int64(n)
			if n > 0 {
				r.tries = 0
				return n, nil
			}
		}
		if err != nil {
			r.retry(err)
		}
	}
	return 0, r.err
}

// retry decides whether the read goes on.
func (r *s3Reader) retry(err error) {
	r.stop()
	r.tries++
	switch {
	case r.s.ctx.Err() != nil:
		r.err = r.s.ctx.Err()
	case refused(err):
		r.err = fmt.Errorf("%w: %s in %s was replaced while it was read: try again", ErrStore, r.name, r.s)
	case minio.ToErrorResponse(err).Code != "":
		r.err = r.s.explain("read "+r.name, err)
	case r.tries > readTries:
		r.err = fmt.Errorf("%w: %s in %s broke off after %d of %d bytes, %d times: %v", ErrStore, r.name, r.s, r.at, r.size,
			r.tries, err)
	}
}

func (r *s3Reader) stop() {
	if r.body != nil {
		r.idle.Stop()
		r.cancel()
		_ = r.body.Close()
		r.body = nil
	}
}

// Close ends the read, wherever it is.
func (r *s3Reader) Close() error {
	r.stop()
	return nil
}
