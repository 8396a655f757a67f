package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func limitOf(kind store.LimitKind) store.Limit {
	l := store.Limit{Name: "GitHub", Kind: kind, Max: 20}
	switch kind {
	case store.LimitFixedWindow:
		l.Period = time.Hour
	case store.LimitSlidingWindow:
		l.Period, l.Buckets = time.Hour, 60
	case store.LimitTokenBucket:
		l.Period, l.Burst = time.Second, 10
	case store.LimitDynamicWindow:
		l.Period, l.Buckets, l.Least, l.Most = time.Hour, 60, 2, 20
	}
	return l
}

func TestLimitIsCheckedAsAWhole(t *testing.T) {
	for kind := store.LimitSemaphore; kind <= store.LimitDynamicWindow; kind++ {
		require.NoError(t, store.CheckLimit(limitOf(kind)), kind)
	}
	for _, row := range []struct {
		kind   store.LimitKind
		change func(l *store.Limit)
		fault  string
	}{
		{1, func(l *store.Limit) { l.Name = "" }, "limit name"},
		{1, func(l *store.Limit) { l.Name = strings.Repeat("a", 101) }, "want at most 100 bytes"},
		{1, func(l *store.Limit) { l.Name = "a=b" }, "letters, digits"},
		{1, func(l *store.Limit) { l.Name = "Job:sync" }, "are reserved for caps"},
		{2, func(l *store.Limit) { l.Name = store.JobCap("sync") }, "a cap of a job or a queue is a semaphore"},
		{1, func(l *store.Limit) { l.Kind = 9 }, "limit kind(9) is unknown"},
		{1, func(l *store.Limit) { l.Max = 0 }, "max 0: want 1 to 1000000"},
		{1, func(l *store.Limit) { l.Max = 1_000_001 }, "max 1000001: want 1 to 1000000, or 0 by an operator"},
		{1, func(l *store.Limit) { l.Max = -1 }, "max -1"},
		{1, func(l *store.Limit) { l.Period = time.Second }, "a semaphore has no period"},
		{2, func(l *store.Limit) { l.Period = 999 * time.Millisecond }, "want 1s to 8760h0m0s"},
		{2, func(l *store.Limit) { l.Period = 366 * 24 * time.Hour }, "want 1s to 8760h0m0s"},
		{2, func(l *store.Limit) { l.Period = time.Second + 1 }, "want whole microseconds"},
		{2, func(l *store.Limit) { l.Buckets = 3 }, "a fixed-window has no buckets"},
		{3, func(l *store.Limit) { l.Buckets = 0 }, "0 buckets: want 1 to 1000"},
		{3, func(l *store.Limit) { l.Buckets = 1001 }, "1001 buckets: want 1 to 1000"},
		{3, func(l *store.Limit) { l.Period = 59 * time.Second }, "60 buckets in 59s: each has to be 1s or longer"},
		{1, func(l *store.Limit) { l.Burst = 3 }, "a semaphore has no burst"},
		{4, func(l *store.Limit) { l.Burst = 0 }, "burst 0: want 1 to 1000000"},
		{4, func(l *store.Limit) { l.Max, l.Period, l.Burst = 1, 365*24*time.Hour, 1_000_000 }, "filling it would take more than"},
		{1, func(l *store.Limit) { l.Most = 3 }, "a semaphore has no shares per key"},
		{5, func(l *store.Limit) { l.Least = 0 }, "0 to 20 for each key"},
		{5, func(l *store.Limit) { l.Least = 21 }, "21 to 20 for each key"},
		{5, func(l *store.Limit) { l.Most = 21 }, "most 21 for each key: want at most the max, 20"},
		{1, func(l *store.Limit) { l.WhenFull = 9 }, "limit action(9) is unknown"},
		{1, func(l *store.Limit) { l.WhenFull = store.FullRetry }, "want a time to retry after"},
		{1, func(l *store.Limit) { l.WhenFull, l.RetryAfter = store.FullRetry, time.Millisecond }, "retry after 1ms: want 1s"},
		{1, func(l *store.Limit) { l.WhenFull, l.RetryAfter = store.FullDrop, time.Minute }, "retry after 1m0s does not go with drop"},
		{2, func(l *store.Limit) { l.WhenFull = store.FullCancelOldest }, "cancel-oldest needs a semaphore"},
		{1, func(l *store.Limit) { l.State = 7 }, "limit state(7) is unknown"},
	} {
		l := limitOf(row.kind)
		row.change(&l)
		err := store.CheckLimit(l)
		require.ErrorIs(t, err, store.ErrInvalid, row.fault)
		require.ErrorContains(t, err, row.fault)
	}
	zero := limitOf(store.LimitDynamicWindow)
	zero.Max = 0
	require.NoError(t, store.CheckLimitChange(zero), "an operator may stop everything")
}

