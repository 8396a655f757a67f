package durablecmd

import (
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// keyFlags are the flags that give a run a key.
type keyFlags struct {
	Unique    *string        `xor:"key" placeholder:"KEY" help:"If an unfinished run of the job has this key, store nothing and print that run's id."`
	UniqueFor *time.Duration `help:"With --unique: hold the key for at least this long after the enqueue."`
	Replace   *string        `xor:"key" placeholder:"KEY" help:"If a pending run of the job has this key, replace its args instead."`
	Debounce  *string        `xor:"key" placeholder:"KEY" help:"Like --replace, and the run is due --quiet after the last enqueue."`
	Quiet     *time.Duration `help:"With --debounce: quiet period before the run is due."`
	AtMost    *time.Duration `help:"With --debounce: maximum delay after the first enqueue."`
}

func (k keyFlags) options() ([]durable.Option, error) {
	switch {
	case k.UniqueFor != nil && k.Unique == nil:
		return nil, usage("--unique-for: want --unique KEY too")
	case k.Debounce == nil && (k.Quiet != nil || k.AtMost != nil):
		return nil, usage("--quiet and --at-most: want --debounce KEY too")
	case k.Debounce != nil && k.Quiet == nil:
		return nil, usage("--debounce: want --quiet too, such as 5s")
	case k.UniqueFor != nil:
		return []durable.Option{durable.UniqueFor(*k.Unique, *k.UniqueFor)}, nil
	case k.Unique != nil:
		return []durable.Option{durable.Unique(*k.Unique)}, nil
	case k.Replace != nil:
		return []durable.Option{durable.Replace(*k.Replace)}, nil
	case k.Debounce != nil:
		var atMost time.Duration
		if k.AtMost != nil {
			atMost = *k.AtMost
		}
		return []durable.Option{durable.Debounce(*k.Debounce, *k.Quiet, atMost)}, nil
	default:
		return nil, nil
	}
}

// done says what became of a run that existed already. A repeat
// of its own enqueue changes nothing.
func (k keyFlags) done(repeat bool) string {
	switch {
	case repeat || k.Replace == nil && k.Debounce == nil:
		return ", nothing was stored"
	default:
		return ", and has been given these args"
	}
}
