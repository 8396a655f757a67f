package operate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// TestWhatNeedsAttentionIsBounded has more of each kind than anybody reads.
func TestWhatNeedsAttentionIsBounded(t *testing.T) {
	t.Parallel()
	now, fault := time.Now(), "no such zone"
	long := now.Add(-time.Hour)
	facts := operate.AttentionFacts{Survey: store.Survey{At: now}, Workers: []store.WorkerInfo{{State: store.Working, Presence: store.Presence{More: true}}}}
	for i := range 500 {
		facts.Schedules = append(facts.Schedules, store.ScheduleRecord{Name: fmt.Sprintf("s-%03d", i), Fault: &fault})
		facts.Limits = append(facts.Limits, store.LimitInfo{Limit: store.Limit{Name: fmt.Sprintf("l-%03d", i), Max: 1}, Waiting: store.Count{N: 1}, OldestDue: &long})
		facts.Survey.Lanes = append(facts.Survey.Lanes, store.LaneInfo{Queue: fmt.Sprintf("q-%03d", i), Job: "mail", Due: store.Count{N: 1}, Pending: store.Count{N: 1}, OldestDue: &long})
	}
	count := map[operate.AttentionKind]int{}
	var more []string
	for _, item := range operate.Attend(facts) {
		if count[item.Kind]++; item.Subject == "" {
			more = append(more, item.Text)
		}
	}
	require.Equal(t, map[operate.AttentionKind]int{operate.AttentionScheduleFault: 101, operate.AttentionLimitFull: 101, operate.AttentionOverdue: 101}, count)
	require.Equal(t, []string{
		"400 more limits need attention for the same reason (limit full)",
		"400 more queues need attention for the same reason (overdue)",
		"400 more schedules need attention for the same reason (schedule fault)",
	}, more)
}
