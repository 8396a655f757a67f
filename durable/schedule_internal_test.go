package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noon is a Thursday.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestSchedule_RefusesTogether(t *testing.T) {
	t.Parallel()
	refused := func(name string, options ...Option) error {
		run, p := NewJob[struct{}]("tick").make(onlySchedule, struct{}{}, options)
		_, err := scheduleOf(name, Every(time.Minute), run, p)
		return err
	}
	err := refused("two words",
		CatchUp("some", -1, 1001), Overlap("never"), Jitter(time.Hour), SpreadStart(2*time.Minute), Blackout(Window{Days: "caturday"}),
		StartAt(noon), EndAt(noon.Add(-1)))
	for _, part := range []string{"two words", `catch-up "some"`, "within -1ns", "latest 1001", `overlap "never"`, "jitter 1h", "spread start 2m",
		"caturday", "not after its start"} {
		require.ErrorContains(t, err, part)
	}
	err = refused("a", After(time.Hour), Retry(Fixed(1)))
	require.ErrorContains(t, err, "After is for one run, not for a schedule")
	require.ErrorContains(t, err, "Retry is for a job, not for a schedule")
	require.ErrorContains(t, NewJob[struct{}]("j", Paused()).fault, "Paused is for a schedule, not for a job")
	err = refused("a", CatchUp(CatchUpAll, 0, 0), Overlap(OverlapSkip))
	require.ErrorContains(t, err, "want overlap wait or allow")
}

func TestNextChunk(t *testing.T) {
	for _, one := range []struct {
		name  string
		chunk int
		took  time.Duration
		want  int
	}{
		{"what was quick is doubled", 250, time.Millisecond, 500},
		{"no more than five hundred", 500, time.Millisecond, 500},
		{"what took its time stays", 350, materializeFor, 350},
		{"what took too long shrinks", 450, materializeFor * 3 / 2, 300},
		{"and by no more than half in one step", 500, time.Minute, 250},
		{"no fewer than fifty", 60, time.Minute, 50},
	} {
		t.Run(one.name, func(t *testing.T) { require.Equal(t, one.want, nextChunk(one.chunk, one.took)) })
	}
}