func TestCapsOfJobsAndQueuesHaveNamesOfTheirOwn(t *testing.T) {
	longest := strings.Repeat("J", store.MaxNameLength)
	for _, name := range []string{store.JobCap(longest), store.QueueCap(longest)} {
		require.NoError(t, store.CheckLimit(store.Limit{Name: name, Kind: store.LimitSemaphore, Max: 1}))
		require.Equal(t, name, store.LimitName(name), "jobs and queues differ by case")
	}
	require.Error(t, store.CheckLimitName(store.JobCap("")))
	require.Equal(t, "github", store.LimitName("GitHub"))
}

func TestHashOfALimitIsWhatTheCodeDeclares(t *testing.T) {
	l, other := limitOf(store.LimitTokenBucket), limitOf(store.LimitTokenBucket)
	other.Name, other.ID, other.State, other.WhenFull = "github", 7, store.LimitOff, store.FullWait
	require.Equal(t, l.Hash(), other.Hash())
	other.Burst++
	require.NotEqual(t, l.Hash(), other.Hash())
}

func TestUsesOfARunAreChecked(t *testing.T) {
	good := store.LimitUse{Limit: "tenant", Key: "acme"}
	require.NoError(t, store.CheckLimitUses([]store.LimitUse{good, {Limit: "tenant", Key: "other"}, {Limit: "GitHub", Weight: 3, Until: store.UntilFinished}}))
	owned := store.LimitUse{Limit: "tenant", Mode: store.LimitAcquire, Owner: "batch", OwnedFor: time.Hour}
	require.NoError(t, store.CheckLimitUses([]store.LimitUse{owned}))
	for fault, uses := range map[string][]store.LimitUse{
		"9 limits: want at most 8":                   make([]store.LimitUse, 9),
		`limit "TENANT" with key "ACME" is given tw`: {good, {Limit: "TENANT", Key: "ACME"}},
		"want at most 255 bytes":                     {{Limit: "a", Key: strings.Repeat("k", 256)}},
		"without control characters":                 {{Limit: "a", Key: "\x00"}},
		"weight -1: want 1 to 1000000":               {{Limit: "a", Weight: -1}},
		"limit action(9) is unknown":                 {{Limit: "a", WhenFull: 9}},
		"does not go with drop":                      {{Limit: "a", WhenFull: store.FullDrop, RetryAfter: time.Minute}},
		"an owner goes with the modes":               {{Limit: "a", Owner: "batch"}},
		`owner ""`:                                   {{Limit: "a", Mode: store.LimitRelease}},
		"owned for 0s: want 1s":                      {{Limit: "a", Mode: store.LimitAcquire, Owner: "batch"}},
		"goes with the mode acquire":                 {{Limit: "a", Mode: store.LimitRelease, Owner: "batch", OwnedFor: time.Hour}},
		"when it expires or is given back":           {{Limit: "a", Mode: store.LimitAcquire, Owner: "batch", OwnedFor: time.Hour, Until: store.UntilFinished}},
		"want settled, finished or":                  {{Limit: "a", Until: store.UntilExpires}},
		"limit mode(5) is unknown":                   {{Limit: "a", Mode: 5}},
		"limit name":                                 {{}},
	} {
		require.ErrorContains(t, store.CheckLimitUses(uses), fault)
	}
}

