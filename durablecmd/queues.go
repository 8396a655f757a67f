package durablecmd

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/durable-worker/durable-worker/durable"
)

// queueList is the value of DURABLE_QUEUES: "default,mail=5".
type queueList struct {
	queues []durable.Queue
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_.:/@-]{1,128}$`)

// UnmarshalText reads the list.
func (l *queueList) UnmarshalText(text []byte) error {
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, most, capped := strings.Cut(strings.TrimSpace(part), "=")
		queue := durable.Queue{Name: name}
		if !queueName.MatchString(name) {
			return fmt.Errorf("%q is not a queue's name", name)
		}
		if seen[name] {
			return fmt.Errorf("queue %s is named twice", name)
		}
		seen[name] = true
		if capped {
			n, err := strconv.Atoi(most)
			if err != nil || n < 1 {
				return fmt.Errorf("queue %s: %q is not a number above 0", name, most)
			}
			queue.Max = n
		}
		l.queues = append(l.queues, queue)
	}
	return nil
}

// String writes the list as UnmarshalText reads it.
func (l queueList) String() string {
	parts := make([]string, len(l.queues))
	for i, q := range l.queues {
		parts[i] = q.Name
		if q.Max > 0 {
			parts[i] += "=" + strconv.Itoa(q.Max)
		}
	}
	return strings.Join(parts, ",")
}
