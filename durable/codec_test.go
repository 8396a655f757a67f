package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// sealing is a codec that hides nothing but is as strict as one that does: each
// encoding differs, and decoding wants the same info and a key that it has.
type sealing struct {
	mu    sync.Mutex
	count int
	keys  map[string]bool
	key   string
}

type sealed struct {
	Key, Info, Data string
	N               int
}

func (c *sealing) Encode(info durable.CodecInfo, data []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return json.Marshal(sealed{Key: c.key, Info: fmt.Sprint(info), Data: strings.ToUpper(fmt.Sprintf("%x", data)), N: c.count})
}

func (c *sealing) Decode(info durable.CodecInfo, data []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, errors.New("not sealed")
	}
	if !c.keys[s.Key] {
		return nil, fmt.Errorf("no key %q", s.Key)
	}
	if s.Info != fmt.Sprint(info) {
		return nil, errors.New("sealed for something else")
	}
	var plain []byte
	_, err := fmt.Sscanf(s.Data, "%x", &plain)
	return plain, err
}

func (c *sealing) have(current string, keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key, c.keys = current, map[string]bool{}
	for _, key := range keys {
		c.keys[key] = true
	}
}

func newSealing() *sealing {
	c := &sealing{}
	c.have("k1", "k1")
	return c
}

func TestCodec_AppliesToEveryEnqueuer(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.WithCodec(newSealing()), durable.Alias("post"))
		before := durable.NewJob[letter]("post", durable.WithCodec(newSealing()))
		var got []string
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			got = append(got, run.Args.To)
			return run.SetResult(map[string]string{"sent": run.Args.To})
		})
		durable.AddSchedule(w, "daily", job, letter{To: "by schedule"}, durable.Once(time.Now().Add(time.Minute)))
		stop := s.begin(w)
		client, err := job.Enqueue(t.Context(), s.client, letter{To: "by client"})
		require.NoError(t, err)
		_, err = job.Enqueue(t.Context(), s.store, letter{To: "by store"})
		require.NoError(t, err)
		alias := s.enqueue(before.New(letter{To: "by alias"}))
		s.pass(2 * time.Minute)
		require.ElementsMatch(t, []string{"by client", "by store", "by alias", "by schedule"}, got)

		page, err := s.store.Runs(t.Context(), durable.Filter{})
		require.NoError(t, err)
		require.Len(t, page.Runs, 4)
		for _, r := range page.Runs {
			require.Equal(t, durable.Succeeded, r.State)
			require.NotContains(t, string(r.Args)+string(r.Result), "by ")
			args, err := job.ArgsOf(r)
			require.NoError(t, err)
			result, err := job.ResultOf(r)
			require.NoError(t, err)
			require.JSONEq(t, fmt.Sprintf(`{"sent":%q}`, args.To), string(result))
		}
		_, err = before.ArgsOf(s.record(client.ID))
		require.ErrorIs(t, err, durable.ErrInvalid)
		args, err := before.ArgsOf(s.record(alias))
		require.NoError(t, err)
		require.Equal(t, "by alias", args.To)
		require.NoError(t, stop())
	})
}

func TestCodec_RepeatedDeclarationLeavesAScheduleAlone(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		declare := func(options ...durable.Option) store.ScheduleRecord {
			job := durable.NewJob[letter]("mail", options...)
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
			durable.AddSchedule(w, "daily", job, letter{To: "ann"}, durable.Every(24*time.Hour))
			stop := s.begin(w)
			s.pass(time.Second)
			require.NoError(t, stop())
			schedules, err := s.store.ListSchedules(t.Context())
			require.NoError(t, err)
			return schedules[0]
		}
		plain := declare()
		codec := durable.WithCodec(newSealing()) // no two of its encodings are alike
		first, again := declare(codec), declare(codec)
		require.Contains(t, string(plain.Args), "ann")
		require.NotContains(t, string(first.Args), "ann", "a job that is given a codec has its schedules stored again")
		require.Equal(t, first.Generation, again.Generation)
		require.Equal(t, first.Args, again.Args)
	})
}

