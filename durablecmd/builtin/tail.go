package builtin

import "strings"

// maxTail is how much of what a program writes is kept, bytes.
const maxTail = 8 << 10

// tail keeps the end of what is written to it, in bounded memory, and lets the
// rest go: a program that writes much is not held up.
type tail struct {
	kept    []byte
	dropped bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(len(p)-maxTail, 0):]...)
	if over := len(t.kept) - maxTail; over > 0 || len(p) > maxTail {
		t.dropped = true
		t.kept = append(t.kept[:0], t.kept[max(over, 0):]...)
	}
	return len(p), nil
}

// String is what is kept, as text that can be stored.
func (t *tail) String() string {
	text := strings.ReplaceAll(strings.ToValidUTF8(string(t.kept), "\ufffd"), "\x00", "\ufffd")
	if t.dropped {
		return "…" + text
	}
	return text
}
