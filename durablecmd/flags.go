package durablecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// errEmptyFlag refuses a flag that was given an empty value. Left to mean "any",
// a variable that a shell script forgot to set would make a bulk command change
// everything there is.
var errEmptyFlag = errors.New("must not be empty: omit the flag, or give it a value")

// word is the value of a flag that must say something when it is given.
type word string

// Decode reads the value.
func (w *word) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("text", &text); err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return errEmptyFlag
	}
	*w = word(text)
	return nil
}

const wantNumber = "want a whole number of at most 64 bits, such as 10"

// values replace how the parser reads numbers and durations. They accept the same, but say in
// plain words what is missing or wrong.
func values() []kong.Option {
	return []kong.Option{
		valueOf(wantNumber, func(text string) (int, error) {
			n, err := strconv.ParseInt(text, 0, strconv.IntSize)
			return int(n), err
		}),
		valueOf(wantNumber, func(text string) (int64, error) { return strconv.ParseInt(text, 0, 64) }),
		valueOf("want a duration, such as 90s, 10m or 48h", time.ParseDuration),
	}
}

// valueOf reads flags of type T, and refuses what read does not accept with the words of want.
func valueOf[T any](want string, read func(text string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text word
		if err := text.Decode(ctx); err != nil {
			return err
		}
		value, err := read(string(text))
		if err != nil {
			return fmt.Errorf("%.50q: %s", string(text), want)
		}
		target.Set(reflect.ValueOf(value))
		return nil
	}))
}

// words are the values of a flag that may be repeated, or hold several
// separated by commas. None of them is empty.
type words []string

// Decode reads one occurrence of the flag.
func (w *words) Decode(ctx *kong.DecodeContext) error {
	var text word
	if err := text.Decode(ctx); err != nil {
		return err
	}
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			return errEmptyFlag
		}
		*w = append(*w, part)
	}
	return nil
}

// metaFlag is metadata, a name=value at a time.
type metaFlag store.Metadata

// Decode reads one occurrence of the flag.
func (m *metaFlag) Decode(ctx *kong.DecodeContext) error {
	var text word
	if err := text.Decode(ctx); err != nil {
		return err
	}
	name, value, err := store.ParseMetadata(string(text))
	if err != nil {
		return err
	}
	if *m == nil {
		*m = metaFlag{}
	}
	(*m)[name] = value
	return nil
}

// metaEdit is metadata that takes the place of what is there; none removes it.
type metaEdit store.Metadata

// Decode reads one occurrence of the flag.
func (m *metaEdit) Decode(ctx *kong.DecodeContext) error {
	if ctx.Scan.Peek().String() == "none" {
		ctx.Scan.Pop()
		*m = metaEdit{}
		return nil
	}
	var more metaFlag
	if err := more.Decode(ctx); err != nil {
		return err
	}
	if *m == nil {
		*m = metaEdit{}
	}
	maps.Copy(*m, more)
	return nil
}

// watchFlag is for commands that print a state.
type watchFlag struct {
	Watch time.Duration `placeholder:"DURATION" help:"Repeat the output at this interval, such as 2s, until you press Ctrl-C."`
}

// shortestWatch keeps a typo from asking the database without a pause.
const shortestWatch = 100 * time.Millisecond

// watched is asOperator for work that prints a state, once, or again and again until a
// signal. A terminal is cleared each time.
func (f watchFlag) watched(ctx context.Context, p *program, work func(context.Context, *operate.Actor) error) error {
	return watch(ctx, f, p, p.asOperator, work)
}

// watchedLocks is watched for commands that print the locks of the configuration.
func (f watchFlag) watchedLocks(ctx context.Context, p *program, work func(context.Context, *operate.Operator) error) error {
	return watch(ctx, f, p, p.withLocks, work)
}

func watch[O any](ctx context.Context, f watchFlag, p *program, with func(context.Context, func(context.Context, O) error) error, work func(context.Context, O) error) error {
	if f.Watch == 0 {
		return with(ctx, work)
	}
	if f.Watch < shortestWatch {
		return usage("--watch %v: want at least %v", f.Watch, shortestWatch)
	}
	return with(ctx, func(ctx context.Context, o O) error {
		_, terminal := p.terminal(p.stdout)
		for {
			if terminal {
				fmt.Fprint(p.stdout, "\x1b[H\x1b[2J")
			}
			if err := work(ctx, o); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(f.Watch):
			}
		}
	})
}

// instant is the value of a flag that takes a time, or how long ago it was.
type instant struct{ wire.Moment }

// Decode reads the value.
func (i *instant) Decode(ctx *kong.DecodeContext) error {
	var text word
	err := text.Decode(ctx)
	if err == nil {
		i.Moment, err = wire.ParseMoment(string(text))
	}
	return err
}

// on is the time that is meant; the zero time where the flag was not given.
func (i *instant) on(now time.Time) time.Time {
	if i == nil {
		return time.Time{}
	}
	return i.On(now)
}

// timestamp is the value of a flag that takes a time, in the future or in the past.
type timestamp time.Time

// Decode reads the value.
func (t *timestamp) Decode(ctx *kong.DecodeContext) error {
	var text word
	if err := text.Decode(ctx); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%.50q: want a time with its zone, such as 2030-01-31T08:00:00Z", string(text))
	}
	*t = timestamp(at)
	return nil
}

// checkLimit refuses a --limit that no list can have.
func checkLimit(limit int) error {
	if limit < 1 || limit > store.LargestPage {
		return usage("--limit %d: want 1 to %d", limit, store.LargestPage)
	}
	return nil
}
