package main

import (
	"errors"

	"trireme/internal/ops/demo"
)

// demoCmd is `trireme demo`.
type demoCmd struct {
	demo.Flags `embed:""`
}

// Run starts or ends a demo.
func (c *demoCmd) Run(e *env) error {
	o := c.Options()
	o.Out, o.In = e.progress(c.JSON), e.in
	result, err := c.Do(e.ctx, o)
	if c.JSON && result != nil {
		err = errors.Join(err, printJSON(e.out, result))
	}
	return err
}
