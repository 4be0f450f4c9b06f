package tpcc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"trireme/lab/child"
)

// order is what the load generator reads from its standard input, answer what it writes.
type order struct {
	Config         Config
	Warmup, Length time.Duration
}

type answer struct {
	Result Result
	Error  string
}

// Generator is the process of RunProcess.
var Generator = child.Role{Name: "trireme-tpcc", Run: func([]string) error { return generate(os.Stdin, os.Stdout) }}

// generate ends early with its input, that is, with the process that started it.
func generate(in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is what counts
		cancel()
	}()
	r, err := Run(ctx, o.Config, o.Warmup, o.Length)
	a := answer{Result: r}
	if err != nil {
		a.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(a)
}

// RunProcess is Run in a process and a session of its own, so that its CPU time, which is returned too, is the load
// generator's alone, and the kernel's autogroup scheduling treats it as any other client.
func RunProcess(ctx context.Context, cfg Config, warmup, length time.Duration) (Result, time.Duration, error) {
	cmd, err := Generator.Command(ctx)
	if err != nil {
		return Result{}, 0, fmt.Errorf("tpcc: %w", err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return Result{}, 0, err
	}
	if err := cmd.Start(); err != nil {
		return Result{}, 0, fmt.Errorf("tpcc: starting the load generator: %w", err)
	}
	encoded := json.NewEncoder(in).Encode(order{cfg, warmup, length})
	if err := cmd.Wait(); err != nil {
		return Result{}, 0, fmt.Errorf("tpcc: the load generator: %w: %s", errors.Join(context.Cause(ctx), encoded, err),
			bytes.TrimSpace(stderr.Bytes()))
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return Result{}, 0, fmt.Errorf("tpcc: the load generator's answer: %w", err)
	}
	if a.Error != "" {
		err = errors.New(a.Error)
	}
	return a.Result, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
