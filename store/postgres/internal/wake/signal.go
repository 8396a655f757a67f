package wake

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// A payload begins with the name of the process that sends it. On its own the name means
// that runs may be due. A space and marks of 33 characters may follow: a letter for the kind
// of signal and the run in hexadecimal. A program that does not know the form of a payload
// reads it as "runs may be due".
const (
	markLength   = 33
	marksPerCall = 200 // a payload has to be shorter than 8000 bytes
)

var letters = map[store.SignalKind]byte{ //nolint:gochecknoglobals // a constant table
	store.CancelsRequested: 'c', store.RunAwaited: 'w', store.RunEnded: 'e', store.NoticesLeft: 'n',
}

// payloads encodes signals in as few payloads as possible.
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

// signals decodes a payload; it returns none if self has sent it.
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

// newDraw draws the order of the workers of a wake-up.
func newDraw() uint32 { return max(rand.Uint32(), 1) }

const (
	dueLetter    = 'd'
	duesPerCall  = 120 // a payload has to be shorter than 8000 bytes
	fieldsOfDue  = 4   // and one more, kindMixed or kindLimited, where some of the runs have limits
	kindMixed    = 1   // some runs have none; of a program that does not tell them apart: perhaps
	kindLimited  = 2
	fieldsOfHead = 4
	numeralsBase = 36
)

// duePayloads encodes wake-ups in as few payloads as possible. Those in one payload share its
// head:
//
//	SELF d<draw>,<passed>,<every>,<for>;<lane>,<names>,<runs>,<in>[,<kind>];…
//
// every, for and in are milliseconds.
//
// A program that does not know the form reads it as "runs may be due".
func duePayloads(self string, all []store.Due) []string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b store.Due) int {
		return cmp.Or(cmp.Compare(a.Draw, b.Draw), cmp.Compare(a.Passed, b.Passed), cmp.Compare(a.For, b.For))
	})
	alike := func(a, b *store.Due) bool {
		return a.Draw == b.Draw && a.Passed == b.Passed && a.Every == b.Every && a.For == b.For
	}
	var texts []string
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && end-start < duesPerCall && alike(&all[start], &all[end]) {
			end++
		}
		texts = append(texts, duePayload(self, all[start:end]))
		start = end
	}
	return texts
}

// duePayload encodes wake-ups that share a head.
func duePayload(self string, all []store.Due) string {
	text := append([]byte(self), ' ', dueLetter)
	number := func(before byte, n uint64) {
		if before != 0 {
			text = append(text, before)
		}
		text = strconv.AppendUint(text, n, numeralsBase)
	}
	number(0, uint64(all[0].Draw))
	number(',', uint64(max(all[0].Passed, 0)))
	for _, d := range [...]time.Duration{all[0].Every, all[0].For} {
		number(',', uint64(max(d.Milliseconds(), 0)))
	}
	for _, due := range all {
		number(';', uint64(max(due.Lane, 0)))
		number(',', due.Names)
		number(',', uint64(max(due.Runs, 0)))
		number(',', uint64(max(due.In.Milliseconds(), 0)))
		switch {
		case due.Mixed:
			number(',', kindMixed)
		case due.Limited:
			number(',', kindLimited)
		}
	}
	if (len(text)-len(self)-1)%markLength == 0 {
		text = append(text, ';') // else it could be taken for marks
	}
	return string(text)
}

// readDue decodes what follows the sender in a payload; nil: it has another form.
func readDue(text string) (signals []store.Signal) {
	if text == "" || text[0] != dueLetter {
		return nil
	}
	parts := strings.Split(strings.TrimSuffix(text[1:], ";"), ";")
	head, ok := numerals(parts[0])
	if !ok || len(head) != fieldsOfHead {
		return nil
	}
	for _, part := range parts[1:] {
		fields, ok := numerals(part)
		if !ok || len(fields) != fieldsOfDue && len(fields) != fieldsOfDue+1 {
			return nil
		}
		signals = append(signals, store.Signal{Kind: store.RunsDue, Due: store.Due{
			Lane: store.LaneID(fields[0]), Names: fields[1], Runs: int(conn.Small(int(min(fields[2], 1<<31)))), //nolint:gosec // bounded
			In: fromMillis(fields[3]), Draw: uint32(head[0]), Passed: int(min(head[1], 1<<20)), //nolint:gosec // likewise
			Every: fromMillis(head[2]), For: fromMillis(head[3]),
			Limited: len(fields) > fieldsOfDue, Mixed: len(fields) > fieldsOfDue && fields[fieldsOfDue] != kindLimited,
		}})
	}
	return signals
}

func fromMillis(n uint64) time.Duration { return time.Duration(min(n, 1<<32)) * time.Millisecond }

func numerals(text string) (numbers []uint64, ok bool) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(field, numeralsBase, 64)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
