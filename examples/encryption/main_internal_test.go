package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

func TestWhatIsStoredCannotBeReadOrSwapped(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Regexp(t, `^\{"key":"k1","data":".*… succeeded: "Dear Ann"
\{"key":"k1".*… dead: decode args: cipher: message authentication failed
\{"key":"k0".*… dead: decode args: key "k0" is not here
\{"key":"k2".*… succeeded: "Dear Bob"
$`, out.String())
}

func TestEveryBitAndEveryPartOfTheBindingCounts(t *testing.T) {
	ring := &keyring{}
	require.NoError(t, ring.add("k1", newKey()))
	require.NoError(t, ring.add("k2", newKey()))
	info := durable.CodecInfo{Job: "letter", Part: durable.ArgsPart, Run: durable.NewRunID()}
	text, err := ring.Encode(info, []byte(`{"a":1}`))
	require.NoError(t, err)
	data, err := ring.Decode(info, text)
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(data))

	job, part, run := info, info, info
	job.Job, part.Part, run.Run = "other", durable.ResultPart, durable.NewRunID()
	for _, other := range []durable.CodecInfo{job, part, run, {}} {
		_, err = ring.Decode(other, text)
		require.Error(t, err)
	}
	var s sealed
	require.NoError(t, json.Unmarshal(text, &s))
	for i := range len(s.Data) * 8 {
		s.Data[i/8] ^= 1 << (i % 8)
		text, _ := json.Marshal(s)
		_, err = ring.Decode(info, text)
		require.Error(t, err, "bit %d", i)
		s.Data[i/8] ^= 1 << (i % 8)
	}
	for n := range s.Data {
		text, _ := json.Marshal(sealed{s.Key, s.Data[:n]})
		_, err = ring.Decode(info, text)
		require.Error(t, err, "%d bytes", n)
	}
	s.Key = "k1"
	text, _ = json.Marshal(s)
	_, err = ring.Decode(info, text)
	require.Error(t, err)
	for _, text := range []string{`{}`, `1`, `{"To":"plain"}`, ``, `{"key":"k2"}`, `{"key":"","data":""}`} {
		_, err = ring.Decode(info, []byte(text))
		require.Error(t, err, text)
	}
}

// The limit that the README names: the binding knows no attempt.
func TestAnOlderTextOfTheSameRunCanBePutBack(t *testing.T) {
	ring := &keyring{}
	require.NoError(t, ring.add("k1", newKey()))
	info := durable.CodecInfo{Job: "letter", Part: durable.ResultPart, Run: durable.NewRunID()}
	older, err := ring.Encode(info, []byte(`1`))
	require.NoError(t, err)
	_, err = ring.Encode(info, []byte(`2`))
	require.NoError(t, err)
	data, err := ring.Decode(info, older)
	require.NoError(t, err)
	require.Equal(t, "1", string(data))
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "older checkpoint or result *of the same run*")
	require.Contains(t, string(text), "2³² ciphertexts")
}
