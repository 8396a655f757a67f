package postgres

import (
	"encoding/hex"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// A payload is the name of the process that sends it, which alone means that
// runs may be due, as it always has. A space and marks of 33 characters may
// follow: a letter for the kind and the run in hexadecimal. Programs that do
// not know a payload take it for "runs may be due".
const (
	markLength   = 33
	marksPerCall = 200 // a payload has to be shorter than 8000 bytes
)

var letters = map[store.SignalKind]byte{ //nolint:gochecknoglobals // a constant table
	store.CancelAsked: 'c', store.RunAwaited: 'w', store.RunEnded: 'e',
}

// payloads writes signals in as few notifications as will do.
func payloads(self string, signals []store.Signal) []string {
	var texts []string
	var marks strings.Builder
	for i, signal := range signals {
		if letter, known := letters[signal.Kind]; known {
			marks.WriteByte(letter)
			marks.WriteString(hex.EncodeToString(signal.Run[:]))
		} else if signal.Kind == store.RunsDue {
			texts = append(texts, self)
		}
		if marks.Len() == marksPerCall*markLength || i == len(signals)-1 && marks.Len() > 0 {
			texts = append(texts, self+" "+marks.String())
			marks.Reset()
		}
	}
	return texts
}

// signals reads a payload; none if it is this process's own.
func signals(self, payload string) []store.Signal {
	sender, marks, marked := strings.Cut(payload, " ")
	if sender == self {
		return nil
	}
	if dues := readDue(marks); len(dues) > 0 {
		return dues
	}
	due := []store.Signal{{Kind: store.RunsDue}}
	if !marked || marks == "" || len(marks)%markLength != 0 {
		return due
	}
	var read []store.Signal
	for ; marks != ""; marks = marks[markLength:] {
		var signal store.Signal
		for kind, letter := range letters {
			if letter == marks[0] {
				signal.Kind = kind
			}
		}
		if _, err := hex.Decode(signal.Run[:], []byte(marks[1:markLength])); err != nil || signal.Kind == 0 {
			return due
		}
		read = append(read, signal)
	}
	return read
}
