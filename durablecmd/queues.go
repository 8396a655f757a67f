package durablecmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// queueList is the value of DURABLE_QUEUES: "default,mail=5".
type queueList struct {
	queues []durable.Queue
}

// UnmarshalText reads the list.
func (l *queueList) UnmarshalText(text []byte) error {
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, most, capped := strings.Cut(strings.TrimSpace(part), "=")
		queue := durable.Queue{Name: name}
		if store.CheckName("queue", name) != nil {
			return fmt.Errorf("%q is not the name of a queue", name)
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