func TestUseHasToFitItsLimit(t *testing.T) {
	for _, row := range []struct {
		kind  store.LimitKind
		use   store.LimitUse
		fault string
	}{
		{1, store.LimitUse{Weight: 20, Until: store.UntilFinished}, ""},
		{1, store.LimitUse{Weight: 21}, "weight 21: want at most 20"},
		{4, store.LimitUse{Weight: 11}, "weight 11: want at most 10"},
		{5, store.LimitUse{Key: "a", Weight: 20}, ""},
		{5, store.LimitUse{}, "want a key"},
		{2, store.LimitUse{Until: store.UntilFinished}, "has no permits"},
		{3, store.LimitUse{Mode: store.LimitRelease, Owner: "a"}, "has no permits"},
		{4, store.LimitUse{WhenFull: store.FullCancelOldest}, "needs a semaphore"},
		{1, store.LimitUse{WhenFull: store.FullRetry}, "want a time to retry after"},
	} {
		l := limitOf(row.kind)
		if err := l.CheckUse(&row.use); row.fault == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, row.fault)
		}
	}
	stopped := limitOf(store.LimitSemaphore)
	stopped.Max = 0
	require.NoError(t, stopped.CheckUse(&store.LimitUse{Weight: 5}), "it waits until the max is raised")
}

func TestUseIsReadAsItIsWritten(t *testing.T) {
	for text, use := range map[string]store.LimitUse{
		"tenant=acme":                  {Limit: "tenant", Key: "acme"},
		"github*2":                     {Limit: "github", Weight: 2},
		"mutex!finished!drop=tenant:e": {Limit: "mutex", Key: "tenant:e", Until: store.UntilFinished, WhenFull: store.FullDrop},
		"m*3!finished-or-revived!retry:2m0s=a=b*4!x": {Limit: "m", Key: "a=b*4!x", Weight: 3, Until: store.UntilFinishedOrRevived, WhenFull: store.FullRetry, RetryAfter: 2 * time.Minute},
		"m!acquire:6h0m0s:batch+%211%3A=k":           {Limit: "m", Key: "k", Until: store.UntilExpires, Mode: store.LimitAcquire, Owner: "batch !1:", OwnedFor: 6 * time.Hour},
		"m!release:b%3D":                             {Limit: "m", Mode: store.LimitRelease, Owner: "b="},
	} {
		require.Equal(t, text, use.String())
		read, err := store.ParseLimitUse(text)
		require.NoError(t, err)
		require.Equal(t, use, read)
	}
	for text, fault := range map[string]string{
		"a*x": `weight "x": want a whole number of 1 or more`, "a*0": "weight", "a!sometimes": `"sometimes" is not a term of a limit`,
		"a!retry:x": "invalid duration", "a!acquire:b": "invalid duration", "a!release:%": "invalid URL escape",
	} {
		_, err := store.ParseLimitUse(text)
		require.ErrorContains(t, err, fault)
	}
}

// FuzzLimitUse: what is read and found good is written as it was meant.
func FuzzLimitUse(f *testing.F) {
	for _, seed := range []string{"a=b", "a*2!finished!retry:1m=c", "a!acquire:1h:x=y", "a!release:x", "a!settled!default"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		use, err := store.ParseLimitUse(text)
		if err != nil || store.CheckLimitUses([]store.LimitUse{use}) != nil {
			return
		}
		again, err := store.ParseLimitUse(use.String())
		require.NoError(t, err)
		use.Weight, again.Weight = use.Places(), again.Places()
		use.Until, again.Until = use.Lasting(), again.Lasting()
		require.Equal(t, use, again)
	})
}

func TestWordsOfLimitsAreReadAsTheyAreWritten(t *testing.T) {
	kind, action, state, until := store.LimitTokenBucket, store.FullCancelOldest, store.LimitDraining, store.UntilFinished
	text, err := kind.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "token-bucket", string(text))
	require.NoError(t, new(store.LimitKind).UnmarshalText(text))
	require.ErrorContains(t, new(store.LimitKind).UnmarshalText([]byte("leaky")),
		`"leaky" is not a kind of limit: want dynamic-window, fixed-window, semaphore, sliding-window, token-bucket`)
	text, err = action.MarshalText()
	require.NoError(t, err)
	require.NoError(t, new(store.LimitAction).UnmarshalText(text))
	text, err = state.MarshalText()
	require.NoError(t, err)
	require.NoError(t, new(store.LimitState).UnmarshalText(text))
	require.ErrorContains(t, new(store.LimitState).UnmarshalText([]byte("on")), `"on" is not a state of a limit`)
	text, err = until.MarshalText()
	require.NoError(t, err)
	require.NoError(t, new(store.LimitUntil).UnmarshalText(text))
	require.Equal(t, "limit until(1)", store.LimitUntil(1).String())
	require.Equal(t, "acquire", store.LimitAcquire.String())
}
