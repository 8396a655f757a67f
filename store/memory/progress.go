package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Report stores what a running handler says of itself.
func (s *Store) Report(ctx context.Context, holder store.Holder, report store.Report) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdict(holder.Run, holder.Claim) != store.Applied {
		return fmt.Errorf("report: run %s: %w", holder.Run, lease.ErrLost)
	}
	r := s.runs[holder.Run]
	if report.Checkpoint != nil {
		r.checkpoint = bytes.Clone(report.Checkpoint)
	}
	var p store.Progress
	if r.progress != nil {
		p = *r.progress
	}
	if report.Fraction != nil {
		p.Fraction = *report.Fraction
	}
	if report.Note != nil {
		p.Note = *report.Note
	}
	if p.At = s.now(); report.Fraction != nil || report.Note != nil || r.progress != nil {
		r.progress = &p
	}
	return nil
}

// Checkpoint returns the run's last checkpoint, or nil.
func (s *Store) Checkpoint(ctx context.Context, id store.RunID) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, found := s.runs[id]; found {
		return bytes.Clone(r.checkpoint), nil
	}
	return nil, nil
}

func copiedProgress(p *store.Progress) *store.Progress {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
