package store

import (
	"context"
	"time"
)

// MaxNoteSize bounds the note of a progress, in bytes.
const MaxNoteSize = 1 << 10

// Progress is how far a run says it has come.
type Progress struct {
	Fraction float64   `json:"fraction"` // 0 to 1, kept to four decimals; 0 where only a note was reported
	Note     string    `json:"note"`
	At       time.Time `json:"at"` // of the last report, a checkpoint included
}

// Report is what a running handler says of itself. What is nil is left as it
// is stored.
type Report struct {
	Fraction   *float64 // 0 to 1
	Note       *string  // valid UTF-8 without NUL
	Checkpoint []byte   // JSON
}

// Reporter keeps what running handlers say of themselves. It outlives the
// attempt.
type Reporter interface {
	// Report stores a report, unless the run is no longer running under the
	// holder's claim: then nothing is stored and the error is lease.ErrLost. It
	// returns ErrConflict, and stores nothing, when another transaction, such as
	// the holder's own, keeps the run locked.
	Report(ctx context.Context, holder Holder, report Report) error
	// Checkpoint returns the run's last checkpoint, or nil.
	Checkpoint(ctx context.Context, id RunID) ([]byte, error)
}