func TestCodec_WhatCannotBeDecodedFailsTheAttempt(t *testing.T) {
	cases := []struct {
		name   string
		tamper func(run *durable.NewRun, other durable.NewRun)
		text   string
	}{
		{"the args of another run", func(run *durable.NewRun, other durable.NewRun) { run.Args = other.Args }, "sealed for something else"},
		{"the args of another run, marked as shared", func(run *durable.NewRun, other durable.NewRun) {
			run.Args = []byte(`{"durable:shared":` + string(other.Args) + `}`)
		}, "sealed for something else"},
		{"args that were not encoded", func(run *durable.NewRun, _ durable.NewRun) { run.Args = []byte(`{"to":"mallory"}`) }, `no key ""`},
		{"a key that is lost", func(run *durable.NewRun, _ durable.NewRun) {
			run.Args = bytes.Replace(run.Args, []byte("k1"), []byte("k0"), 1)
		}, `no key "k0"`},
		{"what is encoded does not fit", func(run *durable.NewRun, _ durable.NewRun) {
			*run = wrongType(run.ID)
		}, `decode args: field "to" holds a number, want string`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.WithCodec(newSealing()), durable.Retry(durable.Fixed(time.Second)), durable.DeadOnMisfit(), durable.RetryArgs())
				w := s.worker(durable.WorkerConfig{})
				durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
					if run.Args.To != "good" {
						t.Errorf("executed with %+v", run.Args)
					}
					return nil
				})
				stop := s.begin(w)
				run, good := job.New(letter{To: "bad"}), job.New(letter{To: "good"})
				c.tamper(&run, good)
				id, ok := s.enqueue(run), s.enqueue(good)
				s.pass(10 * time.Second)
				r := s.record(id)
				require.Equal(t, durable.Dead, r.State)
				require.Equal(t, 3, r.Attempt, "retried by policy")
				require.Contains(t, *r.Error, c.text)
				require.NotContains(t, *r.Error, "12345")
				require.Equal(t, durable.Succeeded, s.record(ok).State)
				_, err := job.ArgsOf(r)
				require.ErrorContains(t, err, c.text)
				require.NoError(t, stop())
			})
		})
	}
}

// wrongType is a run of the same job name, made by a program that has other args.
func wrongType(id durable.RunID) durable.NewRun {
	type letter struct {
		To int `json:"to"`
	}
	run := durable.NewJob[letter]("mail", durable.WithCodec(&rebound{newSealing(), id})).New(letter{To: 12345})
	run.ID = id
	return run
}

// rebound encodes for a run of one's choice.
type rebound struct {
	*sealing
	id durable.RunID
}

func (c *rebound) Encode(info durable.CodecInfo, data []byte) ([]byte, error) {
	info.Run = c.id
	return c.sealing.Encode(info, data)
}

func TestCodec_LostKeyThatComesBack(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		codec := newSealing()
		job := durable.NewJob[letter]("mail", durable.WithCodec(codec), durable.Retry(durable.Fixed(time.Minute)))
		w := s.worker(durable.WorkerConfig{})
		var got atomic.Value
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error { got.Store(run.Args.To); return nil })
		id := s.enqueue(job.New(letter{To: "ann"}))
		codec.have("k2", "k2")
		stop := s.begin(w)
		s.pass(time.Second)
		require.Equal(t, durable.Pending, s.record(id).State)
		codec.have("k2", "k2", "k1")
		s.pass(2 * time.Minute)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.Equal(t, "ann", got.Load())
		require.NoError(t, stop())
	})
}

// oddCodec encodes into what the test says, or panics.
type oddCodec struct{ text string }

func (c oddCodec) Encode(durable.CodecInfo, []byte) ([]byte, error) {
	if c.text == "fail" {
		return nil, errBoom
	}
	return []byte(c.text), nil
}

func (c oddCodec) Decode(durable.CodecInfo, []byte) ([]byte, error) { panic("decode") }

func TestCodec_WhatCannotBeStoredIsRefused(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		for text, want := range map[string]string{
			"not json":    "encoded args: not valid JSON",
			"":            "encoded args: not valid JSON",
			"\"\\u0000\"": "encoded args: holds the character NUL",
			"\"" + strings.Repeat("x", store.MaxArgsSize) + "\"": "encoded args: 262146 bytes",
			"fail":                         "encode args: boom",
			`{"durable:shared": 1}`:        "the codec's output must not be an object",
			strings.Repeat("[", 200) + "1": "nested deeper",
		} {
			job := durable.NewJob[letter]("mail", durable.WithCodec(oddCodec{text}))
			_, err := job.Enqueue(t.Context(), s.client, letter{})
			require.ErrorIs(t, err, durable.ErrInvalid)
			require.ErrorContains(t, err, want)
		}
		_, err := durable.NewJob[letter]("mail", durable.WithCodec(newSealing())).Enqueue(t.Context(), s.client, letter{To: "a\x00b"})
		require.ErrorContains(t, err, "args.to: holds the character NUL", "what is encoded is as strict as what is not")
		_, err = durable.NewJob[letter]("mail", durable.WithCodec(nil)).Enqueue(t.Context(), s.client, letter{})
		require.ErrorContains(t, err, "an option is the zero value, or WithCodec was given a nil codec")
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Zero(t, counts[durable.Pending])
	})
}

func TestCodec_PanicFailsTheAttempt(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.WithCodec(oddCodec{"1"}), durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		require.Equal(t, durable.Dead, s.record(id).State)
		require.Contains(t, *s.record(id).Error, "panic: decode")
		require.NoError(t, stop())
	})
}
