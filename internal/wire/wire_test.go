package wire_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/store"
)

func TestAFilterIsReadFromAQueryAndABody(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 8, 0, 0, 123456000, time.UTC)
	id, cursor, parent, source, batch := store.NewRunID(), store.NewRunID(), store.NewRunID(), store.NewRunID(), store.NewRunID()
	want := store.Filter{States: []store.State{store.Dead, store.Cancelled}, Jobs: []string{"a/b", "x&y"}, Queues: []string{"q"}, Tag: "ü=1",
		Key: "k 1", Schedule: "nightly/report", Parent: parent, WaitingOn: source, Batch: batch, Worker: "w@1", Error: "no route", Args: "42 & sons", Metadata: store.Metadata{"tenant": "acme=1", "city": "Köln"},
		IDs: []store.RunID{id}, Since: at, Until: at.Add(time.Hour), EndedSince: at.Add(time.Minute), Before: cursor, Limit: 7}
	query := url.Values{"state": {"dead", "cancelled"}, "job": {"a/b", "x&y"}, "queue": {"q"}, "tag": {"ü=1"}, "key": {"k 1"}, "schedule": {"nightly/report"},
		"parent": {parent.String()}, "waiting_on": {source.String()}, "batch": {batch.String()},
		"worker": {"w@1"}, "error": {"no route"}, "args": {"42 & sons"}, "metadata": {"tenant=acme=1", "city=Köln"}, "id": {id.String()}, "cursor": {cursor.String()}, "limit": {"7"},
		"since": {"2026-11-22T08:00:00.123456Z"}, "until": {"2026-11-22T09:00:00.123456Z"}, "ended_since": {"2026-11-22T08:01:00.123456Z"}}
	p := wire.NewParams(query.Encode(), at)
	p.Only(wire.FilterParams()...)
	require.Equal(t, want, p.Runs())
	require.NoError(t, p.Err())
	require.Len(t, query, len(wire.FilterParams()), "each parameter is tried")

	want.Before, want.Limit = store.RunID{}, 0
	text, err := json.Marshal(wire.FilterOf(want))
	require.NoError(t, err)
	var read wire.Filter
	require.NoError(t, wire.Element(text, "", &read))
	require.Equal(t, want, read.Filter())
}

func TestAFilterHasNoEmptyCondition(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tag", "key", "schedule", "worker", "error"} {
		require.ErrorContains(t, wire.Element([]byte(`{"`+name+`":""}`), "", new(wire.Filter)), "/"+name+": want a text that is not empty")
	}
	for _, query := range []string{"key=", "schedule=", "worker=", "error=", "metadata=", "metadata=tenant", "metadata=a%3D1&metadata=a%3D2", "ended_since="} {
		p := wire.NewParams(query, time.Now())
		p.Runs()
		require.Error(t, p.Err(), query)
	}
	require.ErrorContains(t, wire.Element([]byte(`{"metadata":["a"]}`), "", new(wire.Filter)), "/metadata: want an object with texts")
}

func TestInstantsCountBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{"90s": now.Add(-90 * time.Second), "7d": now.AddDate(0, 0, -7), "2030-01-31T08:00:00+01:00": time.Date(2030, 1, 31, 7, 0, 0, 0, time.UTC)} {
		at, err := wire.Instant(text, now)
		require.NoError(t, err)
		require.True(t, want.Equal(at), text)
	}
	for _, text := range []string{"", "-1h", "1w", "70000d", "yesterday", strings.Repeat("9", 10_000)} {
		_, err := wire.Instant(text, now)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 300)
	}
}

// everything has each kind of member.
type everything struct {
	Text   string          `json:"text"`
	Number *int            `json:"number"`
	State  store.State     `json:"state"`
	At     time.Time       `json:"at"`
	Each   *store.Duration `json:"each"`
	List   []string        `json:"list"`
	Inner  struct {
		On bool `json:"on"`
	} `json:"inner"`
	Pointed *struct {
		On bool `json:"on"`
	} `json:"pointed"`
}

func TestABodyIsReadMemberByMember(t *testing.T) {
	t.Parallel()
	var e everything
	require.NoError(t, wire.Body(strings.NewReader(`{"text":"a","number":7,"state":"dead","at":"2026-11-22T08:00:00Z","each":"1m","list":["x"],"inner":{"on":true},"pointed":{"on":true}}`), &e))
	require.Equal(t, 7, *e.Number)
	require.Equal(t, store.Dead, e.State)
	require.True(t, e.Inner.On && e.Pointed.On)
	require.NoError(t, wire.Body(strings.NewReader(" \n"), &e), "nothing is an empty object")
	require.NoError(t, wire.Body(strings.NewReader(`{"number":null,"list":null,"pointed":null}`), new(everything)))

	err := wire.Body(strings.NewReader(`{"text":1,"number":"x","state":"lost","at":"x","each":"x","list":{},"inner":{"on":1,"off":1},"pointed":[],"x":1,"x":2}`), new(everything))
	require.ErrorIs(t, err, store.ErrInvalid)
	var at []string
	for _, fault := range err.(wire.FaultsError) { //nolint:errorlint // the very error
		at = append(at, fault.Pointer)
	}
	require.Equal(t, []string{"/text", "/number", "/state", "/at", "/each", "/list", "/inner/on", "/inner/off", "/pointed", "/x", "/x"}, at)
	require.Contains(t, err.Error(), "/text: want a text\n")
}

func TestAYearThatNoStoreHasIsNamedAlone(t *testing.T) {
	t.Parallel()
	filter := store.Filter{EndedSince: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}
	_, _, _, err := filter.Range()
	require.EqualError(t, err, "durable: invalid: ended since 12026-01-01 00:00:00 +0000 UTC: want a year from 1970 to 9999")
}

func TestNothingIsReadOutOfNull(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"state":[null]}`: "/state/0: want a", `{"state":["dead",null]}`: "/state/1: want a", `{"job":[null]}`: "/job/0: want a text",
		`{"id":[null]}`: "/id/0: want a text", `{"metadata":{"a/b":null}}`: "/metadata/a~1b: want a text",
	} {
		require.ErrorContains(t, wire.Element([]byte(text), "", new(wire.Filter)), want, text)
	}
	var plan store.Plan
	require.ErrorContains(t, wire.Element([]byte(`{"blackouts":[{"days":"sat"},{"form":"22:00"}]}`), "", &plan), "/blackouts/1/form: there is no such member here")
	require.ErrorContains(t, wire.Element([]byte(`{"blackouts":[{"days":"sat","days":"sun"}]}`), "", &plan), "/blackouts/0/days: it is given twice")
	require.ErrorContains(t, wire.Element([]byte(`{"blackouts":[null]}`), "", &plan), "/blackouts/0: want a JSON object")
	require.ErrorContains(t, wire.Element([]byte(`{"blackouts":"sat"}`), "", &plan), "/blackouts: want a list")
	plan = store.Plan{}
	require.NoError(t, wire.Element([]byte(`{"blackouts":[{"days":"sat"},{"from":"22:00","until":"23:00"}]}`), "", &plan))
	require.Equal(t, []store.Window{{Days: "sat"}, {From: "22:00", Until: "23:00"}}, plan.Blackouts)
	require.NoError(t, wire.Element([]byte(`{"blackouts":null}`), "", &plan))
}
