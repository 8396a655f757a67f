// Command encryption hides args and results from readers of the database:
// AES-GCM with named keys, a change of keys while runs wait, and what happens to
// runs that were tampered with or whose key is gone.
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

// keyring is a durable.Codec: it encrypts with one key and decrypts with all.
type keyring struct {
	current string
	keys    map[string]cipher.AEAD
}

// add adds a key of 32 random bytes, and encrypts with it from now on.
func (k *keyring) add(name string, key []byte) error {
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	if k.keys == nil {
		k.keys = map[string]cipher.AEAD{}
	}
	k.current = name
	k.keys[name], err = cipher.NewGCMWithRandomNonce(block)
	return err
}

type sealed struct {
	Key  string `json:"key"`
	Data []byte `json:"data"`
}

// binding is what a ciphertext belongs to; it cannot be moved to anything else.
// An older one of the same run and part can be put back: the README says so.
func binding(key string, info durable.CodecInfo) []byte {
	text, _ := json.Marshal([]string{key, info.Job, string(info.Part), info.Run.String()}) // never fails
	return text
}

// Encode encrypts with the current key.
func (k *keyring) Encode(info durable.CodecInfo, data []byte) ([]byte, error) {
	data = k.keys[k.current].Seal(nil, nil, data, binding(k.current, info)) //nolint:gosec // it makes a nonce by itself
	return json.Marshal(sealed{k.current, data})
}

// Decode decrypts with the key that is named.
func (k *keyring) Decode(info durable.CodecInfo, data []byte) ([]byte, error) {
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil || s.Key == "" {
		return nil, errors.New("not encrypted")
	}
	key, have := k.keys[s.Key]
	if !have {
		return nil, fmt.Errorf("key %q is not here", s.Key)
	}
	return key.Open(nil, nil, s.Data, binding(s.Key, info))
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	store, lost, ring := memory.New(memory.Config{}), &keyring{}, &keyring{}
	once, dead := durable.MaxAttempts(1), durable.DeadOnMisfit()
	job, gone := durable.NewJob[string]("letter", once, dead, durable.WithCodec(ring)), durable.NewJob[string]("letter", once, dead, durable.WithCodec(lost))
	err := errors.Join(lost.add("k0", newKey()), ring.add("k1", newKey())) // of a secret store, really
	runs := []durable.NewRun{job.New("Ann"), job.New("Eve"), gone.New("Zoe")}
	runs[1].Args = runs[0].Args                      // an attacker who can write to the database swaps args
	err = errors.Join(err, ring.add("k2", newKey())) // from now on; k1 still decrypts
	runs = append(runs, job.New("Bob"))
	if _, fault := durable.NewClient(store).Enqueue(ctx, runs...); fault != nil || err != nil {
		return errors.Join(err, fault)
	}
	var ended atomic.Int32
	working, stop := context.WithCancel(ctx)
	w := durable.NewWorker(store, durable.WorkerConfig{Middleware: []durable.Middleware{
		func(ctx context.Context, _ durable.RunInfo, next func(context.Context) error) error {
			if ended.Add(1) == int32(len(runs)) {
				defer stop() // the last run of this example
			}
			return next(ctx)
		},
	}})
	durable.Register(w, job, func(_ context.Context, run *durable.Run[string]) error {
		return run.SetResult("Dear " + run.Args)
	})
	err = w.Run(working)
	for i := range runs {
		record, _ := store.Run(ctx, runs[i].ID)
		text, _ := job.ResultOf(record)
		if record.Error != nil {
			text = []byte(*record.Error)
		}
		fmt.Fprintf(out, "%.40s… %v: %s\n", record.Args, record.State, text)
	}
	return err
}

func newKey() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}
