package consensus

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger gives raft's lines to slog. What raft logs at info is a detail for an operator, so it goes to debug.
type raftLogger struct{ l *slog.Logger }

func (r raftLogger) logf(level slog.Level, format string, v ...any) {
	if ctx := context.Background(); r.l.Enabled(ctx, level) {
		r.l.Log(ctx, level, fmt.Sprintf(format, v...), "from", "raft")
	}
}

func (r raftLogger) log(level slog.Level, v ...any) {
	if ctx := context.Background(); r.l.Enabled(ctx, level) {
		r.l.Log(ctx, level, fmt.Sprint(v...), "from", "raft")
	}
}

func (r raftLogger) Debug(v ...any)              { r.log(slog.LevelDebug, v...) }
func (r raftLogger) Debugf(f string, v ...any)   { r.logf(slog.LevelDebug, f, v...) }
func (r raftLogger) Info(v ...any)               { r.log(slog.LevelDebug, v...) }
func (r raftLogger) Infof(f string, v ...any)    { r.logf(slog.LevelDebug, f, v...) }
func (r raftLogger) Warning(v ...any)            { r.log(slog.LevelWarn, v...) }
func (r raftLogger) Warningf(f string, v ...any) { r.logf(slog.LevelWarn, f, v...) }
func (r raftLogger) Error(v ...any)              { r.log(slog.LevelError, v...) }
func (r raftLogger) Errorf(f string, v ...any)   { r.logf(slog.LevelError, f, v...) }

// Raft calls these for broken invariants only; the loop's hook recovers and calls OnFatal.
func (r raftLogger) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (r raftLogger) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (r raftLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
