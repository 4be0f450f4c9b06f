package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"trireme/internal/ops/backup"
)

// placeFlags say how a backup is reached and read.
type placeFlags struct {
	KeyFile       string `type:"path" placeholder:"FILE" help:"Key file of an encrypted backup (backup new-key), mode 0600. Without it the backup cannot be restored."`
	S3Endpoint    string `name:"s3-endpoint" env:"AWS_ENDPOINT_URL_S3,AWS_ENDPOINT_URL" placeholder:"URL" help:"Service that has the bucket. Default: that of AWS."`
	S3Region      string `name:"s3-region" env:"AWS_REGION,AWS_DEFAULT_REGION" placeholder:"NAME" help:"Region of the bucket. Default: us-east-1."`
	S3PathStyle   bool   `name:"s3-path-style" help:"The bucket is part of the path, not of the host name, as most services other than AWS want it."`
	S3CA          string `name:"s3-ca" env:"AWS_CA_BUNDLE" placeholder:"FILE" help:"Certificates that the service is trusted by, instead of the system's."`
	S3Credentials string `name:"s3-credentials" env:"AWS_SHARED_CREDENTIALS_FILE" placeholder:"FILE" help:"Credentials, mode 0600, in the form of ~/.aws/credentials (profile: $$AWS_PROFILE). Default: $$AWS_ACCESS_KEY_ID and $$AWS_SECRET_ACCESS_KEY, then ~/.aws/credentials."`
}

func (f *placeFlags) isBucket(place string) bool { return strings.HasPrefix(place, backup.S3Scheme) }

// open opens a backup that is there.
func (f *placeFlags) open(e *env, place string) (backup.Place, error) {
	return f.openWith(e.ctx, place, backup.OpenDir,
		func(format string, args ...any) { fmt.Fprintf(e.errOut, format+"\n", args...) })
}

// openWith opens a directory by backup.OpenDir or backup.NewDir, or a bucket. A key that is wrong is an error before
// anything else.
func (f *placeFlags) openWith(ctx context.Context, place string, open func(string) (*backup.Dir, error),
	say func(string, ...any)) (p backup.Place, err error) {
	var key backup.Key
	if f.KeyFile != "" {
		if key, err = backup.ReadKeyFile(f.KeyFile); err != nil {
			return nil, err
		}
	}
	if f.isBucket(place) {
		p, err = backup.OpenS3(ctx, backup.S3Options{URL: place, Endpoint: f.S3Endpoint, Region: f.S3Region,
			PathStyle: f.S3PathStyle, CAFile: f.S3CA, Credentials: f.S3Credentials, Say: say})
	} else {
		p, err = open(kong.ExpandPath(place))
	}
	if err != nil {
		return nil, err
	}
	p.Encrypt(key)
	return p, nil
}
