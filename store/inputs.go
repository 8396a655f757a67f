package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// MaxInputs bounds how many inputs one run may be sent. Their values may have MaxStepsSize
// bytes together.
const MaxInputs = 1000

// NewInput is an input to be sent.
type NewInput struct {
	// Run is the run that it is for. If it is the zero value, the input is for the run that
	// holds the unique key Key of the job Job.
	Run      RunID
	Job, Key string

	Name  string
	Value []byte // JSON
	// Digest is of the value before it was sealed, see DigestOf: the same value sent again is
	// no conflict, although it may be sealed in another way.
	Digest string
	// Under is the claim of the run whose handler sends it: while the run is not running under it,
	// nothing is stored and Send returns lease.ErrLost. The zero value: no run's handler sends it.
	Under Holder
	// By is who sends it, if that is a person: the audit log then says so. At most 255 bytes of text.
	By string
}

// SendReceipt is the answer to one input.
type SendReceipt struct {
	Run      RunID // that it was sent to
	Existing bool  // the same value was there already
}

// Sender takes inputs. A Client, a Store, and a store bound to a transaction (Tx) are Senders.
type Sender interface {
	// Send stores an input for a run that has not ended. The first of a name counts: the same
	// value again changes nothing, and another one is ErrConflict; so is one for a run that
	// has ended, or that has given up waiting for this name. A run that does not exist, and a
	// key that no run holds, are ErrNotFound. It waits only for another sender of the same
	// run and name. A run that waits for the input is due as soon as it is released; a store
	// that is not bound to a transaction releases it itself.
	Send(ctx context.Context, input NewInput) (SendReceipt, error)
}

// Releaser makes runs due that wait for something that is there.
type Releaser interface {
	// Release looks at runs that were sent an input, or wait for a run that has ended, since it
	// was called last, and at those that the request names, and makes due now those whose wait
	// is over. It cancels dependents whose conditions can never be met, and the children of
	// cancelled parents. What another transaction holds at this moment is looked at again
	// later. It waits for no lock.
	Release(ctx context.Context, request ReleaseRequest) (ReleaseResult, error)
}

// ReleaseRequest requests that runs are released.
type ReleaseRequest struct {
	Look  []Look // what to look at besides the notices: runs that have just begun to wait
	Limit int    // most notices taken; at least 1
}

// Look names an input that a run has begun to wait for, or the step in which it waits for its
// children.
type Look struct {
	Run  RunID
	Name string
	Kind StepKind // StepInput or StepChildren
}

// ReleaseResult is what a Release call did.
type ReleaseResult struct {
	Taken    int           // notices taken; equal to the limit when there may be more
	Released int           // runs made due
	Ended    int           // runs cancelled, or whose cancellation was requested
	Next     time.Duration // until the next notice is due that is known; negative: none
}

// DigestOf is the digest of an input's name and value by which a repeat is recognised.
func DigestOf(name string, value []byte) string {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write(value)
	return hex.EncodeToString(h.Sum(nil))
}

// SendsInput is the action of a person's Send in the audit log.
const SendsInput = "send_input"

// Detail is what the audit log says of the input: its name and its size, and never its value.
func (n *NewInput) Detail() []byte {
	text, _ := json.Marshal(struct {
		Input string `json:"input"`
		Size  int    `json:"size"`
	}{n.Name, len(n.Value)}) // a text and a number always can be
	return text
}

// Check refuses with ErrInvalid what some engine cannot store.
func (n *NewInput) Check() error {
	var faults []error
	if err := CheckStepName(n.Name); err != nil {
		faults = append(faults, err)
	}
	if (n.Run == uuid.Nil) == (n.Key == "") {
		faults = append(faults, fmt.Errorf("want either a run or the unique key of one"))
	}
	if n.Key != "" {
		if err := CheckName("job", n.Job); err != nil {
			faults = append(faults, err)
		}
	}
	if err := storable.CheckJSON(n.Value, MaxStepSize, MaxJSONDepth); err != nil {
		faults = append(faults, fmt.Errorf("value%w", err))
	}
	if len(n.By) > longestWord || !storable.IsText(n.By) {
		faults = append(faults, fmt.Errorf("sender of %d bytes: want at most %d bytes of text", len(n.By), longestWord))
	}
	return invalid(fmt.Sprintf("input %q", storable.Clip(n.Name, 150)), faults)
}
